"""A fault of several whole racks: what they have in common is said of all of them."""

from __future__ import annotations

import pytest

from rules.fleet.common_cause import common_causes
from rules.fleet.turns import judge_fleet
from tests.support.scenario.fleets import fleet_labels
from tests.support.scenario.session_world import ROOMY, World, policy_of


def racks(count: int, **policy: object) -> World:
    """So many racks of eight nodes, n00 to n07 in r0."""
    world = World(policy_of(**policy))
    for index in range(8 * count):
        world.add_node(f"n{index:02}", labels={"example.com/rack": f"r{index // 8}"})
    return world


def test_racks_that_fail_as_a_whole_are_all_named_in_every_sentence_and_one_event() -> None:
    world = racks(8, budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}})
    world.run(5)
    for index in range(24):
        world.incident(f"n{index:02}", reason="Xid79GPUFallenOffBus")
        world.run(1)
    world.run(30)
    (finding,) = judge_fleet(world.snapshot()).breaker.findings
    assert len(finding.nodes) == 24
    said = (
        "Xid79GPUFallenOffBus on all 24 nodes with one of 3 values of example.com/rack "
        "(r0, r1, r2)"
    )
    assert finding.message == said
    for last_of_a_rack in ("n07", "n15", "n23"):
        assert said in world.message(last_of_a_rack)
    told = [e["message"] for e in world.events.values() if e["reason"] == "CorrelatedCause"]
    assert len(told) == 2, "of the first rack, and of several, however many follow"


def test_racks_that_are_hot_as_a_whole_have_their_cause_in_common() -> None:
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
        pytest.param(range(16), id="the whole fleet"),
        pytest.param(range(0, 16, 2), id="everywhere"),
    ],
)
def test_what_is_everywhere_is_not_said_to_be_of_some_racks(ill: range) -> None:
    world = racks(2, budget={**ROOMY, "maxNew": {"count": 3, "window": "10m"}})
    for index in ill:
        world.incident(f"n{index:02}", reason="Xid79GPUFallenOffBus")
        world.run(1)
    world.run(30)
    (finding,) = judge_fleet(world.snapshot()).breaker.findings
    assert finding.shared == "gpuward.io/driver=580.65.06"


def test_a_label_that_contradicts_the_evidence_does_not_stop_the_judgement() -> None:
    """Whoever counts by a label of their own, named as what the evidence says, and late."""
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
    verdict = judge_fleet(world.snapshot())
    assert verdict.breaker.open, "it cools down"
    (after,) = verdict.breaker.findings
    assert (after.shared, after.nodes, after.going_on) == (before.shared, before.nodes, 0)
