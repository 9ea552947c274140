"""A leader that cannot act says so on its Lease, which it may still write and commands read."""

from __future__ import annotations

import asyncio

from hack.sim.cluster.clients.client import ApiError
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import LEASES
from tests.support.remediator.kubectl_cluster import run_command
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    phase,
    running,
)


async def kubectl(fleet, *words: str) -> str:
    """What a person is told, standard output and error together, in one line."""
    place = ("--kubeconfig", str(fleet.plane.kubeconfig))
    _, out, err = await asyncio.to_thread(run_command, *words, *place)
    return " ".join((out + err).split())


async def lease_says(fleet, key: str, words: str) -> None:
    """Wait until its Lease says so; "" for nothing."""

    async def said() -> bool:
        lease = await fleet.client.get(LEASES, "gpuward-remediator", "gpuward")
        found = (lease["metadata"].get("annotations") or {}).get(key, "")
        return words in found if words else not found

    await fleet.until(said, f"{key} of the Lease: {words or 'nothing'}")


async def test_a_leader_that_lost_its_rights_is_told_of_by_why_fleet_and_list(fleet, tmp_path):
    forbidden = ApiError(403, "Forbidden", 'cannot create resource "gpuquarantines"')
    with running(RemediatorProcess(tmp_path, fleet.plane.kubeconfig)):
        await leads(fleet, "one")
        lost = fleet.plane.faults.fail(
            forbidden,
            method="POST",
            path="/gpuquarantines",
            agent="gpuward-remediator",
            times=None,
        )
        await fleet.health.fail("gpu-0001", XID_79)
        await lease_says(fleet, "gpuward.io/unable", "the remediator may not open a session")
        why = await kubectl(fleet, "why", "gpu-0001")
        assert "nothing while the remediator that leads cannot act, since" in why
        assert "the remediator may not open a session for the node (403" in why
        assert "once it can act: a session opens within seconds" in why
        assert "a remediator leads and cannot act, since" in await kubectl(fleet, "fleet")
        assert "FAIL leader: one leads and cannot act" in await kubectl(fleet, "preflight")
        lost.times = 0
        await phase(fleet, "gpu-0001", "Quarantined")
        await lease_says(fleet, "gpuward.io/unable", "")
