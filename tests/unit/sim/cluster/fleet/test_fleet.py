"""Fleets as descriptions: names, racks, manifests, sizes."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.clients.inprocess import InProcessClient
from hack.sim.cluster.controllers.nodes.node_objects import boot_id, node_object
from hack.sim.cluster.fleet.fleet import (
    DCGM_EXPORTER,
    RACK_LABEL,
    Budget,
    Daemon,
    Fleet,
    Gang,
    Pool,
    Serving,
    Workload,
    idle_fleet,
    mixed_fleet,
)
from hack.sim.cluster.fleet.fleet_load import load, pool_nodes
from hack.sim.cluster.fleet.fleet_workloads import budget_manifest, manifest
from hack.sim.cluster.resource import NODES, PODS
from hack.sim.cluster.store.engine import Engine
from tests.support.cluster.controller_objects import NOW


def test_nodes_fill_racks_in_order() -> None:
    nodes = pool_nodes(Pool(name="gpu", nodes=5, rack_size=2, zones=("a", "b")), NOW)
    labels = [node["metadata"]["labels"] for node in nodes]
    assert [entry[RACK_LABEL] for entry in labels] == [
        "gpu-rack-000",
        "gpu-rack-000",
        "gpu-rack-001",
        "gpu-rack-001",
        "gpu-rack-002",
    ]
    assert [entry["topology.kubernetes.io/zone"] for entry in labels] == ["a", "a", "b", "b", "a"]


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


@pytest.mark.parametrize(
    ("workload", "kind"),
    [
        pytest.param(Gang(name="w", pods=2, pool="p"), "Job", id="gang"),
        pytest.param(Serving(name="w", replicas=2, pool="p"), "Deployment", id="serving"),
        pytest.param(Daemon(name="w", pools=("p",)), "DaemonSet", id="daemon"),
    ],
)
def test_what_a_workload_becomes(workload: Workload, kind: str) -> None:
    body = manifest(workload)
    assert (body["kind"], body["metadata"]["name"]) == (kind, "w")
    assert body["spec"]["template"]["metadata"]["labels"] == {"app": "w"}
    assert budget_manifest(workload) is None


@pytest.mark.parametrize(
    ("budget", "want"),
    [
        pytest.param(Budget(min_available=1), {"minAvailable": 1}, id="minimum"),
        pytest.param(Budget(max_unavailable=0), {"maxUnavailable": 0}, id="none may go"),
        pytest.param(
            Budget(max_unavailable="10%", unhealthy_pods="AlwaysAllow"),
            {"maxUnavailable": "10%", "unhealthyPodEvictionPolicy": "AlwaysAllow"},
            id="with a policy for unhealthy pods",
        ),
    ],
)
def test_budgets(budget: Budget, want: dict[str, Any]) -> None:
    body = budget_manifest(Serving(name="w", replicas=2, pool="p", budget=budget))
    assert body is not None
    assert body["spec"] == {"selector": {"matchLabels": {"app": "w"}}, **want}


def test_a_mixed_fleet_of_1500_nodes_describes_12000_pods() -> None:
    fleet = mixed_fleet(1500)
    assert len(fleet.node_names()) == 1500
    pods = 0
    for workload in fleet.workloads:
        match workload:
            case Gang():
                pods += workload.pods
            case Serving():
                pods += workload.replicas
            case Daemon():
                pods += 1500
    assert pods >= 12_000


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


async def test_idle_nodes_load_in_bulk() -> None:
    engine = Engine()
    client = InProcessClient(engine)
    await load(client, idle_fleet(300), NOW, bulk=engine.load)
    nodes, _ = await client.list(NODES)
    assert len(nodes) == 300
    assert all(node["status"]["conditions"] for node in nodes)
