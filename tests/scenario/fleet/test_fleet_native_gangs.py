"""Pods of a PodGroup or Workload of Kubernetes: drained together, or like ordinary pods."""

from typing import Any

import pytest

from remediator.kubectl.why_causes import pod_lines
from rules.repair.objects import ReadState
from tests.support.scenario.fleets import fleet
from tests.support.scenario.session_world import World

API = "scheduling.k8s.io"
GANG = {"gang": {"minCount": 2}}


def training(nodes: int = 4) -> World:
    """A fleet in which each of the first nodes runs one pod of the PodGroup train."""
    world = fleet(10)
    for index in range(nodes):
        add_member(world, index, schedulingGroup={"podGroupName": "train"})
    return world


def add_member(world: World, index: int, **spec: Any) -> None:
    trainer = ("example.com/v1", "Trainer", "train")
    world.add_pod(f"train-{index}", f"n{index}", owner=trainer, gpus=8, **spec)


def describe(world: World, version: str, resource: str = "podgroups", **spec: Any) -> None:
    """Serve the group in this version, with this object of it."""
    world.installed[API] = version
    path = f"/apis/{API}/{version}/namespaces/team-a/{resource}/train"
    world.objects[path] = {"metadata": {"name": "train", "namespace": "team-a"}, "spec": spec}


def reads(world: World, resource: str) -> int:
    return sum(f"/{resource}/" in path for path, _ in world.gets)


@pytest.mark.parametrize(
    ("version", "mode"),
    [("v1alpha2", "Pod"), ("v1alpha3", {"single": {}}), ("v1beta1", {"single": {}})],
)
def test_members_that_may_go_independently_are_evicted_like_ordinary_pods(
    version: str, mode: object
) -> None:
    world = training()
    describe(world, version, schedulingPolicy=GANG, disruptionMode=mode, priority=0)
    world.incident("n0")
    world.run(12)
    assert world.phase("n0") == "Quarantined"
    assert world.condition("n0", "Blocked") != "GangWindow"


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        ("v1alpha2", "PodGroup"),
        ("v1alpha3", {"all": {}}),
        ("v1beta1", {"all": {}}),
        ("v1beta1", {"some": [7]}),
        ("v1beta1", "Sometimes"),
        ("v1", {"single": {}}),
    ],
)
def test_a_group_that_goes_together_or_is_unknown_is_drained_in_one_window(
    version: str, mode: object
) -> None:
    world = training()
    describe(world, version, schedulingPolicy=GANG, disruptionMode=mode)
    world.incident("n0")
    world.run(12)
    assert world.condition("n0", "Blocked") == "GangWindow"
    world.incident("n1")
    world.run(50)
    assert [world.phase(name) for name in ("n0", "n1")] == ["Quarantined"] * 2


@pytest.mark.parametrize(
    ("policy", "blocked"), [({"basic": {}}, False), (GANG, True), ({"gang": 3}, True)]
)
def test_a_workload_of_1_35_decides_by_its_policy(policy: object, blocked: bool) -> None:
    world = fleet(10)
    for index in range(4):
        add_member(world, index, workloadRef={"name": "train", "podGroup": "workers"})
    groups = [{"name": "workers", "policy": policy}]
    describe(world, "v1alpha1", "workloads", podGroups=groups)
    world.incident("n0")
    world.run(12)
    assert (world.condition("n0", "Blocked") == "GangWindow") is blocked
    if blocked:
        assert "Workload team-a/train/workers" in world.message("n0")


@pytest.mark.parametrize("state", [ReadState.FORBIDDEN, ReadState.UNREAD, None])
def test_a_group_that_cannot_be_read_is_a_gang(state: ReadState | None) -> None:
    world = training()
    describe(world, "v1beta1", schedulingPolicy=GANG, disruptionMode={"single": {}})
    if state is None:
        world.objects.clear()
    else:
        world.unreadable["podgroups"] = state
    world.incident("n0")
    world.run(12)
    assert world.condition("n0", "Blocked") == "GangWindow"
    world.run_until("n0", "Quarantined", limit=40)


def test_nothing_is_read_where_the_group_is_not_served_or_no_pod_names_one() -> None:
    world = training()
    world.incident("n0")
    world.run(12)
    assert reads(world, "podgroups") == 0
    assert world.condition("n0", "Blocked") == "GangWindow"
    world = fleet(10)
    world.add_pod("solo", "n0", gpus=8)
    describe(world, "v1beta1", schedulingPolicy=GANG)
    world.incident("n0")
    world.run(12)
    assert reads(world, "podgroups") == 0


def test_a_group_is_read_once_for_all_its_nodes() -> None:
    world = training()
    describe(world, "v1beta1", schedulingPolicy=GANG, disruptionMode={"all": {}})
    for index in range(4):
        world.incident(f"n{index}")
    world.run(30)
    assert reads(world, "podgroups") == 1


@pytest.mark.parametrize(("members", "kept"), [(3, True), (2, False)])
def test_a_gang_that_keeps_its_min_count_elsewhere_is_reported(members: int, kept: bool) -> None:
    world = training(members)
    describe(world, "v1beta1", schedulingPolicy=GANG, disruptionMode={"all": {}})
    world.incident("n0")
    world.run(12)
    assert ("2 of its pods run elsewhere, minCount is 2" in world.message("n0")) is kept
    world.run_until("n0", "Quarantined", limit=60)
    (session,) = world.sessions("n0")
    lines = list(pod_lines(session))
    assert "gang: PodGroup team-a/train" in lines
    note = "PodGroup team-a/train: 2 of its pods run elsewhere, minCount is 2"
    assert (f"when the drain began: {note}" in lines) is kept
