"""A note that a node wrote about itself makes no out-of-service taint ours."""

from __future__ import annotations

from hack.sim.cluster.clients.http_client import HttpClient
from hack.sim.cluster.resource import NODES
from rules.api.names import ANNOTATION_OUT_OF_SERVICE, LABEL_QUARANTINE, TAINT_OUT_OF_SERVICE
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    prepare,
    running,
)

NODE = "gpu-0000"
TAINT = {"key": TAINT_OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


async def test_another_operators_taint_stays_whatever_the_node_wrote_of_it(
    cluster: Cluster,
) -> None:
    await prepare(cluster)
    await cluster.add_nodes(NODE, "gpu-0001")
    await cluster.settled(NODE, "gpu-0001")
    await cluster.health.all_healthy([NODE, "gpu-0001"])
    kubeconfig = cluster.plane.straight_kubeconfig
    async with HttpClient.from_kubeconfig(kubeconfig, agent="fence-agents/1.0") as other:
        await other.patch(NODES, NODE, {"spec": {"taints": [TAINT]}})
    async with HttpClient.from_kubeconfig(kubeconfig, agent="kubelet/v1.36.2") as kubelet:
        wrote = {"annotations": {ANNOTATION_OUT_OF_SERVICE: "gpu-0000-made-up-powercycle-1"}}
        await kubelet.patch(NODES, NODE, {"metadata": wrote}, subresource="status")
    stray = {LABEL_QUARANTINE: "quarantined"}
    await cluster.client.patch(NODES, NODE, {"metadata": {"labels": stray}})

    async def looked_at() -> bool:
        return LABEL_QUARANTINE not in (await cluster.node(NODE))["metadata"]["labels"]

    with running(RemediatorProcess(cluster.plane.folder / "one", cluster.plane.kubeconfig)):
        await leads(cluster, "one")
        await cluster.until(looked_at, "what is certainly ours taken off, last of all")
    assert TAINT["key"] in [t["key"] for t in (await cluster.node(NODE))["spec"].get("taints", ())]
