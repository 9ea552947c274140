"""One node that comes and goes, or lies, is one node: the breaker stays closed for the others."""

from __future__ import annotations

import pytest

from rules.api.timestamps import format_time
from rules.catalog.why_not import WhyNot
from rules.fleet.turns import judge_fleet
from tests.support.scenario.fleets import fleet, share
from tests.support.scenario.session_world import ROOMY, World

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


def test_what_a_person_ended_or_what_is_long_over_is_not_taken_up_again() -> None:
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
    assert world.is_marked("n1")


def test_marks_of_one_node_leave_the_others_their_places() -> None:
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
    assert world.is_marked("n1")
    assert world.is_marked("n2")


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
    assert world.is_marked("n4")
