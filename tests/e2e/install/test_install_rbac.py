"""The service accounts that daemonset/base makes are enough for an entire session.

Agent and remediator run as real processes with the tokens of exactly those accounts, under the
RBAC of the manifests, on a cluster that enforces it.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers.pods import is_ready, is_terminating, node_of
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Budget, Pool, Serving
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from hack.sim.cluster.resource import PODS
from hack.sim.driver import NODES as DESCRIPTIONS
from hack.sim.manifests import post_manifests, read_manifests
from remediator.kube.resources import AGENT_SELECTOR
from tests.support.agent.agent_process import XID79, AgentProcess
from tests.support.agent.agent_process import running as agent_running
from tests.support.cluster.either_cluster import Cluster, a_cluster
from tests.support.remediator.remediator_process import (
    RemediatorProcess,
    leads,
    not_quarantined,
    phase,
    running,
)

REPOSITORY = Path(__file__).parents[3]
ACCOUNTS = AGENT, REMEDIATOR = ("gpuward-agent", "gpuward-remediator")
WEB = Serving(name="web", replicas=2, pool="gpu", gpus=8, budget=Budget(max_unavailable=1))


@pytest.fixture
async def installed() -> AsyncIterator[Cluster]:
    """Our manifests on a cluster with RBAC, and GPU nodes."""
    async with a_cluster(secure=True) as cluster:
        await post_manifests(
            cluster.client, read_manifests(REPOSITORY / "daemonset"), namespace="gpuward"
        )
        await cluster.add(pool=Pool(name="gpu", nodes=3))
        yield cluster


async def account(cluster: Cluster, name: str, *, pod: str | None = None) -> Path:
    return await cluster.plane.service_account_kubeconfig("gpuward", name, pod=pod)


async def agent_pod(cluster: Cluster, node: str) -> str:
    """The pod that the DaemonSet put on the node: its token carries the node's name.

    Only once it is the one that stays: a token ends with the pod that it is bound to.
    """

    async def there() -> str:
        pods, _ = await cluster.client.list(PODS, "gpuward", label_selector=AGENT_SELECTOR)
        mine = [pod for pod in pods if node_of(pod) == node]
        settled = len(mine) == 1 and is_ready(mine[0]) and not is_terminating(mine[0])
        return str(mine[0]["metadata"]["name"]) if settled else ""

    found: str = await cluster.until(there, f"the agent's pod on {node}")
    return found


async def an_agent(cluster: Cluster, folder: Path, node: str) -> AgentProcess:
    boot = folder / "boot-id"
    boot.write_text((await cluster.node(node))["status"]["nodeInfo"]["bootID"])
    kubeconfig = await account(cluster, AGENT, pod=await agent_pod(cluster, node))
    driver = f"sim:{DESCRIPTIONS / 'h100-8-nvswitch.yaml'}"
    return AgentProcess(folder, kubeconfig, node, nvml=driver, **{"boot-id": str(boot)})


async def reboot(cluster: Cluster, folder: Path, node: str, agent: AgentProcess) -> None:
    await asyncio.to_thread(agent.stop)
    await cluster.plane.controllers.kubelets.reboot(node)
    (folder / "boot-id").write_text((await cluster.node(node))["status"]["nodeInfo"]["bootID"])
    agent.start()


async def publish_health(cluster: Cluster, node: str, health: str) -> Object:
    async def there() -> Object | None:
        try:
            found: Object = await cluster.client.get(GPU_NODE_HEALTHS, node)
        except ApiError:
            return None
        return found if found.get("status", {}).get("health") == health else None

    found: Object = await cluster.until(there, f"{health} about {node}")
    return found


async def test_a_complete_session_needs_all_granted_rights_and_no_more(
    installed, tmp_path
) -> None:
    await installed.add(WEB)
    node = node_of((await installed.ready_pods("web", 2))[0])
    await installed.budget_allows("web", "serving")
    others = {f"gpu-000{n}" for n in range(3)} - {node}
    await installed.health.all_healthy(sorted(others))
    agent = await an_agent(installed, tmp_path, node)
    one = RemediatorProcess(tmp_path, await account(installed, REMEDIATOR), isolated=True)
    with agent_running(agent), running(one):
        await leads(installed, "one")
        await publish_health(installed, node, "Healthy")
        agent.kernel_line(XID79.format(pci="0000:1b:00"))
        session = await phase(installed, node, "Quarantined")
        assert session["status"]["drain"]["evicted"] >= 1
        await reboot(installed, tmp_path, node, agent)
        await phase(installed, node, "Released")
        await not_quarantined(installed, node)

        async def renewed() -> bool:
            return installed.plane.requests.count(verb="update", resource="leases") > 0

        await installed.until(renewed, "the lease renewed")
    refused = [r for r in installed.plane.requests.all if r.code == 403]
    assert [(r.user, r.verb, r.resource) for r in refused if r.user.endswith(ACCOUNTS)] == []
