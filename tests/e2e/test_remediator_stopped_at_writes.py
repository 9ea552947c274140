"""A remediator that stops at each of its writes, before the server sees it and after it was done.

Whatever it was about to write or had just written, the next life ends the session as if nothing
had happened: one session, one eviction, the node back without a mark. The lease is not counted
among the writes: losing it is the elector's own matter.
"""

from __future__ import annotations

from itertools import count

import pytest

from hack.sim.cluster.clients.client import ApiError
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health_objects import XID_79
from hack.sim.cluster.resource import PODS
from tests.support.remediator.remediator_process import (
    UNMARKED,
    RemediatorProcess,
    leads,
    marks_of,
    prepare,
    running,
    sessions,
    steps,
)

AGENT = "^gpuward-remediator"
NO_LEASE = r"^(?!.*/leases)"
FEWEST_WRITES = 10
"""A session has at least so many: it is opened, four phases are stored and told, its node is marked
and unmarked, its pod evicted. Fewer rounds would mean that they end too early."""
MOST_WRITES = 60
AT_ONCE = """
mode: Enforce
budget:
  maxUnavailable: {percent: 100, atMost: 1000}
  maxNew: {count: 1000, window: 1m}
  perReason: {count: 1000, window: 1m}
drain: {settle: 0s, gangWindow: 0s, unmanaged: Evict, backoff: {min: 1s, max: 2s}}
release: {healthyFor: 0s}
"""
STEPS = ["Pending", "Marked", "Draining", "Quarantined", "Validating", "Released"]


async def one_session(cluster, one: RemediatorProcess, node: str, number: int, *, after: bool):
    """A session from fault to release, killed at the write of that number; whether it came to it."""
    await cluster.add_pod(f"on-{node}", node, terminationGracePeriodSeconds=0)
    faults = cluster.plane.faults
    stop = faults.at_write(number, one.kill, agent=AGENT, path=NO_LEASE, after=after)
    started_again = False

    async def until(check, what):
        async def looked():
            nonlocal started_again
            if stop.hits and not started_again:
                started_again = True
                one.start()
            return await check()

        return await cluster.until(looked, f"{what} (killed at write {number}, {after=})")

    async def ended():
        found = await sessions(cluster, node)
        status = found[-1].get("status", {}) if found else {}
        if status.get("phase") == "Quarantined" and not healthy:
            await cluster.health.healthy(node)
            healthy.append(node)
        return status.get("phase") == "Released"

    async def unmarked():
        return marks_of(await cluster.node(node)) == UNMARKED

    healthy: list[str] = []
    await cluster.health.fail(node, XID_79)
    await until(ended, "the session ended")
    await until(unmarked, "the mark gone")
    faults.clear()
    return started_again


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["unseen", "done"])
async def test_issue10_31_killed_at_each_write_of_a_session_it_ends_it_as_if_nothing_had_happened(
    cluster, tmp_path, after
):
    await prepare(cluster)
    names = [f"gpu-{number:04}" for number in range(MOST_WRITES)]
    await cluster.add(pool=Pool(name="gpu", nodes=MOST_WRITES))
    await cluster.health.all_healthy(names)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=AT_ONCE)
    rounds = 0
    with running(one):
        await leads(cluster, "one")
        for node, number in zip(names, count(1), strict=False):
            killed = await one_session(cluster, one, node, number, after=after)
            (session,) = await sessions(cluster, node)
            assert steps(session) == STEPS, f"killed at write {number}"
            evictions = [
                r
                for r in cluster.plane.requests.mutations
                if r.subresource == "eviction" and r.name == f"on-{node}" and r.code < 300
            ]
            # An eviction whose answer got lost is noted with what the client saw.
            assert len(evictions) <= 1, f"killed at write {number}"
            with pytest.raises(ApiError, match="not found"):
                await cluster.client.get(PODS, f"on-{node}", "default")
            if not killed:
                break
            rounds += 1
    print(f"killed at {rounds} writes, {'done' if after else 'unseen'}")  # noqa: T201 - a figure
    assert FEWEST_WRITES <= rounds < MOST_WRITES - 1
    assert not one.said("Traceback")
