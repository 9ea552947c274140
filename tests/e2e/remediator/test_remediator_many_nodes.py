"""Many nodes at once with a real process: rates hold, blocked nodes block no other, caches may
lag.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import psutil
import pytest

from hack.sim.cluster.controllers.pods import node_of
from hack.sim.cluster.fleet.fleet import Budget, Pool, Serving
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import NODES
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
    sessions,
)

SICK = 100
PODS_PER_NODE = 10
RATE = 100
ALL_AT_ONCE = f"""
mode: Enforce
budget:
  maxUnavailable: {{percent: 100, atMost: 1000}}
  maxNew: {{count: 1000, window: 1m}}
  perReason: {{count: 1000, window: 1m}}
drain: {{settle: 0s, gangWindow: 0s, unmanaged: Evict}}
limits: {{nodesDraining: {SICK}}}
"""


def drains_begun(one: RemediatorProcess) -> list[float]:
    """When it knew of a drain that it is on record: nobody is evicted before that."""
    return [
        datetime.fromisoformat(line["timestamp"]).timestamp()
        for line in one.lines()
        if (line.get("kind"), line.get("phase")) == ("WriteSessionStatus", "Draining")
    ]


@pytest.mark.slow
async def test_s28_a_hundred_nodes_keep_to_the_rate_and_a_blocked_one_holds_up_no_other(
    cluster, tmp_path
):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=SICK))
    names = [f"gpu-{number:04}" for number in range(SICK)]
    await cluster.health.all_healthy(names)
    await cluster.add(
        Serving(name="solo", replicas=1, pool="gpu", gpus=8, budget=Budget(min_available=1))
    )
    blocked = node_of((await cluster.ready_pods("solo", 1))[0])
    for name in names:
        for number in range(PODS_PER_NODE):
            await cluster.add_pod(f"{name}-{number}", name, terminationGracePeriodSeconds=0)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=ALL_AT_ONCE)
    with running(one):
        await leads(cluster, "one")
        for name in names:
            await cluster.health.fail(name, XID_79)
        for name in names:
            if name != blocked:
                await phase(cluster, name, "Quarantined")
        used = psutil.Process(one.pid).memory_info().rss
        session = await phase(cluster, blocked, "Draining")
    assert session["status"]["drain"]["blocked"][0]["pdb"] == "serving/solo"
    sent = [r.at for r in cluster.plane.requests.all if r.subresource == "eviction"]
    assert len(sent) >= (SICK - 1) * PODS_PER_NODE
    # The server's own stalls bunch calls up, the first ones too: so over the whole run, from the
    # moment when the first drain was on record by the remediator's own log.
    began = min(drains_begun(one))
    assert min(sent) >= began
    assert len(sent) <= (max(sent) - began) * RATE * 1.1
    assert used < 300e6


async def test_s44_a_drain_whose_watches_fell_silent_still_sees_what_people_say(cluster, tmp_path):
    """What decides over harm is read, not remembered: the pod's time ends while nothing is
    heard.
    """
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=4))
    await cluster.health.all_healthy([f"gpu-000{n}" for n in range(4)])
    await cluster.add(Serving(name="web", replicas=2, pool="gpu", gpus=8))
    node = node_of((await cluster.ready_pods("web", 2))[0])
    plane = cluster.plane
    evicted = lambda: plane.requests.count(subresource="eviction", code=201)  # noqa: E731

    def waits(longest: str) -> str:
        rule = f"{{selector: app=web, strategy: WaitCompleted, maxWait: {longest}}}"
        return f"{QUICK}pods: [{rule}]\n"

    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=waits("1h"))
    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(node, XID_79)
        await phase(cluster, node, "Draining")
        plane.faults.pause_watches()
        opt_out = {"metadata": {"labels": {"gpuward.io/opt-out": "true"}}}
        await cluster.client.patch(NODES, node, opt_out)
        one.new_policy(waits("1s"))
        await cluster.until(lambda: asyncio.to_thread(one.said, "EvictPod"), "a try to evict")
        await asyncio.sleep(1)
        assert evicted() == 0
        plane.faults.resume_watches()

        async def paused():
            found = await sessions(cluster, node)
            return "opt-out" in found[-1]["status"]["message"]

        await cluster.until(paused, "the opt-out said")
        assert evicted() == 0
        await cluster.client.patch(
            NODES, node, {"metadata": {"labels": {"gpuward.io/opt-out": None}}}
        )
        await phase(cluster, node, "Quarantined")
        assert evicted() == 1
