"""A real remediator fences a silent node through its host: power off, taint, power on (s23)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.sim.cluster.clients.client import ApiError, Object
from hack.sim.cluster.fleet.fleet_health_objects import XID_79
from hack.sim.cluster.resource import PODS, Resource
from tests.e2e.repair.test_repair_by_objects import (
    HOSTS,
    KEY,
    NODE,
    host_notes,
    host_shows,
    standing,
)
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import leads, phase, running

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", True, "PodDisruptionBudget")
FENCE = """
repair:
  mode: Auto
  steps: {PowerCycle: {adapter: Metal3, timeout: 10m}}
  fence: {after: 60s, outOfService: true}
"""
PAUSED = "baremetalhost.metal3.io/paused"


async def busy(cluster: Cluster) -> None:
    """A pod on the node that its budget keeps there."""
    await cluster.add_pod("trains", NODE)
    selector = {"matchLabels": {"app": "trains"}}
    budget: Object = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "trains"},
        "spec": {"minAvailable": 1, "selector": selector},
    }
    await cluster.client.create(BUDGETS, budget, "default")


async def out_of_service(cluster: Cluster) -> list[Any]:
    taints = (await cluster.node(NODE))["spec"].get("taints") or []
    return [
        (t["value"], t["effect"])
        for t in taints
        if t["key"] == "node.kubernetes.io/out-of-service"
    ]


async def after_a_minute(cluster: Cluster, check: Callable[[], Awaitable[bool]]) -> None:
    """What comes after the shortest silence that a policy may ask for."""
    for _ in range(2):
        with contextlib.suppress(AssertionError):
            await cluster.until(check, "what a minute of silence brings")
            return
    raise AssertionError("two minutes of silence brought nothing")


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
async def test_s23_power_is_seen_off_before_the_pods_end_and_comes_back_after(
    secure_cluster: Cluster, dies: bool
) -> None:
    cluster = secure_cluster
    one = await standing(cluster, ("repair-metal3", "fence"), FENCE)
    unpaused = {"metadata": {"annotations": {PAUSED: None}}}
    await cluster.client.patch(HOSTS, "host-0", unpaused, "metal")
    await busy(cluster)

    async def kept_off() -> bool:
        return KEY in await host_notes(cluster)

    async def off_no_more() -> bool:
        return not await kept_off()

    async def tainted() -> list[Any]:
        return await out_of_service(cluster)

    async def untainted() -> bool:
        return not await out_of_service(cluster)

    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, XID_79)
        await phase(cluster, NODE, "Draining")
        await cluster.plane.controllers.kubelets.fall_silent(NODE)
        await after_a_minute(cluster, kept_off)
        assert await untainted()
        await cluster.client.get(PODS, "trains", "default")
        await host_shows(cluster, poweredOn=False)
        assert await cluster.until(tainted, "the taint") == [("nodeshutdown", "NoExecute")]
        if dies:
            one.kill()
            one.start()
        await cluster.until(off_no_more, "the host allowed to come on")
        with pytest.raises(ApiError, match="not found"):
            await cluster.client.get(PODS, "trains", "default")
        assert await out_of_service(cluster), "until the node is back"
        await host_shows(cluster, poweredOn=True)
        await cluster.plane.controllers.kubelets.reboot(NODE)
        await cluster.health.recreated(NODE)
        await cluster.until(untainted, "the taint gone with the new boot")
        session = await phase(cluster, NODE, "Released")
    (attempt,) = session["status"]["repair"]
    assert (attempt["step"], attempt["state"]) == ("PowerCycle", "Proven")
    steps = [entry["step"] for entry in session["status"]["timeline"]]
    stages = [s for s in steps if s in {"RepairAsked", "PowerOff", "OutOfService", "PowerOn"}]
    assert stages == ["RepairAsked", "PowerOff", "OutOfService", "PowerOn"]
    asked = [r for r in cluster.plane.requests.all if r.user.endswith(":gpuward-remediator")]
    assert not [r for r in asked if r.code == 403]
    on_the_host = [r for r in asked if r.resource == "baremetalhosts" and r.verb == "patch"]
    assert len(on_the_host) == 2, "asked once, taken back once"
