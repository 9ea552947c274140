"""Draining nodes share a watch of pods, which has to be certain before a node counts as empty."""

from typing import Any

import pytest

from remediator.controller.pod_watch import NodePods
from rules.api.pods import PodView, unreadable_pod
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
    assert reads == [PODS] * 2, "the start of the watch from a cache, and the last list"


@pytest.mark.parametrize(
    ("busy", "phase"),
    [pytest.param(True, "Quarantined", id="busy"), pytest.param(False, "Draining", id="quiet")],
)
def test_a_watch_that_has_the_present_version_replaces_the_last_list(
    busy: bool, phase: str
) -> None:
    world = fleet(2)
    world.add_pod("slow", "n0", grace=3)
    world.incident("n0")
    world.run(2)
    assert world.phase("n0") == "Draining"
    world.unread.add("n0")
    for index in range(75):
        world.run(0.2)
        if busy:
            world.add_pod(f"elsewhere-{index}", "n1")
    assert world.phase("n0") == phase, "the pods of the node cannot be listed"


def test_all_draining_nodes_share_one_watch_that_ends_with_the_last_drain() -> None:
    nodes = [f"n{index}" for index in range(40)]
    world = fleet(len(nodes), limits={"nodesDraining": len(nodes)})
    for node in nodes:
        world.add_pod(f"pod-{node}", node, grace=10)
        world.incident(node)
    watches, before = [], len(world.gets)
    for _ in range(60):
        world.run(1)
        watches.append(world.open_watches(PODS))
    assert max(watches) == 1
    assert {world.phase(node) for node in nodes} == {"Quarantined"}
    assert sorted(evicted(world)) == sorted(f"pod-{node}" for node in nodes)
    lists = sum(path == PODS for path, _ in world.gets[before:])
    assert lists <= 2 * len(nodes) + 5, "the start of the watch, and the last list"
    world.run(60)
    assert world.open_watches(PODS) == 0


@pytest.mark.parametrize(
    ("settle", "shown"), [pytest.param("1s", 50, id="short"), pytest.param("5s", 25, id="default")]
)
def test_nodes_that_become_empty_while_others_drain_are_not_listed(
    settle: str, shown: int
) -> None:
    nodes = [f"n{index}" for index in range(60)]
    world = fleet(len(nodes), drain={"settle": settle}, limits={"nodesDraining": len(nodes)})
    for node in nodes:
        world.add_pod(f"pod-{node}", node, grace=600)
        world.incident(node)
    world.run(20)
    assert len(evicted(world)) == len(nodes)
    world.unread |= set(nodes)
    for node in nodes:
        del world.pods["team-a", f"pod-{node}"]
        world.run(0.1)
    world.run(10)
    empty = [node for node in nodes if world.phase(node) == "Quarantined"]
    assert empty == nodes[: len(empty)], "the last nodes need a list, which fails"
    assert len(empty) >= shown


def test_a_node_that_waits_for_the_budget_is_not_watched_for_long() -> None:
    world = fleet(3, budget={"maxUnavailable": {"percent": 100, "atMost": 1}})
    for node in ("n0", "n1"):
        world.incident(node)
    world.run(60)
    assert sorted(str(world.phase(node)) for node in ("n0", "n1")) == ["Pending", "Quarantined"]
    assert world.open_watches(PODS) == 0


def test_events_that_the_list_has_already_do_not_undo_it() -> None:
    pods = NodePods(NODE, lambda _: True)
    pods.apply(8, "a/old", pod("old"))
    pods.apply(12, "a/new", pod("new"))
    assert pods.pods() is None, "not listed yet"
    pods.take({"a/kept": pod("kept")}, 10)
    pods.apply(9, "a/kept", None)
    assert names(pods) == ["kept", "new"]
    pods.apply(13, "a/kept", None)
    assert names(pods) == ["new"]


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


def pod(name: str) -> PodView:
    return unreadable_pod(f"a/{name}", NODE)


def names(pods: NodePods) -> list[str]:
    return sorted(one.metadata.name for one in pods.pods() or ())


def _lists(world: World, seconds: float) -> int:
    """How often pods are listed within that time."""
    before = len(world.gets)
    world.run(seconds)
    return sum(path.endswith("/pods") for path, _ in world.gets[before:])
