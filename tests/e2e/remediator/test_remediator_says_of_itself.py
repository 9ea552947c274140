"""A leader that cannot act, or is in Shadow that nobody chose, says so where people look: on its
Lease, which it may still write, and which the commands of people read.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from hack.sim.cluster.clients.client import ApiError
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import LEASES
from tests.support.remediator.remediator_process import (
    REPOSITORY,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

NAMES = [f"gpu-000{number}" for number in range(4)]


@pytest.fixture
async def fleet(cluster):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=4))
    await cluster.health.all_healthy(NAMES)
    return cluster


async def kubectl(fleet, *words: str) -> str:
    """What a person is told, standard output and error together, in one line."""

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-m", "remediator.kubectl.cli", *words],
            cwd=REPOSITORY,
            env={**os.environ, "KUBECONFIG": str(fleet.plane.kubeconfig), "COLUMNS": "300"},
            capture_output=True,
            check=False,
        )
        return " ".join((done.stdout + done.stderr).decode().split())

    return await asyncio.to_thread(run)


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
        for command in ("fleet",):
            assert "a remediator leads and cannot act, since" in await kubectl(fleet, command)
        assert "FAIL leader: one leads and cannot act" in await kubectl(fleet, "preflight")
        lost.times = 0
        await phase(fleet, "gpu-0001", "Quarantined")
        await lease_says(fleet, "gpuward.io/unable", "")
