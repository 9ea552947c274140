"""What people and the policy change about a session that waits, drains or is drained reaches
it.
"""

from typing import Any

import pytest

from remediator.kube.clock import CallQueue
from rules.api import writes as d
from rules.session.causes import MAX_CAUSES, causes_in_effect, worst
from tests.support.scenario.fleets import NODE, at, evictions_after, fleet, ours
from tests.support.scenario.session_world import ROOMY, World, policy_of

FAULT = "Xid79GPUFallenOffBus"
REPORT = {"reasons": {FAULT: {"level": "Report"}}}
CORDON = {"reasons": {FAULT: {"level": "Cordon"}}}


def use(world: World, **sections: object) -> None:
    world.policy = policy_of(**{"budget": ROOMY, **sections})


def set_level(world: World, level: str) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["level"] = level
    world.touch(session)


def open_the_way(world: World) -> None:
    """Nothing outside the session would hold up a taint and cordon or an eviction any more."""
    world.pdbs.clear()
    world.add_pod("late", NODE)


@pytest.mark.parametrize(("policy", "phase"), [({}, ""), ({"level": "Cordon"}, "Marked")])
def test_a_network_reason_only_quarantines_if_the_policy_raises_it(
    policy: dict[str, str], phase: str
) -> None:
    world = fleet(reasons={"NetworkLinkFlaps": policy} if policy else {})
    world.add_pod("trainer", NODE, gpus=8)
    world.incident(NODE, "NetworkLinkFlaps", severity="Degraded", level="Report")
    world.run(60)
    assert world.phase(NODE) == phase
    assert ours(world) == ([NODE] if phase else [])
    assert evictions_after(world, 0) == 0


class TestThePolicyOnlyReports:
    def test_a_pending_session_does_not_touch_its_node(self) -> None:
        world = at("Pending")
        use(world, **REPORT)
        world.run(30)
        assert world.phase(NODE) == "Cancelled"
        assert f"the policy only reports {FAULT}" in world.message(NODE)
        assert not world.writes(d.TaintAndCordon)

    @pytest.mark.parametrize("phase", ["Marked", "Draining", "Quarantined"])
    def test_a_quarantined_node_returns_without_another_eviction(self, phase: str) -> None:
        world = at(phase)
        open_the_way(world)
        before = world.now
        use(world, **REPORT)
        world.run(2)
        assert world.phase(NODE) == "Validating"
        assert "the policy only reports" in world.message(NODE).lower()
        world.run_until(NODE, "Released", limit=700, step=10)
        assert evictions_after(world, before) == 0
        assert not world.is_quarantined(NODE)
        world.run(3600, step=60)
        assert len(world.sessions(NODE)) == 1

    def test_it_stops_without_a_fresh_health_status(self) -> None:
        world = at("Draining")
        world.silence(NODE)
        world.run(730, step=10)
        open_the_way(world)
        before = world.now
        use(world, **REPORT)
        world.run(60)
        assert evictions_after(world, before) == 0
        assert world.phase(NODE) == "Validating"
        assert world.condition(NODE, "Blocked") == "VerdictStale"

    def test_the_policy_does_not_limit_a_manual_cause(self) -> None:
        world = at("Quarantined")
        first = world.session(NODE).name
        world.now += 10
        # The reason code is that of a fault: the source counts.
        cause = {"source": "Human", "reason": FAULT, "severity": "Degraded", "by": "ada"}
        world.open_by_operator(NODE, causes=[cause])
        world.run(5)
        use(world, **REPORT)
        world.run(1200, step=20)
        assert world.quarantines[first]["status"]["phase"] == "Quarantined"

    def test_taken_back_the_same_session_goes_on(self) -> None:
        world = at("Quarantined")
        use(world, **REPORT)
        world.run(60)
        use(world)
        world.run_until(NODE, "Quarantined", limit=30)
        assert len(world.sessions(NODE)) == 1


@pytest.mark.parametrize("how", ["policy", "operator"])
class TestOnlyACordon:
    def lower(self, world: World, how: str) -> None:
        use(world, **CORDON) if how == "policy" else use(world)
        if how == "operator":
            set_level(world, "Cordon")

    def lift(self, world: World, how: str) -> None:
        use(world)
        if how == "operator":
            set_level(world, "Drain")

    def test_a_waiting_session_is_quarantined_and_not_drained(self, how: str) -> None:
        world = at("Pending")
        open_the_way(world)
        self.lower(world, how)
        world.run(120)
        assert world.phase(NODE) == "Marked"
        assert "Level Cordon" in world.message(NODE)
        assert not world.writes(d.EvictPod)

    def test_a_drain_stops_and_the_taint_stays(self, how: str) -> None:
        world = at("Draining")
        open_the_way(world)
        before = world.now
        self.lower(world, how)
        world.run(120)
        assert world.phase(NODE) == "Marked"
        assert world.is_quarantined(NODE)
        assert evictions_after(world, before) == 0
        assert not world.condition(NODE, "NeedsHuman")

    def test_lifted_again_the_drain_goes_on(self, how: str) -> None:
        world = at("Draining")
        self.lower(world, how)
        world.run(60)
        open_the_way(world)
        self.lift(world, how)
        world.run_until(NODE, "Quarantined", limit=120)

    def test_a_restart_forgets_nothing(self, how: str) -> None:
        world = at("Draining")
        self.lower(world, how)
        world.run(5)
        world.restart()
        world.run(60)
        assert world.phase(NODE) == "Marked"


