"""A controller that was away: what nobody of ours saw proves nothing about owners and health."""

from __future__ import annotations

import pytest

from tests.support.scenario.session_phases_reached import NODE, at
from tests.support.scenario.session_world import World

UPGRADE = "nvidia.com__gpu_driver_upgrade_state"


def stand_down(phase: str) -> World:
    """The GPU Operator works on the node, and the session says so."""
    world = at(phase)
    world.label(NODE, **{UPGRADE: "validation-required"})
    world.run(20)
    assert world.condition(NODE, "Paused") == "StandDown"
    return world


@pytest.mark.parametrize("new_process", [True, False], ids=["restarted", "frozen"])
@pytest.mark.parametrize("phase", ["Draining", "Quarantined", "Validating"])
class TestOwnerOfLongAgo:
    def test_issue10_14_an_uncordon_while_nobody_looked_is_a_persons(
        self, phase: str, new_process: bool
    ) -> None:
        world = stand_down(phase)
        world.label(NODE, **{UPGRADE: "upgrade-done"})
        world.sleep(1800)
        world.cordon(NODE, on=False)
        world.sleep(600)
        if new_process:
            world.restart()
        world.run(5)
        assert world.phase(NODE) == "Cancelled"
        assert not world.unschedulable(NODE)

    def test_issue10_14_an_uncordon_during_a_change_of_leader_is_still_the_owners(
        self, phase: str, new_process: bool
    ) -> None:
        world = stand_down(phase)
        world.label(NODE, **{UPGRADE: "upgrade-done"})
        world.cordon(NODE, on=False)
        world.sleep(15)
        if new_process:
            world.restart()
        world.run(5)
        assert world.phase(NODE) == phase
        assert world.unschedulable(NODE)


def test_issue10_14_without_any_knowledge_of_the_time_before_nobody_just_left() -> None:
    world = stand_down("Quarantined")
    world.label(NODE, **{UPGRADE: "upgrade-done"})
    world.cordon(NODE, on=False)
    world.restart(knows_before=False)
    world.run(5)
    assert world.phase(NODE) == "Cancelled"


def test_issue10_14_healthy_time_that_nobody_saw_does_not_release() -> None:
    world = at("Validating")
    world.sleep(3600)
    world.restart()
    world.run(10)
    assert world.phase(NODE) == "Validating"
    world.run(570, step=10)
    assert world.phase(NODE) == "Validating"
    world.run_until(NODE, "Released", limit=60)


def test_issue10_14_a_change_of_leader_costs_no_healthy_time() -> None:
    world = at("Validating")
    began = world.now
    world.run(300, step=10)
    world.sleep(20)
    world.restart()
    world.run_until(NODE, "Released", limit=600)
    assert world.now - began <= 605
