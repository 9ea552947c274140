"""Sessions that vanish without a request: taint and cordon stay, the sessions are opened again."""

from __future__ import annotations

import pytest

from tests.support.scenario.session_world import ROOMY, World, policy_of

TWO = ("n0", "n1")


def quarantined(*nodes: str) -> World:
    world = World(policy_of(budget=ROOMY))
    world.add_nodes(6)
    for node in nodes:
        world.incident(node)
    for node in nodes:
        world.run_until(node, "Quarantined", limit=120)
    world.run(5)
    return world


def test_sessions_that_vanish_together_are_opened_again_and_no_node_is_freed() -> None:
    world = quarantined(*TWO)
    names = {world.session(node).name for node in TWO}
    for name in names:
        del world.quarantines[name]
    for _ in range(20):
        world.run(1)
        assert all(world.is_marked(node) and world.unschedulable(node) for node in TWO)
    assert {world.session(node).name for node in TWO} == names
    for node in TWO:
        assert world.phase(node) in {"Marked", "Draining", "Quarantined"}
        assert not world.session(node).spec.release
    lost = [e["message"] for e in world.events.values() if e["reason"] == "QuarantineSessionLost"]
    assert len(lost) == 2
    assert "the sessions of 2 nodes vanished within 2 s" in lost[0]
    assert "kubectl gpuward release n" in lost[0]


def test_one_session_that_is_deleted_ends_its_quarantine() -> None:
    world = quarantined(*TWO)
    del world.quarantines[world.session("n0").name]
    world.run(10)
    assert not world.is_marked("n0")
    assert world.is_marked("n1")
    world.run(30)
    assert not world.is_marked("n0"), "the fault stays covered by the request"


@pytest.mark.parametrize("apart_s", [10, 60])
def test_sessions_that_are_deleted_one_after_the_other_end_their_quarantines(apart_s: int) -> None:
    world = quarantined(*TWO)
    for node in TWO:
        del world.quarantines[world.session(node).name]
        world.run(apart_s)
    world.run(10)
    assert not any(world.is_marked(node) for node in TWO)


def test_a_session_that_comes_back_is_released_by_a_person_as_any_other() -> None:
    world = quarantined(*TWO)
    for node in TWO:
        del world.quarantines[world.session(node).name]
    world.run(20)
    world.quarantines[world.session("n0").name]["spec"]["release"] = {"by": "ada", "reason": "ok"}
    world.run(10)
    assert not world.is_marked("n0")
    assert world.is_marked("n1")


def test_a_session_that_vanished_while_nobody_led_is_opened_again() -> None:
    world = quarantined(*TWO)
    name = world.session("n0").name
    del world.quarantines[name]
    world.restart()
    for _ in range(20):
        world.run(1)
        assert world.is_marked("n0")
    assert world.session("n0").name == name
    assert not world.session("n0").spec.release
    lost = [e["message"] for e in world.events.values() if e["reason"] == "QuarantineSessionLost"]
    assert len(lost) == 1
    assert "deleted while no gpuward-remediator led" in lost[0]