def test_an_override_does_not_cover_a_more_severe_fault() -> None:
    world = at("Draining")
    set_level(world, "Cordon")
    world.run(60)
    assert world.phase(NODE) == "Marked"
    world.incident(NODE, "RowRemapFailure")
    world.run(5)
    assert world.session(NODE).spec.level == "Drain"


def test_an_old_fault_without_room_among_the_causes_raises_nothing() -> None:
    world = at("Draining")
    for number in range(MAX_CAUSES + 4):
        world.incident(NODE, f"Reason{number}")
    world.run(5)
    assert len(world.session(NODE).spec.causes) == MAX_CAUSES
    set_level(world, "Cordon")
    world.run(30)
    assert world.session(NODE).spec.level == "Cordon"
    # One ends, and another takes its room.
    first = world.session(NODE).spec.causes[5].incident
    world.close(NODE, first)
    world.run(30)
    session = world.session(NODE)
    assert first not in {cause.incident for cause in session.spec.causes}
    assert session.spec.level == "Cordon"
    world.incident(NODE, "RowRemapFailure")
    world.run(5)
    assert world.session(NODE).spec.level == "Drain"


class TestANarrowerSelector:
    @pytest.mark.parametrize("phase", ["Pending", "Marked", "Draining"])
    def test_no_further_disruption_on_an_unselected_node(self, phase: str) -> None:
        world = at(phase)
        if phase == "Marked":
            set_level(world, "Drain")
        open_the_way(world)
        before = world.now
        use(world, nodeSelector="pool=training")
        world.run(120)
        assert evictions_after(world, before) == 0
        assert world.phase(NODE) == phase
        assert world.condition(NODE, "Blocked") == "NotSelected"
        use(world)
        world.run_until(NODE, "Quarantined", limit=120)

    def test_it_takes_no_place_among_the_draining(self) -> None:
        one: dict[str, Any] = {"limits": {"nodesDraining": 1}}
        world = fleet(5, **one)
        world.add_pod("kept", NODE)
        world.add_pdb("keep", minAvailable=1)
        world.nodes["n1"]["metadata"]["labels"]["pool"] = "training"
        for node in (NODE, "n1"):
            world.incident(node, level="Cordon")
        world.run(20)
        use(world, nodeSelector="pool=training", **one)
        for node in (NODE, "n1"):
            world.incident(node, "RowRemapFailure")
        world.run_until("n1", "Quarantined", limit=60)
        assert world.phase(NODE) == "Marked"

    def test_it_is_released_when_it_is_healthy(self) -> None:
        world = at("Quarantined")
        use(world, nodeSelector="pool=training")
        world.heal_until_released(NODE, step=10)

    def test_an_operator_can_quarantine_any_node(self) -> None:
        world = fleet(3, nodeSelector="pool=training")
        world.open_by_operator(NODE)
        world.run_until(NODE, "Quarantined", limit=30)


@pytest.mark.parametrize("broken", [(), ("n5",), ("n5", "n6")])
def test_a_pending_quarantine_keeps_its_place_in_the_budget(
    broken: tuple[str, ...],
) -> None:
    """Quarantines are rate-limited: each is checked again right before it is sent."""
    world = World(policy_of(budget={**ROOMY, "maxUnavailable": {"percent": 30, "atMost": 50}}))
    world.rates = {CallQueue.TAINT: 0.1}
    world.add_nodes(10)
    world.now += 7200
    for name in ("n0", "n1"):
        world.incident(name)
    world.run(5)
    assert ours(world) == ["n0"]
    for name in broken:
        world.set_ready(name, "False")
    world.run(30)
    waits = len(broken) == 2
    assert ours(world) == (["n0"] if waits else ["n0", "n1"])
    assert (world.condition("n1", "Blocked") == "Budget") == waits


def test_a_cause_that_is_closed_hurries_no_drain() -> None:
    """Its severity decides over time-outs and over how long an annotation is honoured."""
    world = at("Draining")
    fatal = world.session(NODE).spec.causes[0]
    world.incident(NODE, "Xid94ContainedMemoryError", severity="Degraded", gpu="GPU-n0-1")
    world.run(3)
    world.close(NODE, fatal.incident)
    world.run(3)
    session = world.session(NODE)
    assert (worst(session.spec.causes), len(session.spec.causes)) == ("Fatal", 2)
    assert worst(causes_in_effect(session, world.snapshot())) == "Degraded"
