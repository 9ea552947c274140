"""Pods behind a shared budget: whoever `kubectl drain` gets off a node goes here, too."""

from __future__ import annotations

from typing import Any

import pytest

from rules.api import writes as d
from tests.support.scenario.fleets import NODE, evicted, fleet
from tests.support.scenario.session_world import World


def recreated(world: World, node: str) -> None:
    """The workload's controller: what left comes back elsewhere, ready."""
    for name in {w.name for w in world.writes(d.EvictPod)}:
        gone = ("team-a", name) not in world.pods
        if gone and ("team-a", f"{name}-new") not in world.pods:
            world.add_pod(f"{name}-new", node)
    world.sync_pdbs()


@pytest.mark.parametrize(
    ("sick", "pdb"),
    [
        pytest.param({"phase": "Pending", "ready": False}, {}, id="pending"),
        pytest.param(
            {"ready": False}, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, id="always-allow"
        ),
        pytest.param({"ready": False}, {}, id="unready-in-a-healthy-budget"),
    ],
)
def test_a_pod_that_the_budget_ignores_goes_first_and_opens_it(
    sick: dict[str, Any], pdb: dict[str, Any]
) -> None:
    world = fleet()
    for index in range(3):
        world.add_pod(f"a{index}", NODE)
    world.add_pod("z-sick", NODE, **sick)
    world.add_pod("there", "n1")
    world.add_pdb("keep", minAvailable=4, **pdb)
    world.incident(NODE)
    for _ in range(300):
        world.run(1)
        recreated(world, "n2")
    assert world.phase(NODE) == "Quarantined"
    assert evicted(world)[0] == "z-sick"


def test_a_full_budget_is_asked_for_each_of_its_pods_in_turn() -> None:
    world = fleet()
    for index in range(4):
        world.add_pod(f"a{index}", NODE)
    world.add_pod("there", "n1", ready=False)
    world.add_pdb("keep", minAvailable=4)
    world.incident(NODE)
    world.run(60)
    assert set(evicted(world)) == {"a0", "a1", "a2", "a3"}
    assert len(evicted(world)) <= 10, "one question at a time, less and less often"
    drain = world.session(NODE).status.drain
    assert drain is not None
    assert drain.blocked[0].pods.names == ("team-a/a0", "team-a/a1", "team-a/a2")
    assert drain.blocked[0].pods.total == 4


def test_a_pod_that_a_webhook_keeps_does_not_hold_back_its_neighbours() -> None:
    world = fleet()
    for index in range(3):
        world.add_pod(f"a{index}", NODE)
    world.add_pdb("keep", minAvailable=0)
    refusal: tuple[int, dict[str, str], bytes] = (
        400,
        {},
        b'{"kind": "Status", "message": "not now"}',
    )
    world.eviction_answers = [refusal]
    world.incident(NODE)
    world.run(5)
    assert evicted(world)[:3] == ["a0", "a1", "a2"]
