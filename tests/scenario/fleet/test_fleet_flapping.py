"""Faults that come and go in a fleet, and faults of complete racks."""

import pytest

from rules.api.timestamps import format_time
from rules.catalog.why_not import WhyNot
from rules.fleet.common_cause import common_causes
from rules.fleet.turns import judge_fleet
from tests.support.scenario.fleets import fleet, fleet_labels, share
from tests.support.scenario.session_world import ROOMY, World, policy_of

DEFAULT = {**ROOMY, "maxNew": {"count": 3, "window": "10m"}}


def with_an_odd_one(**sections: object) -> World:
    world = fleet(12, labels={"karpenter.sh/nodepool": "main"}, **{"budget": DEFAULT, **sections})
    world.add_node("odd", labels={"karpenter.sh/nodepool": "alone"})
    return world


def flap(world: World, node: str, times: int, period: int = 40) -> None:
    for _ in range(times):
        world.incident(node)
        world.run(period / 2, step=period / 2)
        world.close_all(node)
        world.run(period / 2, step=period / 2)


@pytest.mark.parametrize("mode", ["Enforce", "Shadow"])
def test_two_hours_of_flapping_are_one_session(mode: str) -> None:
    world = with_an_odd_one(mode=mode)
    node = "odd" if mode == "Enforce" else "n5"
    flap(world, node, 60, period=120)
    assert len(world.sessions(node)) == 1
    assert not judge_fleet(world.snapshot()).breaker.open
    world.incident("n1")
    world.run(10)
    assert world.phase("n1") in {"Quarantined", "Marked"}


def test_a_session_that_is_taken_up_again_asks_for_what_the_new_fault_asks() -> None:
    world = with_an_odd_one()
    world.incident("odd", "Xid79GPUFallenOffBus", level="Drain")
    world.run(5)
    world.close_all("odd")
    world.run(5)
    assert world.phase("odd") == "Cancelled"
    world.incident("odd", "RowRemapFailed", severity="Degraded", level="Cordon")
    world.run(5)
    (session,) = world.sessions("odd")
    assert session.status.phase == "Pending"
    assert session.spec.level == "Cordon"
    assert [cause.reason for cause in session.spec.causes] == ["RowRemapFailed"]
    assert world.condition("odd", "Blocked") == "OnlyNodeOfPool"


def test_sessions_ended_by_operators_and_old_sessions_do_not_count() -> None:
    world = with_an_odd_one()
    world.incident("odd")
    world.run(5)
    world.quarantines[world.session("odd").name]["spec"]["release"] = {"by": "ada"}
    world.run(5)
    world.incident("odd")
    world.run(5)
    assert len(world.sessions("odd")) == 2
    world.close_all("odd")
    world.run(7200, step=600)
    world.incident("odd")
    world.run(5)
    assert len(world.sessions("odd")) == 3


def test_a_storm_of_taken_up_sessions_is_a_storm() -> None:
    world = with_an_odd_one(budget={**DEFAULT, "maxNew": {"count": 3, "window": "1m"}})
    world.pause()
    names = [f"n{index}" for index in range(6)]
    for name in names:
        world.incident(name)
        world.run(40, step=20)
        world.close_all(name)
        world.run(40, step=20)
    world.run(1200, step=100)
    world.pauses.clear()
    for name in names:
        world.incident(name)
    world.run(3)
    assert judge_fleet(world.snapshot()).breaker.open


@pytest.mark.parametrize("count", [4, 40])
def test_sessions_of_one_node_are_no_storm(count: int) -> None:
    world = with_an_odd_one()
    for index in range(count):
        name = world.add_ended_session("odd", f"lie-{index}")
        item = world.quarantines[name]
        item["status"] = {
            "mode": "Enforce",
            "phase": "NodeGone",
            "phaseSince": format_time(world.now),
        }
        item["metadata"]["creationTimestamp"] = format_time(world.now - index)
    assert not judge_fleet(world.snapshot()).breaker.open
    world.incident("n1")
    world.run(5)
    assert world.is_quarantined("n1")


def test_quarantines_of_one_node_leave_places_for_others() -> None:
    world = with_an_odd_one(
        budget={**DEFAULT, "perReason": {"count": 3, "window": "24h"}},
        release={"healthyFor": "1s", "replaceAfter": 99},
    )
    for _ in range(3):
        world.incident("n5")
        world.run(30)
        world.close_all("n5")
        world.run(10)
    world.incident("n1", "RowRemapFailed")
    world.incident("n2", "ThermalTrip")
    world.run(5)
    assert world.is_quarantined("n1")
    assert world.is_quarantined("n2")


