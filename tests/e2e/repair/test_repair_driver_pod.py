"""The driver's pod is known by who made it, not by a label that any tenant can set."""

from __future__ import annotations

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers.pods import is_ready, node_of
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.resource import DAEMON_SETS, PODS
from tests.e2e.repair.test_repair_by_objects import DRIVER, FABRIC, NODE
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    prepare,
    running,
)

RESTARTS = """
repair:
  mode: Auto
  steps: {RestartDriver: {adapter: GPUOperator, timeout: 5m}}
"""


async def daemon_set(cluster: Cluster, name: str, namespace: str) -> None:
    """One pod on every node, labelled as the driver's are."""
    await cluster.add_namespace(namespace)
    template = {
        "metadata": {"labels": DRIVER},
        "spec": {
            "containers": [{"name": "main", "image": "registry.example/driver:1"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    body: Object = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": DRIVER}, "template": template},
    }
    await cluster.client.create(DAEMON_SETS, body, namespace)


async def test_a_tenants_pod_with_the_drivers_label_is_not_taken_for_the_driver(
    cluster: Cluster,
) -> None:
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=2))
    await cluster.health.all_healthy([NODE, "gpu-0001"])
    await daemon_set(cluster, "nvidia-driver-daemonset", "gpu-operator")
    await daemon_set(cluster, "mine", "tenant")

    async def pod_of(namespace: str) -> str:
        pods, _ = await cluster.client.list(PODS, namespace)
        mine = [p for p in pods if node_of(p) == NODE and is_ready(p)]
        return str(mine[0]["metadata"]["uid"]) if mine else ""

    async def drivers() -> str:
        return await pod_of("gpu-operator")

    async def tenants() -> str:
        return await pod_of("tenant")

    async def another() -> bool:
        return await drivers() not in {"", before}

    before = await cluster.until(drivers, "the driver's pod")
    other = await cluster.until(tenants, "the tenant's pod")
    one = RemediatorProcess(
        cluster.plane.folder / "one", cluster.plane.kubeconfig, policy=QUICK + RESTARTS
    )
    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, FABRIC)
        await cluster.until(another, "another pod of the driver")
    assert await tenants() == other
    evicted = [
        (r.namespace, r.code)
        for r in cluster.plane.requests.mutations
        if r.subresource == "eviction" and r.agent.startswith("gpuward-remediator")
    ]
    assert evicted == [("gpu-operator", 201)]
