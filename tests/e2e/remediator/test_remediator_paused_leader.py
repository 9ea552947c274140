"""A leader that stops in the middle (a paused machine, a long stall) and wakes up deposed."""

from __future__ import annotations

import asyncio
import time

import pytest

from hack.sim.cluster.controllers.pods import node_of
from hack.sim.cluster.fleet.fleet import Pool, Serving
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import NODES, POD_DISRUPTION_BUDGETS
from hack.sim.proxy.layer import Request
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    may_do_everything,
    phase,
    prepare,
    running,
    sessions,
)

NAMES = [f"gpu-000{n}" for n in range(6)]
WEB = Serving(name="web", replicas=3, pool="gpu", gpus=8)
AFTER_THAW_S = 3.0


@pytest.mark.slow
async def test_a_paused_leader_writes_nothing_after_the_other_took_over(secure_cluster, tmp_path):
    """It wakes up with evictions that are due, marks to set and a lease it believes to hold."""
    cluster = secure_cluster
    await prepare(cluster)
    await may_do_everything(cluster, "one", "two")
    await cluster.add(pool=Pool(name="gpu", nodes=6))
    await cluster.health.all_healthy(NAMES)
    await cluster.add(WEB)
    pods = await cluster.ready_pods("web", 3)
    await cluster.add_budget("web", "serving", minAvailable=3)
    node = node_of(pods[0])
    free = next(name for name in NAMES if name not in {node_of(pod) for pod in pods})
    one, two = [
        RemediatorProcess(
            tmp_path, await cluster.plane.service_account_kubeconfig("gpuward", name), name=name
        )
        for name in ("one", "two")
    ]
    requests = cluster.plane.requests
    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(node, XID_79)
        await phase(cluster, node, "Draining")
        with running(two):
            one.freeze()
            try:
                await cluster.health.fail(free, XID_79)
                await leads(cluster, "two")
                taken_over_at = time.time()
                # What the old leader would love to do when it wakes up.
                budget = {"spec": {"minAvailable": 1}}
                await cluster.client.patch(POD_DISRUPTION_BUDGETS, "web", budget, "serving")
                await cluster.client.patch(NODES, free, {"metadata": {"labels": {"x": "y"}}})
            finally:
                one.thaw()
            await phase(cluster, node, "Quarantined")
            await phase(cluster, free, "Quarantined")

            async def awake() -> list[Request]:
                since = [r for r in requests.all if r.at >= taken_over_at]
                return [r for r in since if r.user.endswith(":one")]

            await cluster.until(awake, "the old leader awake, and looking")
            await asyncio.sleep(AFTER_THAW_S)
            late = [
                (r.verb, r.resource, r.subresource, r.name) for r in await awake() if r.is_mutation
            ]
            assert late == [], "a deposed leader wrote"
            assert any(r.user.endswith(":two") for r in requests.mutations)
    for name in (node, free):
        assert len(await sessions(cluster, name)) == 1
