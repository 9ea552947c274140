"""Room for a Degraded node's GPU pods elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from rules.drain.node_room import free_gpus, without_room
from tests.support.scenario.drain_objects import node, pod


def gpu_node(name: str, **spec: Any) -> Any:
    return node(
        name,
        spec=spec,
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "64"},
        },
    )


def gpu_pod(name: str, where: str, gpus: int, **status: Any) -> Any:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"nodeName": where, "containers": [{"name": "m", "resources": limits}]}
    return pod(name, spec=spec, status=status)


def test_what_is_free() -> None:
    nodes = [gpu_node("n0"), gpu_node("n1"), gpu_node("n2", unschedulable=True)]
    assert free_gpus(nodes, {"n0": 3, "n1": 9}) == {"n0": 5, "n1": 0}


@pytest.mark.parametrize(
    ("sizes", "free", "homeless"),
    [
        pytest.param([8], {"n1": 8}, [], id="fits"),
        pytest.param([8], {"n1": 4, "n2": 4}, ["p0"], id="pieces-do-not-add-up"),
        pytest.param([8], {"n0": 8}, ["p0"], id="not-on-itself"),
        pytest.param([2, 8], {"n1": 8, "n2": 2}, [], id="large-first"),
        pytest.param([4, 4, 4], {"n1": 8}, ["p2"], id="one-too-many"),
        pytest.param([0], {}, [], id="no-gpu-no-question"),
    ],
)
def test_who_finds_no_place(sizes: list[int], free: dict[str, int], homeless: list[str]) -> None:
    pods = [gpu_pod(f"p{index}", "n0", size) for index, size in enumerate(sizes)]
    assert without_room(pods, "n0", free) == {f"uid-{name}" for name in homeless}


def test_pods_on_their_way_take_their_place_first() -> None:
    pods = [gpu_pod("p0", "n0", 4)]
    assert without_room(pods, "n0", {"n1": 8}, [8]) == {"uid-p0"}
    assert without_room(pods, "n0", {"n1": 8}, [4, 16]) == set()
