"""One rule for every way into Draining: the limit of nodes, and our own node with its
hand-over.
"""

from __future__ import annotations

from typing import Any

import pytest

from rules.api import writes as d
from rules.fleet.turns import judge_fleet
from tests.support.scenario.fleets import fleet, phases
from tests.support.scenario.session_world import World


def validating(count: int, **sections: Any) -> tuple[World, list[str]]:
    """A fleet whose first nodes were drained and are healthy again."""
    world = fleet(12, limits={"nodesDraining": 2}, **sections)
    names = [f"n{index}" for index in range(count)]
    for name in names:
        world.incident(name)
    world.run(90)
    assert set(phases(world, names)) == {"Quarantined"}
    for name in names:
        world.close_all(name)
    world.run(3)
    assert set(phases(world, names)) == {"Validating"}
    for name in names:
        world.add_pod(f"back-{name}", name, grace=60)
    return world, names


def most_draining(world: World, names: list[str], seconds: int) -> int:
    most = 0
    for _ in range(seconds):
        world.run(1)
        most = max(most, phases(world, names).count("Draining"))
    return most


@pytest.mark.parametrize("how", ["cause", "reboot"])
def test_causes_that_come_back_keep_to_the_limit_of_nodes(how: str) -> None:
    world, names = validating(10)
    for name in names:
        world.incident(name)
        if how == "reboot":
            world.reboot(name)
    assert most_draining(world, names, 60) == 2
    world.run(400, step=5)
    assert set(phases(world, names)) == {"Quarantined"}


def test_our_own_node_hands_over_whatever_way_it_came() -> None:
    world, _ = validating(1)
    world.own_node = "n0"
    world.incident("n0")
    world.run(20)
    assert world.phase("n0") == "Marked"
    assert world.condition("n0", "Blocked") == "OwnNodeHandOver"
    assert world.hand_overs


def test_our_own_node_does_not_wait_behind_a_block_that_never_ends() -> None:
    world = fleet(6)
    world.own_node, world.nobody_took_over = "n0", True
    world.add_pod("kept", "n1")
    world.add_pdb("keep", minAvailable=1)
    world.add_pod("mine", "n0", labels={"app": "mine"})
    world.incident("n1")
    world.run(10)
    world.incident("n0")
    world.run_until("n0", "Quarantined", limit=120)
    assert world.phase("n1") == "Draining"
    assert world.condition("n1", "NeedsHuman") == "BudgetNeverAllows"


def test_our_own_node_does_not_wait_for_a_node_that_cannot_drain() -> None:
    world = fleet(6)
    world.own_node, world.nobody_took_over = "n0", True
    world.add_pod("slow", "n1", grace=600)
    world.incident("n1")
    world.run(10)
    world.set_ready("n1", "Unknown")
    world.incident("n0")
    world.run_until("n0", "Quarantined", limit=120)


def test_under_a_pause_nobody_holds_a_permit_that_outlives_it() -> None:
    world = fleet(12, limits={"nodesDraining": 2})
    names = [f"n{index}" for index in range(10)]
    for name in names:
        world.incident(name, level="Cordon")
    world.run(5)
    world.pause()
    for name in names:
        item = world.quarantines[world.session(name).name]
        item["spec"]["level"] = "Drain"
        world.healths[name]["status"]["incidents"][0]["level"] = "Drain"
        world.touch(item)
        world.add_pod(f"p-{name}", name, grace=60)
    world.run(5)
    held = judge_fleet(world.snapshot()).permits
    assert not any(permit.drain for permit in held.values()), "judged in the pause, used after it"
    world.pauses.clear()
    assert most_draining(world, names, 60) == 2


def test_nodes_that_come_back_to_their_drains_find_only_the_places_there_are() -> None:
    world = fleet(12, limits={"nodesDraining": 2})
    names = [f"n{index}" for index in range(4)]
    for name in names:
        world.add_pod(f"p-{name}", name, grace=300)
    for name in names[:2]:
        world.incident(name)
    world.run(5)
    assert phases(world, names[:2]) == ["Draining", "Draining"]
    for name in names[:2]:
        world.set_ready(name, "Unknown")
    for name in names[2:]:
        world.incident(name)
    world.run(10)
    assert phases(world, names[2:]) == ["Draining", "Draining"], (
        "a node that is silent holds no place"
    )
    for name in names[:2]:
        world.set_ready(name, "True")
    world.run(3)
    assert phases(world, names).count("Draining") == 2
    asked = {w.node for w in world.writes(d.EvictPod)}
    assert asked == set(names)
    world.run(900, step=10)
    assert set(phases(world, names)) == {"Quarantined"}
