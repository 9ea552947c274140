"""`kubectl gpuward uninstall` with real agents and a real remediator, on a simulated or real
cluster.

A fault takes a node out; the remediator gives it back when it is uninstalled. One outside the
cluster has to be stopped by its owner; after that uninstall leaves every node as it was before.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.resource import JOBS, NODES, PODS
from tests.e2e.repair.test_repair_own_jobs import (
    ASKS_FOR_A_RESET,
    NODE,
    OPERANDS,
    UNCHANGED,
    deployed,
    job_of,
    standing,
)
from tests.support.agent.agent_process import XID79, AgentProcess
from tests.support.agent.agent_process import running as agent_running
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    UNTAINTED,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
    taints_of,
)
from tests.support.run.warm_start import WarmProcess

REPOSITORY = Path(__file__).parents[3]
DESCRIPTION = REPOSITORY / "hack" / "sim" / "driver" / "nodes" / "h100-8-nvswitch.yaml"
POOL = Pool(name="gpu", nodes=4)
NAMES = tuple(f"gpu-000{number}" for number in range(4))
FAILING = ("gpu-0000", "gpu-0001")
PCI = "0000:1b:00"
MINE = {"key": "example.com/mine", "value": "x", "effect": "NoExecute"}
OURS = ("GPUHealthy", "GPUDegraded")


async def gpuward(
    kubeconfig: Path, *arguments: str, popen: type[subprocess.Popen[bytes]] = WarmProcess
) -> tuple[int, str, str]:
    """The command as an operator runs it."""

    def ended() -> tuple[int, str, str]:
        command = [sys.executable, "-m", "remediator.kubectl.cli", "--kubeconfig", str(kubeconfig)]
        with popen(
            [*command, *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if not k.startswith(("KUBE", "GPUWARD_"))},
        ) as process:
            out, err = process.communicate()
        return process.returncode, out.decode(), err.decode()

    return await asyncio.to_thread(ended)


async def pictures(cluster: Any) -> str:
    """Labels, annotations, taints, cordon and condition types of every node, byte for byte."""
    nodes, _ = await cluster.client.list(NODES)
    return json.dumps(
        {
            node["metadata"]["name"]: {
                "labels": node["metadata"].get("labels"),
                "annotations": node["metadata"].get("annotations"),
                "taints": [
                    taint
                    for taint in node["spec"].get("taints", [])
                    # Kubernetes adds this taint some time after a cordon.
                    if taint["key"] != "node.kubernetes.io/unschedulable"
                ],
                "unschedulable": node["spec"].get("unschedulable", False),
                "conditions": [
                    (c["type"], c["status"]) for c in node["status"].get("conditions", [])
                ],
            }
            for node in nodes
        },
        indent=1,
        sort_keys=True,
    )


async def agent_on(cluster: Any, folder: Path, name: str) -> AgentProcess:
    """An agent with a simulated driver, in the boot that its node is in."""
    folder = folder / name
    folder.mkdir()
    description = folder / "node.yaml"
    description.write_bytes(DESCRIPTION.read_bytes())
    boot = folder / "boot"
    boot.write_text((await cluster.node(name))["status"]["nodeInfo"]["bootID"])
    options = {"nvml": f"sim:{description}", "poll": "1", "boot-id": str(boot)}
    return AgentProcess(folder, cluster.plane.kubeconfig, name, **options)


async def test_uninstall_leaves_every_node_as_it_was_before_the_first_agent(cluster, tmp_path):
    await prepare(cluster)
    await cluster.add(pool=POOL)
    await cluster.settled(*NAMES)
    others_change = {
        "metadata": {"annotations": {"gpuward.io/expected-gpus": "8", "example.com/note": "keep"}},
        "spec": {"unschedulable": True, "taints": [MINE]},
    }
    await cluster.client.patch(NODES, FAILING[0], others_change)
    before = await pictures(cluster)
    kubeconfig = cluster.plane.kubeconfig

    async def labelled() -> bool:
        nodes = [await cluster.node(name) for name in FAILING]
        return all("gpuward.io/gpus" in node["metadata"]["labels"] for node in nodes)

    one = RemediatorProcess(tmp_path, kubeconfig)
    with contextlib.ExitStack() as stack:
        agents = [await agent_on(cluster, tmp_path, name) for name in FAILING]
        for agent in agents:
            stack.enter_context(agent_running(agent))
        await cluster.until(labelled, "labels of both agents")
        with running(one):
            await leads(cluster, "one")
            agents[0].kernel_line(XID79.format(pci=PCI))
            await phase(cluster, FAILING[0], "Quarantined")
            code, out, err = await gpuward(kubeconfig, "why", FAILING[0])
            assert code == 0, err
            assert "GPU has fallen off the bus" in out
            assert "it was cordoned before" in out
            code, _, err = await gpuward(kubeconfig, "uninstall", "--yes")
            assert code == 1
            assert f"waiting for the remediator to release {FAILING[0]}" in err
            assert "a remediator outside this cluster still leads (one); stop it" in err
            assert await pictures(cluster) != before, "labels of agents that run"
            # A remediator that is asked to end gives the lease back.
            assert await asyncio.to_thread(one.stop) == 0

    code, out, err = await gpuward(kubeconfig, "uninstall", "--yes", popen=subprocess.Popen)

    assert code == 0, err
    assert "2 nodes cleaned" in out
    assert await pictures(cluster) == before
    code, out, err = await gpuward(kubeconfig, "uninstall", "--yes")
    assert (code, err) == (0, "")
    assert out.startswith("0 nodes cleaned")


@pytest.mark.slow
async def test_a_running_reset_ends_before_its_node_is_released(
    secure_cluster: Cluster,
) -> None:
    cluster = secure_cluster
    remediator = await standing(cluster, reset_ends=0)
    with running(remediator):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, ASKS_FOR_A_RESET)
        job = await job_of(cluster, "resetgpu")

        async def begun() -> bool:
            pods, _ = await cluster.client.list(PODS, "gpuward")
            return any(pod["metadata"]["name"].startswith(job["metadata"]["name"]) for pod in pods)

        await cluster.until(begun, "the pod that resets")
        code, _, err = await gpuward(cluster.plane.kubeconfig, "uninstall", "--yes")
        assert code == 1
        assert f"waiting for the remediator to release {NODE}" in err
        assert "still leads" in err
        assert await asyncio.to_thread(remediator.stop) == 0

    code, out, err = await gpuward(cluster.plane.kubeconfig, "uninstall", "--yes")

    assert code == 0, err
    assert "cleaned; now" in out
    assert taints_of(await cluster.node(NODE)) == UNTAINTED
    assert await deployed(cluster) == (OPERANDS | UNCHANGED, False)
    jobs, _ = await cluster.client.list(JOBS, "gpuward")
    assert jobs == []
    pods, _ = await cluster.client.list(PODS, "gpuward")
    assert [pod for pod in pods if "resetgpu" in pod["metadata"]["name"]] == []
