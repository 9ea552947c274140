"""A request is taken back from its object when the policy no longer has its adapter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from tests.e2e.repair.test_repair_by_objects import NODE, REBOOT, REBOOTS, define
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    QUARANTINES,
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

RELEASE = {"spec": {"release": {"by": "ada", "reason": "repaired by hand"}}}


def with_adapter(name: str) -> str:
    """A policy whose only adapter has this name and asks for a reboot."""
    repair: dict[str, Any] = {
        "mode": "Auto",
        "adapters": {name: REBOOT},
        "steps": {"RestartNode": {"adapter": name, "timeout": "5m"}},
    }
    return f"\nrepair: {json.dumps(repair)}\n"


WITHOUT = "\nrepair: {mode: Off}\n"


@pytest.mark.parametrize(
    "changed",
    [pytest.param(with_adapter("New"), id="renamed"), pytest.param(WITHOUT, id="removed")],
)
async def test_a_request_is_taken_back_when_the_policy_lost_its_adapter(
    cluster: Cluster, changed: str
) -> None:
    await prepare(cluster)
    await define(cluster, REBOOTS.group)
    await cluster.add(pool=Pool(name="gpu", nodes=3))
    await cluster.health.all_healthy([f"gpu-000{n}" for n in range(3)])
    one = RemediatorProcess(
        cluster.plane.folder / "one",
        cluster.plane.kubeconfig,
        policy=QUICK + with_adapter("Old"),
    )

    async def kept() -> str:
        return await cluster.health.keep_evidence(NODE)

    async def asked() -> bool:
        found, _ = await cluster.client.list(REBOOTS)
        return bool(found)

    async def taken_back() -> bool:
        return not await asked()

    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await cluster.until(kept, "the mark that an agent keeps evidence for")
        await cluster.until(asked, "the request")
        one.new_policy(QUICK + changed)
        one.kill()
        one.start()
        session = (await phase(cluster, NODE, "Repairing"))["metadata"]["name"]
        await cluster.health.healthy(NODE)
        await cluster.client.patch(QUARANTINES, session, RELEASE)
        await phase(cluster, NODE, "Released")
        await cluster.until(taken_back, "the request taken off")
