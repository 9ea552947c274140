"""Fleets as descriptions: names, racks, manifests, sizes."""

from __future__ import annotations

from hack.sim.cluster.clients.inprocess import InProcessClient
from hack.sim.cluster.controllers.nodes.node_objects import boot_id, node_object
from hack.sim.cluster.fleet.fleet import (
    DCGM_EXPORTER,
    Fleet,
    Gang,
    Pool,
    Serving,
)
from hack.sim.cluster.fleet.fleet_load import load
from hack.sim.cluster.resource import PODS
from hack.sim.cluster.store.engine import Engine
from tests.support.cluster.controller_objects import NOW


def test_a_node_looks_like_a_gpu_node() -> None:
    node = node_object("n", now=NOW, gpus=4, product="NVIDIA-L40S")
    assert node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-L40S"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["status"]["nodeInfo"]["bootID"] == boot_id("n", 0) != boot_id("n", 1)


def test_a_node_without_gpus_says_nothing_of_them() -> None:
    node = node_object("n", now=NOW, gpus=0)
    assert not [key for key in node["metadata"]["labels"] if key.startswith("nvidia.com/")]
    assert "nvidia.com/gpu" not in node["status"]["capacity"]


async def test_a_loaded_fleet_never_overcommits_a_node() -> None:
    engine = Engine()
    client = InProcessClient(engine)
    fleet = Fleet(
        pools=(Pool(name="gpu", nodes=3, gpus=8),),
        workloads=(
            DCGM_EXPORTER,
            Gang(name="llm", pods=2, pool="gpu", gpus=8),
            Serving(name="web", replicas=10, pool="gpu", gpus=1),
        ),
    )
    await load(client, fleet, NOW, bulk=engine.load)
    pods, _ = await client.list(PODS)
    taken: dict[str, int] = {}
    for pod in pods:
        limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
        node = pod["spec"].get("nodeName", "")
        taken[node] = taken.get(node, 0) + int(limits.get("nvidia.com/gpu", 0))
    assert {name: gpus for name, gpus in taken.items() if name} == {
        "gpu-0000": 8,
        "gpu-0001": 8,
        "gpu-0002": 8,
    }
    assert taken[""] == 2, "two of ten serving pods fit nowhere and wait"
