"""A real remediator process on an API server that is slow and throttles."""

import asyncio
import re
import urllib.request

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import LEASES
from hack.sim.proxy.faults import Fault
from remediator.kube.api import IN_FLIGHT
from remediator.kube.clock import CallQueue
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

NODES = 12
PODS_PER_NODE = 3
POLICY = """
mode: Enforce
budget:
  maxUnavailable: {percent: 100, atMost: 100}
  maxNew: {count: 100, window: 1m}
  perReason: {count: 100, window: 1m}
drain: {settle: 0s, gangWindow: 0s, unmanaged: Evict}
"""
AGENT = "gpuward-remediator"
LISTS = r"/\w+$"


async def transitions(cluster) -> int:
    lease = await cluster.client.get(LEASES, AGENT, "gpuward")
    return int(lease["spec"]["leaseTransitions"])


def limits(port: int) -> dict[str, int]:
    """By queue, how many calls may be in flight."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    found = re.findall(r'gpuward_api_in_flight_limit\{queue="(\w+)"\} (\d+)', page)
    return {call_queue: int(limit) for call_queue, limit in found}


async def test_leadership_is_kept_and_evictions_go_on_while_lists_are_slow_and_refused(
    cluster, tmp_path
):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=NODES))
    names = [f"gpu-{number:04}" for number in range(NODES)]
    await cluster.health.all_healthy(names)
    for name in names:
        for number in range(PODS_PER_NODE):
            await cluster.add_pod(f"{name}-{number}", name, terminationGracePeriodSeconds=0)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=POLICY)
    with running(one):
        await leads(cluster, "one")
        before, faults = await transitions(cluster), cluster.plane.faults
        refused = faults.throttle(method="GET", path=r"/pods$", times=3)
        refused.agent = AGENT
        faults.add(
            Fault(method="GET", path=LISTS, agent=AGENT, times=None, action="delay", delay_s=0.5)
        )
        await cluster.health.all_fail(names, XID_79)
        for name in names:
            await phase(cluster, name, "Quarantined")
        limit = await asyncio.to_thread(limits, one.port)
        assert await transitions(cluster) == before
        assert not one.logged("not leading any more")
    assert refused.hits == 3
    evicted = cluster.plane.requests.count("create", "pods", "eviction", code=201)
    assert evicted == NODES * PODS_PER_NODE
    assert limit["read"] < IN_FLIGHT[CallQueue.READ], "the refusals lowered it"
    assert limit["evict"] == IN_FLIGHT[CallQueue.EVICT]