def test_a_reason_that_took_its_nodes_opens_the_breaker_once_per_node() -> None:
    world = with_an_odd_one(budget=share(100, perReason={"count": 2, "window": "24h"}))
    for name in ("n1", "n2"):
        world.incident(name, "Xid79GPUFallenOffBus")
    world.run(10)
    world.incident("n3", "Xid79GPUFallenOffBus")
    world.run(10)
    refusal = judge_fleet(world.snapshot()).breaker.refusal
    assert refusal is not None
    assert refusal.reason is WhyNot.PER_REASON
    for _ in range(40):
        world.close_all("n3")
        world.run(20, step=20)
        world.incident("n3", "Xid79GPUFallenOffBus")
        world.run(20, step=20)
    assert not judge_fleet(world.snapshot()).breaker.open
    world.incident("n4", "RowRemapFailed")
    world.run(5)
    assert world.is_quarantined("n4")


def racks(count: int, **policy: object) -> World:
    """So many racks of eight nodes, n00 to n07 in r0."""
    world = World(policy_of(**policy))
    for index in range(8 * count):
        world.add_node(f"n{index:02}", labels={"example.com/rack": f"r{index // 8}"})
    return world


def test_completely_faulty_racks_are_named_in_every_message_and_one_event() -> None:
    world = racks(8, budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}})
    world.run(5)
    for index in range(24):
        world.incident(f"n{index:02}", reason="Xid79GPUFallenOffBus")
        world.run(1)
    world.run(30)
    (finding,) = judge_fleet(world.snapshot()).breaker.findings
    assert len(finding.nodes) == 24
    message = (
        "Xid79GPUFallenOffBus on all 24 nodes with one of 3 values of example.com/rack "
        "(r0, r1, r2)"
    )
    assert finding.message == message
    for last_of_a_rack in ("n07", "n15", "n23"):
        assert message in world.message(last_of_a_rack)
    reported = [e["message"] for e in world.events.values() if e["reason"] == "CorrelatedCause"]
    assert len(reported) == 2, "of the first rack, and of several, however many follow"


def test_completely_hot_racks_have_a_common_cause() -> None:
    world = racks(8, budget=ROOMY)
    for index in (*range(23), 60):
        name = f"n{index:02}"
        world.incident(name, "ThermalSlowdown", severity="Degraded", level="Report")
    world.run(20)
    snapshot = world.snapshot()
    (cause,) = common_causes(fleet_labels(snapshot.nodes), snapshot.healths)
    assert cause.message == (
        "ThermalSlowdown on 23 of the 24 nodes with one of 3 values of example.com/rack "
        "(r0, r1, r2), 1 elsewhere: look at what they share first"
    )


@pytest.mark.parametrize(
    "ill",
    [
        pytest.param(range(16), id="the entire fleet"),
        pytest.param(range(0, 16, 2), id="everywhere"),
    ],
)
def test_a_fault_everywhere_has_no_rack_as_its_cause(ill: range) -> None:
    world = racks(2, budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}})
    for index in ill:
        world.incident(f"n{index:02}", reason="Xid79GPUFallenOffBus")
        world.run(1)
    world.run(30)
    (finding,) = judge_fleet(world.snapshot()).breaker.findings
    assert finding.shared == "gpuward.io/driver=580.65.06"


def test_a_label_that_contradicts_the_evidence_does_not_stop_the_judgement() -> None:
    """A custom label with the value of the evidence, set late."""
    budget = {**ROOMY, "per": ["driver"], "maxNew": {"count": 3, "window": "10m"}}
    world = World(policy_of(budget=budget))
    for index in range(10):
        driver = "570.1" if index < 3 else "580.65.06" if index < 6 else "590.1"
        world.add_node(f"n{index:02}", labels={"driver": driver})
    world.run(5)
    for index in range(3):
        world.incident(f"n{index:02}", reason="Xid79GPUFallenOffBus")
    world.run(30)
    (finding,) = judge_fleet(world.snapshot()).breaker.findings
    assert finding.nodes == ("n00", "n01", "n02")


def test_a_driver_that_was_rolled_back_is_named_still_and_nothing_goes_on() -> None:
    """The fleet has one instance type; four of twelve nodes had the driver while they failed."""
    world = World(policy_of(budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}}))
    kind, driver = "node.kubernetes.io/instance-type", "gpuward.io/driver"
    for index in range(12):
        with_it = {driver: "590.44.01" if index < 4 else "580.95.05"}
        world.add_node(f"n{index:02}", labels={kind: "p5.48xlarge", **with_it})
    for index in range(4):
        world.incident(f"n{index:02}", reason="GPULost")
        world.run(1)
    world.run(5)
    (before,) = judge_fleet(world.snapshot()).breaker.findings
    assert (before.shared, before.going_on) == (f"{driver}=590.44.01", 4)

    for index in range(4):
        name = f"n{index:02}"
        world.close_all(name)
        world.label(name, **{driver: "580.95.05"})
        world.healths[name]["status"]["driverVersion"] = "580.95.05"
    world.run(700)
    assessment = judge_fleet(world.snapshot())
    assert assessment.breaker.open, "it cools down"
    (after,) = assessment.breaker.findings
    assert (after.shared, after.nodes, after.going_on) == (before.shared, before.nodes, 0)
