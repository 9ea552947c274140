"""A controller takes taint or cordon off during a quarantine: restored once, then left alone."""

from typing import Any

import pytest

from rules.api.names import TAINT_QUARANTINE
from rules.api.timestamps import format_time
from rules.session.taint_restore import AGAIN_S
from tests.support.scenario.fleets import NODE, TAINTED, at, evictions_after
from tests.support.scenario.session_world import World

UPGRADER = "system-upgrade-controller"
LABEL: dict[str, Any] = {"f:metadata": {"f:labels": {"f:plan.upgrade.cattle.io/k3s": {}}}}


def written_by(world: World, manager: str) -> None:
    """What the API server notes when a manager sets a label: an uncordon itself leaves nothing."""
    entries = world.nodes[NODE]["metadata"].setdefault("managedFields", [])
    entries[:] = [entry for entry in entries if entry["manager"] != manager]
    entry = {"manager": manager, "operation": "Update", "time": format_time(world.now)}
    entries.append({**entry, "fieldsV1": LABEL})


def uncordon(world: World, *managers: str) -> None:
    for manager in managers:
        written_by(world, manager)
    world.cordon(NODE, on=False)
    world.run(5)


def events(world: World, reason: str) -> list[str]:
    return [e["message"] for e in world.events.values() if e["reason"] == reason]


def paused(world: World) -> str:
    found = (c for c in world.session(NODE).status.conditions if c.type == "Paused")
    return next((c.reason for c in found if c.status == "True"), "")


def tainted(world: World) -> bool:
    return any(t["key"] == TAINT_QUARANTINE for t in world.nodes[NODE]["spec"].get("taints", []))


@pytest.mark.parametrize("phase", TAINTED)
class TestAControllersUncordon:
    def test_is_undone_once_and_the_session_goes_on(self, phase: str) -> None:
        world = at(phase)
        uncordon(world, UPGRADER)
        assert world.unschedulable(NODE)
        assert tainted(world)
        assert world.phase(NODE) not in {"Cancelled", "Released"}
        (message,) = events(world, "QuarantineMarkRestored")
        assert f"cordon was removed by {UPGRADER}" in message

    def test_a_second_one_within_an_hour_leaves_the_node_alone(self, phase: str) -> None:
        world = at(phase)
        uncordon(world, UPGRADER)
        world.run(120, step=20)
        before = world.now
        uncordon(world, UPGRADER)
        assert not world.unschedulable(NODE)
        assert tainted(world), "its taint is never removed for that"
        assert world.phase(NODE) not in {"Cancelled", "Released"}
        assert paused(world) == "UndoneAgain"
        world.run(30)
        assert evictions_after(world, before) == 0
        (message,) = events(world, "QuarantineUndoneAgain")
        assert UPGRADER in message


class TestWhoCounts:
    @pytest.mark.parametrize("manager", ["kubectl-label", "k9s"])
    def test_an_interactive_uncordon_ends_the_session(self, manager: str) -> None:
        world = at("Quarantined")
        uncordon(world, UPGRADER, manager)
        assert world.phase(NODE) == "Cancelled"
        assert not world.is_quarantined(NODE)

    def test_an_uncordon_without_a_trace_is_an_operators_request(self) -> None:
        world = at("Quarantined")
        uncordon(world)
        assert world.phase(NODE) == "Cancelled"

    def test_a_program_that_never_uncordons_is_not_accused(self) -> None:
        world = at("Quarantined")
        uncordon(world, "nfd-master")
        assert world.phase(NODE) == "Cancelled"

    def test_a_write_before_the_last_check_is_no_new_uncordon(self) -> None:
        world = at("Quarantined")
        written_by(world, UPGRADER)
        world.run(300, step=20)
        uncordon(world)
        assert world.phase(NODE) == "Cancelled"

    def test_an_unknown_program_counts_as_a_controller(self) -> None:
        world = at("Quarantined")
        uncordon(world, "in-house-rebooter")
        assert world.unschedulable(NODE)

    def test_after_a_restart_a_known_controller_is_still_recognised(self) -> None:
        world = at("Quarantined")
        written_by(world, UPGRADER)
        world.cordon(NODE, on=False)
        world.restart()
        world.run(5)
        assert world.unschedulable(NODE)
        assert world.phase(NODE) == "Quarantined"

    def test_the_taint_is_restored_as_well(self) -> None:
        world = at("Quarantined")
        written_by(world, "karpenter")
        world.untaint(NODE, TAINT_QUARANTINE)
        world.run(5)
        assert tainted(world)
        assert world.phase(NODE) == "Quarantined"


class TestLeftAlone:
    def contested(self) -> World:
        world = at("Quarantined")
        uncordon(world, UPGRADER)
        uncordon(world, UPGRADER)
        assert paused(world) == "UndoneAgain"
        world.run(10)
        return world

    def test_it_stays_so_after_the_hour_and_a_restart(self) -> None:
        world = self.contested()
        world.restart()
        world.run(2 * AGAIN_S, step=60)
        assert not world.unschedulable(NODE)
        assert paused(world) == "UndoneAgain"
        assert len(events(world, "QuarantineUndoneAgain")) == 1

    def test_a_manual_removal_of_the_taint_ends_the_session(self) -> None:
        world = self.contested()
        # The next check of the node: what the upgrader wrote before is older than it.
        world.run(70)
        world.untaint(NODE, TAINT_QUARANTINE)
        world.run(5)
        assert world.phase(NODE) == "Cancelled"

    def test_a_manual_cordon_ends_the_dispute(self) -> None:
        world = self.contested()
        world.cordon(NODE)
        world.run(5)
        assert paused(world) == ""

    def test_it_is_released_when_its_causes_close(self) -> None:
        world = self.contested()
        world.heal_until_released(NODE, limit=900, step=5)
        assert not world.is_quarantined(NODE)


def test_during_a_pause_it_is_remembered_and_restored_afterwards() -> None:
    world = at("Quarantined")
    world.pause()
    world.run(3)
    uncordon(world, UPGRADER)
    world.run(300, step=20)
    assert not world.unschedulable(NODE)
    assert world.phase(NODE) == "Quarantined"
    world.pauses.clear()
    world.run(90)
    assert world.unschedulable(NODE)
    uncordon(world, UPGRADER)
    assert paused(world) == "UndoneAgain", "that was its one time"
