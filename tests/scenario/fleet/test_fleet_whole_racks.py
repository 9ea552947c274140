"""A fault of several whole racks: what they have in common is said of all of them."""

from __future__ import annotations

from rules.fleet.common import common_causes
from rules.fleet.turns import judge_fleet
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
    (finding,) = judge_fleet(world.snapshot()).findings
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
    (cause,) = common_causes(snapshot.nodes, snapshot.healths)
    assert cause.message == (
        "ThermalSlowdown on 23 of the 24 nodes with one of 3 values of example.com/rack "
        "(r0, r1, r2), 1 elsewhere: look at what they share first"
    )
