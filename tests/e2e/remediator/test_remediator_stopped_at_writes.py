"""A remediator that stops at each of its writes, before the server sees it and after it was done.

Whatever it was about to write or had just written, the next life ends the session as if nothing
had happened: one session, one eviction, the node back without a taint and cordon. The lease is not
counted among the writes: losing it is the elector's own matter.
"""

import asyncio
import re
import time
from collections.abc import Callable

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import PODS
from rules.api.names import DRAIN_CONDITIONS
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    UNTAINTED,
    RemediatorProcess,
    leads,
    may_do_everything,
    prepare,
    running,
    sessions,
    steps,
    taints_of,
)

AGENT = "^gpuward-remediator"
NO_LEASE = r"^(?!.*/leases)"
FREEZE_AT = (
    "/gpuquarantines$",
    "/nodes/[^/]+$",
    "/eviction$",
    "/gpuquarantines/[^/]+/status$",
)
"""Opening a session, its taint and cordon, an eviction, its record."""
AWAKE_S = 2.0
FEWEST_WRITES = 10
"""A session has at least this many writes; fewer rounds mean that they end too early."""
MOST_WRITES = 60
AT_ONCE = """
mode: Enforce
budget:
  maxUnavailable: {percent: 100, atMost: 1000}
  maxNew: {count: 1000, window: 1m}
  perReason: {count: 1000, window: 1m}
drain: {settle: 0s, gangWindow: 0s, unmanaged: Evict}
release: {healthyFor: 0s}
"""
NOTIFIES = AT_ONCE.replace(
    "unmanaged: Evict", "unmanaged: Evict, notice: 4s, nodeConditions: true"
)
STEPS = ["Pending", "Marked", "Draining", "Quarantined", "Validating", "Released"]


async def one_session(
    cluster: Cluster, node: str, revive: Callable[[], None] = lambda: None
) -> Object:
    """A session from fault to release with a pod in between; `revive` is called all the while."""
    await cluster.add_pod(f"on-{node}", node, terminationGracePeriodSeconds=0)
    await cluster.health.fail(node, XID_79)
    sick = True

    async def ended() -> bool:
        nonlocal sick
        revive()
        found = await sessions(cluster, node)
        phase = found[-1].get("status", {}).get("phase") if found else None
        if phase == "Quarantined" and sick:
            sick = False
            await cluster.health.healthy(node)
        return phase == "Released" and taints_of(await cluster.node(node)) == UNTAINTED

    await cluster.until(ended, f"the session of {node} over and the taint and cordon gone")
    (session,) = await sessions(cluster, node)
    return session


async def as_if_nothing_had_happened(cluster: Cluster, session: Object) -> None:
    node = session["spec"]["nodeName"]
    assert steps(session) == STEPS
    evictions = [
        r
        for r in cluster.plane.requests.mutations
        if r.subresource == "eviction" and r.name == f"on-{node}" and r.code < 300
    ]
    assert len(evictions) <= 1, "0: its answer was lost"
    with pytest.raises(ApiError, match="not found"):
        await cluster.client.get(PODS, f"on-{node}", "default")


@pytest.mark.slow
@pytest.mark.parametrize("policy", [AT_ONCE, NOTIFIES], ids=["at once", "notifies"])
@pytest.mark.parametrize("after", [False, True], ids=["not sent", "done"])
async def test_killed_at_each_write_of_a_session_it_ends_it_as_if_nothing_had_happened(
    cluster, tmp_path, after, policy
):
    await prepare(cluster)
    names = [f"gpu-{number:04}" for number in range(MOST_WRITES)]
    await cluster.add(pool=Pool(name="gpu", nodes=MOST_WRITES))
    await cluster.health.all_healthy(names)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=policy)
    faults, killed = cluster.plane.faults, 0
    with running(one):
        await leads(cluster, "one")
        for number, node in enumerate(names, start=1):
            stop = faults.at_write(number, one.kill, agent=AGENT, path=NO_LEASE, after=after)
            session = await one_session(cluster, node, one.revive)
            await as_if_nothing_had_happened(cluster, session)

            async def withdrawn(node=node) -> bool:
                one.revive()
                found = (await cluster.node(node))["status"]["conditions"]
                kinds = [c["type"] for c in found if c["status"] == "True"]
                return not set(kinds) & set(DRAIN_CONDITIONS)

            await cluster.until(withdrawn, f"no drain reported on {node}")
            faults.clear()
            if not stop.hits:
                break
            killed = number
    assert FEWEST_WRITES <= killed < MOST_WRITES - 1
    ours = [r for r in cluster.plane.requests.mutations if re.match(AGENT, r.agent)]
    reported = {r.resource for r in ours if r.subresource == "status" and r.code < 300}
    assert reported >= {"pods", "nodes"} if policy == NOTIFIES else "pods" not in reported
    assert not one.logged("Traceback")


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["not sent", "done"])
async def test_a_leader_frozen_at_a_write_writes_nothing_when_it_wakes_up_deposed(
    secure_cluster, tmp_path, after
):
    cluster = secure_cluster
    await prepare(cluster)
    await may_do_everything(cluster, "one", "two")
    await cluster.add(pool=Pool(name="gpu", nodes=8))
    await cluster.health.all_healthy([f"gpu-{number:04}" for number in range(8)])
    leader, standby = [
        RemediatorProcess(
            tmp_path,
            await cluster.plane.service_account_kubeconfig("gpuward", name),
            name=name,
            policy=AT_ONCE,
        )
        for name in ("one", "two")
    ]
    faults, requests = cluster.plane.faults, cluster.plane.requests
    with running(leader):
        await leads(cluster, leader.name)
        with running(standby):
            for number, path in enumerate(FREEZE_AT):
                stop = faults.at_write(1, leader.freeze, agent=AGENT, path=path, after=after)
                session = await one_session(cluster, f"gpu-{number:04}")
                await as_if_nothing_had_happened(cluster, session)
                assert stop.hits == 1
                woken_at = time.time()
                leader.thaw()

                def of_the_old(name=leader.name, since=woken_at):
                    return [
                        r for r in requests.all if r.user.endswith(f":{name}") and r.at >= since
                    ]

                async def looks(seen=of_the_old):
                    return seen()

                await cluster.until(looks, "the old leader awake")
                await asyncio.sleep(AWAKE_S)
                late = [(r.verb, r.path) for r in of_the_old() if r.is_mutation]
                assert late == [], f"a deposed leader wrote, frozen at {path}"
                faults.clear()
                leader.kill()
                leader.start()
                leader, standby = standby, leader
