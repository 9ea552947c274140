"""Scripted health: what it publishes is what an agent publishes, and it stays consistent."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.sim.cluster.controllers.nodes.node_objects import node_object
from hack.sim.cluster.controllers.pods import condition
from hack.sim.cluster.fleet.fleet_health import (
    GPU_NODE_HEALTHS,
    XID_79,
    FleetHealth,
)
from hack.sim.cluster.fleet.fleet_load import create_node
from hack.sim.cluster.http.resource_calls import InProcessClient
from hack.sim.cluster.resource import NODES
from hack.sim.cluster.store.engine import Engine
from hack.sim.manifests import post_manifests, read_manifests
from rules.api.health import HealthStatus
from tests.support.cluster.controller_objects import NOW

DEFINITIONS = Path(__file__).parents[5] / "daemonset" / "crds"


class Story:
    def __init__(self) -> None:
        self.now: datetime = NOW
        self.client = InProcessClient(Engine())
        self.health = FleetHealth(self.client, lambda: self.now)

    async def begin(self) -> None:
        await post_manifests(self.client, read_manifests(DEFINITIONS))
        await create_node(self.client, node_object("n1", now=NOW))

    async def status(self) -> HealthStatus:
        obj = await self.client.get(GPU_NODE_HEALTHS, "n1")
        return msgspec.convert(obj["status"], HealthStatus)

    async def condition(self, kind: str) -> dict[str, Any]:
        return condition(await self.client.get(NODES, "n1"), kind) or {}


@pytest.fixture
async def story() -> Story:
    told = Story()
    await told.begin()
    return told


async def test_a_fault_and_its_repair(story: Story) -> None:
    await story.health.healthy("n1")
    before = await story.condition("GPUHealthy")
    assert (before["status"], before["reason"]) == ("True", "AllChecksPassing")

    story.now += timedelta(minutes=5)
    await story.health.fail("n1", XID_79)
    sick = await story.condition("GPUHealthy")
    assert (sick["status"], sick["reason"]) == ("False", "Xid79GPUFallenOffBus")
    assert sick["lastTransitionTime"] > before["lastTransitionTime"]
    assert (await story.status()).incidents[0].active

    story.now += timedelta(minutes=5)
    await story.health.healthy("n1")
    status = await story.status()
    assert status.health == "Healthy"
    assert (status.incidents[0].active, status.incidents[0].closed_by) == (False, "Reset")


async def test_a_returned_node_carries_its_own_uid_and_boot(story: Story) -> None:
    await story.health.fail("n1", XID_79)
    node = await story.client.get(NODES, "n1")
    node["status"]["nodeInfo"]["bootID"] = "another"
    await story.client.update_status(NODES, node)
    await story.health.recreated("n1")
    status = await story.status()
    assert (status.boot_id, status.health) == ("another", "Healthy")
    assert status.incidents[0].closed_by == "Reboot"
