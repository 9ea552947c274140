"""A real remediator process asks for a repair, is killed while it runs, and believes what it
sees.
"""

from __future__ import annotations

import asyncio

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
)

SOON_S = 1.5
"""Looks at a node follow each other much faster than that."""
REPAIR = """
repair:
  mode: Auto
  steps: {RestartNode: {adapter: NodeConditions, timeout: 5m}}
"""


async def test_s33_a_restart_is_asked_for_once_and_its_new_boot_brings_the_node_back(
    cluster, tmp_path
):
    await prepare(cluster)
    await cluster.add(pool=Pool(name="gpu", nodes=3))
    nodes = [f"gpu-000{n}" for n in range(3)]
    await cluster.health.all_healthy(nodes)
    node = nodes[0]
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, policy=QUICK + REPAIR)

    async def asked():
        conditions = (await cluster.node(node))["status"]["conditions"]
        found = [c for c in conditions if c["type"] == "GPUNeedsRestart"]
        return found[0] if found and found[0]["status"] == "True" else None

    async def taken_back():
        return await asked() is None

    async def leads_again():
        said = [line["event"] for line in await asyncio.to_thread(one.lines)]
        return said.count("leading") == 2

    with running(one):
        await leads(cluster, "one")
        await cluster.health.fail(node, XID_79)

        async def kept():
            return await cluster.health.keep_evidence(node)

        sha256 = await cluster.until(kept, "the mark that an agent keeps evidence for")
        request = await cluster.until(asked, "the request for a restart")
        session = await phase(cluster, node, "Repairing")
        (attempt,) = session["status"]["repair"]
        assert attempt["before"]["bootID"]
        assert request["message"].startswith(f"{attempt['object']}: ")
        assert request["reason"] == "RestartNode"
        said = [e["message"] for e in session["status"]["timeline"] if e["step"] == "Evidence"]
        assert said == [f"kept as GPUEvidence, SHA-256 {sha256}"]

        # Lies: all is well in the boot of before, and its kubelet goes on saying Ready.
        await cluster.health.healthy(node)
        await cluster.plane.controllers.kubelets.speak_again(node)
        one.kill()
        one.start()
        await cluster.until(leads_again, "the next life leading")
        await asyncio.sleep(SOON_S)
        (lied,) = (await phase(cluster, node, "Repairing"))["status"]["repair"]
        assert (lied["object"], lied["state"]) == (attempt["object"], "Asked")
        assert (await asked())["message"] == request["message"]
        await cluster.plane.controllers.kubelets.reboot(node)
        await cluster.health.recreated(node)
        session = await phase(cluster, node, "Released")
        (ended,) = session["status"]["repair"]
        assert (ended["object"], ended["state"]) == (attempt["object"], "Proven")
        assert "new boot" in ended["proof"]
        await cluster.until(taken_back, "the request taken back")
