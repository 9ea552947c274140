"""A remediator that is killed at each write of a session with everything that a repair may bring.

A reset that fails, a reboot that is proven, a test under load, the release: whichever write it
dies at, before the server sees it, the next life ends the session the same way, with each step
asked for once and one reboot. To die after a write was done is to die before the next one is
seen: the server knows the same, and a dead process knows nothing. Writes are counted and cut off
by the proxy in front of the server, simulated or real.
"""

from itertools import count
from pathlib import Path

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import Fault
from hack.sim.cluster.resource import JOBS
from rules.catalog.reason import Action
from tests.e2e.remediator.test_remediator_stopped_at_writes import AGENT, AT_ONCE, NO_LEASE
from tests.e2e.validation.test_remediator_validation import TESTED, ends_with
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    UNTAINTED,
    RemediatorProcess,
    leads,
    prepare,
    running,
    sessions,
    taints_of,
)
from tests.support.scenario.repair_world import result_json

LADDER = """
repair:
  mode: Auto
  steps:
    ResetGPU: {adapter: NodeConditions, timeout: 1s}
    RestartNode: {adapter: NodeConditions, timeout: 5m}
"""
RESET = Fault(
    reason="Xid95UncontainedECC",
    xids=(95,),
    gpu=3,
    action=Action.RESET_GPU,
    evidence="NVRM: Xid (PCI:0000:4e:00): 95, uncontained ECC error.",
)
PARTS = 6
"""Each takes every sixth write, so that none takes minutes."""
FEWEST, MOST = 24, 60
"""Writes of such a session: fewer would mean that the rounds end too early."""


class Provider:
    """A repair tool that follows node conditions: it resets nothing, and reboots on request."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster = cluster
        self._node = node
        self._asked = False
        self.reboots = 0

    async def look(self) -> None:
        """What it does on a change of the request, not for as long as it stands."""
        asked = await asks(self._cluster, self._node, "GPUNeedsRestart")
        if asked and not self._asked:
            self.reboots += 1
            await self._cluster.plane.controllers.kubelets.reboot(self._node)
            await self._cluster.health.recreated(self._node)
        self._asked = asked


async def asks(cluster: Cluster, node: str, kind: str) -> bool:
    conditions = (await cluster.node(node))["status"]["conditions"]
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


async def complete_session(
    cluster: Cluster, node: str, one: RemediatorProcess
) -> tuple[Object, int]:
    """From the fault to the release; the session and how often the node was rebooted."""
    provider = Provider(cluster, node)
    await cluster.add_pod(f"on-{node}", node, terminationGracePeriodSeconds=0)
    await cluster.health.fail(node, RESET)
    kept = ""

    async def ended() -> bool:
        nonlocal kept
        one.revive()
        kept = kept or await cluster.health.keep_evidence(node)
        await provider.look()
        found = await sessions(cluster, node)
        phase = found[-1].get("status", {}).get("phase") if found else None
        return phase == "Released" and taints_of(await cluster.node(node)) == UNTAINTED

    await cluster.until(ended, f"the session of {node} over and the taint and cordon gone")
    (session,) = await sessions(cluster, node)
    return session, provider.reboots


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
async def test_killed_at_each_write_of_a_repair_it_ends_the_same_way(
    cluster: Cluster, tmp_path: Path, part: int
) -> None:
    await prepare(cluster)
    await ends_with(cluster, 0, result_json("pass"))
    names = [f"gpu-{number:04}" for number in range(MOST // PARTS + 2)]
    await cluster.add(pool=Pool(name="gpu", nodes=len(names)))
    await cluster.health.all_healthy(names)
    policy = AT_ONCE + LADDER + TESTED
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=policy)
    killed = 0
    with running(one):
        await leads(cluster, "one")
        for node, number in zip(names, count(part + 1, PARTS), strict=False):
            stop = cluster.plane.faults.at_write(number, one.kill, agent=AGENT, path=NO_LEASE)
            session, reboots = await complete_session(cluster, node, one)
            cluster.plane.faults.clear()
            status = session["status"]
            ladder = [(step["step"], step["state"]) for step in status["repair"]]
            assert ladder == [("ResetGPU", "Failed"), ("RestartNode", "Proven")], number
            assert reboots == 1, number
            assert [test["state"] for test in status["validation"]] == ["Passed"], number
            assert not await asks(cluster, node, "GPUNeedsReset")
            assert not await asks(cluster, node, "GPUNeedsRestart")
            jobs, _ = await cluster.client.list(JOBS, "gpuward")
            mine = [j for j in jobs if j["spec"]["template"]["spec"]["nodeName"] == node]
            assert len(mine) <= 1, number
            if not stop.hits:
                break
            killed = number
    assert FEWEST - PARTS < killed < MOST
    assert not one.logged("Traceback")
