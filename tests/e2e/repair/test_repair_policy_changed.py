"""A request is taken back from its object when the policy no longer has its adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.fleet.fleet_health_objects import XID_79
from tests.e2e.repair.test_repair_by_objects import HOSTS, KEY, NODE, host_notes, standing
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    QUARANTINES,
    QUICK,
    leads,
    phase,
    running,
)

SHIPPED = Path(__file__).parents[3] / "rules" / "data" / "adapters.json"
POWER_CYCLE = json.loads(SHIPPED.read_text())["Metal3"]["steps"]["PowerCycle"]
RELEASE = {"spec": {"release": {"by": "ada", "reason": "repaired by hand"}}}


def with_adapter(name: str) -> str:
    """A policy whose only adapter has this name and asks for a power cycle."""
    repair: dict[str, Any] = {
        "mode": "Auto",
        "adapters": {name: {"steps": {"PowerCycle": POWER_CYCLE}}},
        "steps": {"PowerCycle": {"adapter": name, "timeout": "5m"}},
    }
    return f"\nrepair: {json.dumps(repair)}\n"


WITHOUT = "\nrepair: {mode: Auto}\n"


@pytest.mark.parametrize(
    "changed",
    [pytest.param(with_adapter("New"), id="renamed"), pytest.param(WITHOUT, id="removed")],
)
async def test_a_request_is_taken_back_when_the_policy_lost_its_adapter(
    secure_cluster: Cluster, changed: str
) -> None:
    cluster = secure_cluster
    one = await standing(cluster, ("repair-metal3",), with_adapter("Old"))
    unpaused = {"metadata": {"annotations": {"baremetalhost.metal3.io/paused": None}}}
    await cluster.client.patch(HOSTS, "host-0", unpaused, "metal")

    async def kept() -> str:
        return await cluster.health.keep_evidence(NODE)

    async def asked() -> bool:
        return KEY in await host_notes(cluster)

    async def taken_back() -> bool:
        notes = await host_notes(cluster)
        return KEY not in notes and "gpuward.io/repair" not in notes

    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await cluster.until(kept, "the mark that an agent keeps evidence for")
        await cluster.until(asked, "the request on the host")
        one.new_policy(QUICK + changed)
        one.kill()
        one.start()
        session = (await phase(cluster, NODE, "Repairing"))["metadata"]["name"]
        await cluster.health.healthy(NODE)
        await cluster.client.patch(QUARANTINES, session, RELEASE)
        await phase(cluster, NODE, "Released")
        await cluster.until(taken_back, "the request taken off the host")
