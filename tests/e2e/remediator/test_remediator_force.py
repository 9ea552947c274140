"""A real remediator that may force deletes no pod before the time that was promised to it."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.clients.client import ApiError
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import PODS
from rules.api.timestamps import parse_time
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

NODE = "gpu-0000"
PROMISED_S = 15
"""From the start of the drain."""
HELD = {"karpenter.sh/do-not-disrupt": f"{2 * PROMISED_S}s"}
"""It counts from the start of the pod, which is a little earlier."""
FORCES = QUICK.replace(
    "drain: {",
    "drain: {fatalTimeout: 2s, onTimeout: Force, unmanaged: Evict, ",
)
WAITS = f"pods: [{{selector: app=trains, strategy: WaitCompleted, maxWait: {PROMISED_S}s}}]\n"


@pytest.mark.parametrize(
    ("rules", "notes"),
    [
        pytest.param(WAITS, {}, id="WaitCompleted"),
        pytest.param("", HELD, id="do-not-disrupt"),
    ],
)
async def test_force_comes_after_the_promised_time_and_a_refused_eviction(
    cluster: Cluster, tmp_path: Any, rules: str, notes: dict[str, str]
) -> None:
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=2))
    await cluster.health.all_healthy([NODE, "gpu-0001"])
    await cluster.add_pod("trains", NODE, terminationGracePeriodSeconds=1)
    await cluster.client.patch(PODS, "trains", {"metadata": {"annotations": notes}}, "default")
    await cluster.add_budget("trains", minAvailable=1)
    await cluster.ready_pods("trains", 1)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=FORCES + rules)

    async def gone() -> bool:
        try:
            await cluster.client.get(PODS, "trains", "default")
        except ApiError as error:
            return error.code == 404
        return False

    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await phase(cluster, NODE, "Draining")
        await cluster.until(gone, "the pod forced off the node")
        session = await phase(cluster, NODE, "Quarantined")

    asked = [
        r
        for r in cluster.plane.requests.mutations
        if r.agent.startswith("gpuward-remediator") and r.resource == "pods"
    ]
    deletions = [r for r in asked if r.verb == "delete"]
    refused = [r for r in asked if r.subresource == "eviction" and r.code == 429]
    assert len(deletions) == 1
    assert refused, "asked politely first"
    assert refused[0].at < deletions[0].at
    (forced,) = [e for e in session["status"]["timeline"] if e["step"] == "Forced"]
    (begun,) = [e for e in session["status"]["timeline"] if e["step"] == "Draining"]
    began, ended = parse_time(begun["at"]), parse_time(forced["at"])
    assert began is not None
    assert ended is not None
    assert ended - began >= PROMISED_S - 1, "times are kept in whole seconds"
