"""A real remediator process follows the Node condition of a detector that is not ours."""

from __future__ import annotations

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.resource import NODES
from rules.api.names import TAINT_QUARANTINE
from rules.api.timestamps import format_time
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

EXTERNAL = """
external:
  - match: condition GpuBroken=True
    for: 1s
    reason: SiteGPUBroken
    severity: Fatal
    level: Drain
"""


async def test_a_foreign_condition_takes_a_node_and_gives_it_back(cluster, tmp_path):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=3))
    nodes = [f"gpu-000{n}" for n in range(3)]
    await cluster.health.all_healthy(nodes)
    node = nodes[0]

    async def becomes(status: str, at: float) -> None:
        patch = {
            "type": "GpuBroken", "status": status, "lastTransitionTime": format_time(at),
            "reason": "Smoke", "message": "it smells\u202e",
        }  # fmt: skip
        await cluster.client.patch(
            NODES,
            node,
            {"status": {"conditions": [patch]}},
            subresource="status",
            content_type="application/strategic-merge-patch+json",
        )

    with running(RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=QUICK + EXTERNAL)):
        await leads(cluster, "one")
        await becomes("True", 1.0)
        session = await phase(cluster, node, "Quarantined")
        (cause,) = session["spec"]["causes"]
        assert (cause["source"], cause["reason"]) == ("External", "SiteGPUBroken")
        assert cause["message"].endswith("it smells\\u202e")
        await becomes("False", 2.0)
        await phase(cluster, node, "Released")

        async def unmarked() -> bool:
            taints = (await cluster.node(node))["spec"].get("taints") or ()
            return all(taint["key"] != TAINT_QUARANTINE for taint in taints)

        await cluster.until(unmarked, "the mark gone")
