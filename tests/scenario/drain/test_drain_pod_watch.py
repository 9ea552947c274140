"""A drain watches the pods of its node, and lists them once before the node counts as empty."""

from typing import Any

import pytest

from remediator.controller import pod_watch
from tests.support.scenario.fleets import NODE, evicted, fleet
from tests.support.scenario.session_world import World

PODS = "/api/v1/pods"


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"grace": 1800}, id="takes long"),
        pytest.param({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, id="waits"),
    ],
)
def test_a_watched_node_is_listed_about_once_a_minute(pod: dict[str, Any]) -> None:
    world = fleet()
    world.add_pod("slow", NODE, **pod)
    world.incident(NODE)
    world.run(10)
    assert 5 <= _lists(world, 300) <= 6


def test_a_node_that_cannot_be_watched_is_listed_every_few_seconds() -> None:
    world = fleet()
    world.unwatched.add(PODS)
    world.add_pod("slow", NODE, grace=120)
    world.add_pod("held", NODE, annotations={"karpenter.sh/do-not-disrupt": "true"})
    world.incident(NODE)
    world.run(10)
    assert 12 <= _lists(world, 30) <= 18, "a pod terminates"
    world.run(120)
    assert 5 <= _lists(world, 30) <= 8


def test_an_ordinary_drain_lists_its_pods_once_and_reads_none() -> None:
    world = fleet()
    for index in range(4):
        world.add_pod(f"pod-{index}", NODE, grace=3)
    world.fail_until(NODE, "Quarantined", limit=60)
    world.run(2)
    reads = [path for path, _ in world.gets if "/pods" in path and "gpuward/pods" not in path]
    assert reads == [PODS] * 3, "gangs and the start of the watch from a cache, and the last list"


def test_only_so_many_nodes_are_watched_and_the_others_are_drained_from_cached_lists() -> None:
    nodes = [f"n{index}" for index in range(pod_watch.MOST + 8)]
    world = fleet(len(nodes), limits={"nodesDraining": len(nodes)})
    for node in nodes:
        world.add_pod(f"pod-{node}", node, grace=10)
        world.incident(node)
    watches = []
    for _ in range(60):
        world.run(1)
        watches.append(world.open_watches(PODS))
    assert max(watches) == pod_watch.MOST
    assert watches[-1] == 0, "a drained node is not watched"
    assert {world.phase(node) for node in nodes} == {"Quarantined"}
    assert sorted(evicted(world)) == sorted(f"pod-{node}" for node in nodes)


def test_a_drain_goes_on_when_its_watch_dies_in_the_middle() -> None:
    world = fleet()
    world.add_pod("a", NODE, grace=20)
    world.add_pod("b", NODE, grace=40)
    world.incident(NODE)
    world.run(5)
    world.break_watches(PODS)
    world.run_until(NODE, "Quarantined", limit=60)
    assert evicted(world) == ["a", "b"]


@pytest.mark.parametrize(
    ("silent_after_s", "limit_s"),
    [pytest.param(4, 60, id="before the pod leaves"), pytest.param(12, 20, id="before the list")],
)
def test_a_pod_that_a_silent_watch_does_not_show_is_evicted_too(
    silent_after_s: float, limit_s: float
) -> None:
    world = fleet()
    world.add_pod("first", NODE, grace=8)
    world.incident(NODE)
    world.run(silent_after_s)
    world.hang_watches(PODS)
    world.add_pod("unseen", NODE, grace=2)
    world.run_until(NODE, "Quarantined", limit=limit_s + 10)
    assert evicted(world) == ["first", "unseen"]


def _lists(world: World, seconds: float) -> int:
    """How often pods are listed within that time."""
    before = len(world.gets)
    world.run(seconds)
    return sum(path.endswith("/pods") for path, _ in world.gets[before:])
