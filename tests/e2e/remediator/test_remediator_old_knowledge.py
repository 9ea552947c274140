"""A real remediator whose knowledge is old: slow reads, clocks that differ, others' leases."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS, XID_79
from hack.sim.cluster.resource import LEASES, PODS
from hack.sim.proxy.faults import Fault
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
EVICTS = QUICK.replace("drain: {settle: 1s", "drain: {unmanaged: Evict, settle: 1s")
SLOW_S = 4.0
BEHIND = timedelta(minutes=40)


@pytest.fixture
async def fleet(cluster: Cluster) -> Cluster:
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=2))
    await cluster.health.all_healthy([NODE, "gpu-0001"])
    return cluster


async def test_a_pod_made_again_under_its_name_during_a_slow_read_is_evicted_once(
    fleet: Cluster, tmp_path: Any
) -> None:
    await fleet.add_pod("db-0", NODE, terminationGracePeriodSeconds=1)
    await fleet.add_budget("db-0", minAvailable=0)
    (old,) = await fleet.ready_pods("db-0", 1)
    one = RemediatorProcess(tmp_path, fleet.plane.kubeconfig, policy=EVICTS)

    def evictions() -> list[Any]:
        return [r for r in fleet.plane.requests.mutations if r.subresource == "eviction"]

    with running(one):
        await leads(fleet, "one")
        # A mark needs no read of the node: the first one is that before the eviction.
        slow = fleet.plane.faults.add(
            Fault(method="GET", path=f"/nodes/{NODE}$", action="delay", delay_s=SLOW_S)
        )
        await fleet.health.fail(NODE, XID_79)

        async def waits() -> bool:
            return bool(slow.hits)

        await fleet.until(waits, "a slow read of the node")
        await phase(fleet, NODE, "Draining")
        assert not evictions()
        await fleet.client.delete(PODS, "db-0", "default", grace=0)
        await fleet.gone(PODS, "db-0", "default")
        await fleet.add_pod("db-0", NODE, terminationGracePeriodSeconds=1)
        (new,) = await fleet.ready_pods("db-0", 1)
        await phase(fleet, NODE, "Quarantined")

    assert old["metadata"]["uid"] != new["metadata"]["uid"]
    asked = [json.loads(r.body)["deleteOptions"]["preconditions"]["uid"] for r in evictions()]
    assert set(asked) == {new["metadata"]["uid"]}, "nothing is asked about the pod that is gone"


async def test_a_fatal_fault_of_a_node_whose_clock_is_behind_gets_its_session(
    fleet: Cluster, tmp_path: Any
) -> None:
    one = RemediatorProcess(tmp_path, fleet.plane.kubeconfig)
    with running(one):
        await leads(fleet, "one")
        await fleet.health.fail(NODE, XID_79)
        health = await fleet.client.get(GPU_NODE_HEALTHS, NODE)
        assert "pod" not in health["status"]["publisher"]
        then = (datetime.now(UTC) - BEHIND).strftime("%Y-%m-%dT%H:%M:%SZ")
        health["status"]["publisher"]["heartbeat"] = health["status"]["observedAt"] = then
        await fleet.client.update_status(GPU_NODE_HEALTHS, health)
        await phase(fleet, NODE, "Quarantined")


@pytest.mark.slow  # the Lease is taken after a minute
async def test_a_lease_that_somebody_took_for_a_day_is_named_and_taken_when_unrenewed(
    fleet: Cluster, tmp_path: Any
) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "gpuward-remediator"},
        "spec": {
            "holderIdentity": "somebody-else",
            "leaseDurationSeconds": 86400,
            "acquireTime": now,
            "renewTime": now,
        },
    }
    await fleet.client.create(LEASES, lease, "gpuward")
    one = RemediatorProcess(tmp_path, fleet.plane.kubeconfig)
    with running(one):

        async def named() -> bool:
            return one.said("somebody-else")

        await fleet.until(named, "who holds the lease")

        await leads_within(fleet, "one", looks=3)


async def leads_within(cluster: Cluster, name: str, looks: int) -> None:
    """Wait for the lease up to so many times as long as for anything else."""
    for left in reversed(range(looks)):
        try:
            await leads(cluster, name)
        except AssertionError:
            if not left:
                raise
        else:
            return
