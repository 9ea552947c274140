"""The service accounts that daemonset/base makes: enough for a whole session, and not more.

Agent and remediator run as real processes with the tokens of exactly those accounts, under the
RBAC of the manifests, on a cluster that enforces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hack.sim.cluster.clients.client import ApiError, Object
from hack.sim.cluster.controllers.pods import is_ready, is_terminating, node_of
from hack.sim.cluster.fleet.fleet import Budget, Pool, Serving
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS, XID_79
from hack.sim.cluster.resource import CLUSTER_ROLES, PODS, ROLES
from hack.sim.driver import NODES as DESCRIPTIONS
from hack.sim.manifests import post_manifests, read_manifests
from remediator.kube.resources import AGENT_SELECTOR
from tests.support.agent.agent_process import XID79, AgentProcess
from tests.support.agent.agent_process import running as agent_running
from tests.support.cluster.either_cluster import Cluster, a_cluster
from tests.support.cluster.rbac_grants import granted, without
from tests.support.remediator.remediator_process import (
    UNMARKED,
    RemediatorProcess,
    leads,
    marks_of,
    phase,
    running,
)

REPOSITORY = Path(__file__).parents[3]
AGENT, REMEDIATOR = "gpuward-agent", "gpuward-remediator"
WEB = Serving(name="web", replicas=2, pool="gpu", gpus=8, budget=Budget(max_unavailable=1))

# Granted, and not asked for by the session of this file: when it is needed. That the code asks for
# each of them is shown in tests/unit/daemonset/test_manifests_rbac.py.
OTHER_OCCASIONS = {
    ("patch", "gpuward.io/gpunodehealths"): "a node comes back with another UID",
    ("get", "gpuward.io/gpunodehealths"): "a node is no longer among the sick",
    ("get", "gpuward.io/gpuquarantines"): "another writer was faster",
    ("patch", "gpuward.io/gpuquarantines"): "a person opened the session, or a cause is appended",
    ("delete", "gpuward.io/gpuquarantines"): "history is older than the policy keeps",
    ("list", "gpuward.io/gpuevidences"): "history is looked at, every ten minutes",
    ("delete", "gpuward.io/gpuevidences"): "history is older than the policy keeps",
    ("get", "gpuward.io/gpurecords"): "another writer was faster",
    ("create", "gpuward.io/gpurecords"): "a fault is entered, some time after it",
    ("patch", "gpuward.io/gpurecords/status"): "a fault is entered, some time after it",
    ("delete", "gpuward.io/gpurecords"): "its last event is long past",
    ("get", "pods"): "an eviction's turn comes when the list of its node is old",
    ("patch", "gpuward.io/gpunodehealths/status"): "an agent has been silent for five minutes",
    ("patch", "nodes/status"): "an agent has been silent for five minutes",
    ("get", "apps/daemonsets"): "a pod's DaemonSet is not in the cache",
    ("get", "apps/replicasets"): "who owns what blocks a drain",
    ("get", "apps/deployments"): "who owns what blocks a drain",
    ("get", "apps/statefulsets"): "who owns what blocks a drain",
    ("get", "batch/jobs"): "who owns what blocks a drain",
    ("get", "batch/cronjobs"): "who owns what blocks a drain",
    ("get", "replicationcontrollers"): "who owns what blocks a drain",
    ("list", "kueue.x-k8s.io/workloads"): "Kueue places a gang by topology",
    ("list", "coordination.k8s.io/leases"): "medik8s is installed",
    ("list", "storage.k8s.io/volumeattachments"): "an evicted pod had a volume",
    ("get", "persistentvolumeclaims"): "an evicted pod had a volume",
    ("get", "resource.k8s.io/resourceclaims"): "a pod holds its GPUs by a claim",
    ("list", "resource.k8s.io/resourceclaims"): "a pod holds its GPUs by a claim",
    ("list", "resource.k8s.io/resourceslices"): "a pod holds its GPUs by a claim",
}
GANG_GROUPS = (
    "jobset.x-k8s.io",
    "leaderworkerset.x-k8s.io",
    "batch.volcano.sh",
    "trainer.kubeflow.org",
    "kubeflow.org",
    "ray.io",
)


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


def asked(cluster: Cluster, account_name: str, *, code: int | None = None) -> set[tuple[str, str]]:
    """(verb, group/resource/subresource) that an account asked for."""
    return {
        (r.verb, "/".join(filter(None, (r.group, r.resource, r.subresource))))
        for r in cluster.plane.requests.all
        if r.user.endswith(f":{account_name}") and r.resource and code in {None, r.code}
    }


async def verdict(cluster: Cluster, node: str, health: str) -> Object:
    async def there() -> Object | None:
        try:
            found: Object = await cluster.client.get(GPU_NODE_HEALTHS, node)
        except ApiError:
            return None
        return found if found.get("status", {}).get("health") == health else None

    found: Object = await cluster.until(there, f"{health} about {node}")
    return found


async def test_a_whole_session_needs_what_is_granted_and_no_more(installed, tmp_path) -> None:
    await installed.add(WEB)
    node = node_of((await installed.ready_pods("web", 2))[0])
    await installed.budget_allows("web", "serving")
    others = {f"gpu-000{n}" for n in range(3)} - {node}
    await installed.health.all_healthy(sorted(others))
    agent = await an_agent(installed, tmp_path, node)
    one = RemediatorProcess(tmp_path, await account(installed, REMEDIATOR), afresh=True)
    with agent_running(agent), running(one):
        await leads(installed, "one")
        await verdict(installed, node, "Healthy")
        agent.kernel_line(XID79.format(pci="0000:1b:00"))
        session = await phase(installed, node, "Quarantined")
        assert session["status"]["drain"]["evicted"] >= 1
        await reboot(installed, tmp_path, node, agent)
        await phase(installed, node, "Released")

        async def unmarked() -> bool:
            return marks_of(await installed.node(node)) == UNMARKED

        await installed.until(unmarked, "the mark gone")

        async def renewed() -> bool:
            return ("update", "coordination.k8s.io/leases") in asked(installed, REMEDIATOR)

        await installed.until(renewed, "the lease renewed")
    for name in (AGENT, REMEDIATOR):
        assert asked(installed, name, code=403) == set()
        assert asked(installed, name) <= granted(name) | {("list", "pods")}
        unused = {
            each
            for each in granted(name) - asked(installed, name)
            if not each[1].startswith(GANG_GROUPS)
        }
        assert unused <= OTHER_OCCASIONS.keys()


async def take_away(cluster: Cluster, name: str, verb: str, what: str) -> None:
    """The installed roles of an account without one verb."""
    changed = 0
    for resource, namespace in ((CLUSTER_ROLES, None), (ROLES, "gpuward")):
        for role in (await cluster.client.list(resource))[0]:
            if role["metadata"]["name"] == name:
                rules = without(role["rules"], verb, what)
                changed += granted_in(rules) != granted_in(role["rules"])
                await cluster.client.patch(resource, name, {"rules": rules}, namespace)
    assert changed == 1, f"{name}: {verb} {what} is granted by {changed} roles"


def granted_in(rules: list[Object]) -> int:
    return sum(len(rule["verbs"]) * len(rule["resources"]) for rule in rules)


async def refused(cluster: Cluster, name: str, verb: str, what: str) -> None:
    async def there() -> bool:
        return (verb, what) in asked(cluster, name, code=403)

    await cluster.until(there, f"{name} refused {verb} {what}")


AT_A_MARK = {("get", "gpuward.io/gpuevidences"), ("create", "gpuward.io/gpuevidences")}
PUBLISHING = sorted(granted(AGENT) - {("patch", "gpuward.io/gpunodehealths")} - AT_A_MARK)
QUARANTINING = sorted(
    each
    for each in granted(REMEDIATOR) - OTHER_OCCASIONS.keys()
    if not each[1].startswith(GANG_GROUPS)
)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "what"), PUBLISHING, ids=lambda word: word.replace("/", "."))
async def test_without_any_verb_the_agent_cannot_publish(installed, tmp_path, verb, what) -> None:
    node = "gpu-0000"
    await take_away(installed, AGENT, verb, what)
    agent = await an_agent(installed, tmp_path, node)
    with agent_running(agent):
        agent.kernel_line(XID79.format(pci="0000:1b:00"))
        await refused(installed, AGENT, verb, what)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "what"), QUARANTINING, ids=lambda word: word.replace("/", "."))
async def test_without_any_verb_the_remediator_cannot_quarantine(
    installed, tmp_path, verb, what
) -> None:
    await installed.health.all_healthy([f"gpu-000{n}" for n in range(3)])
    await installed.add(WEB)
    await installed.ready_pods("web", 2)
    await take_away(installed, REMEDIATOR, verb, what)
    one = RemediatorProcess(tmp_path, await account(installed, REMEDIATOR))
    with running(one):
        node = node_of((await installed.pods("web"))[0])
        await installed.health.fail(node, XID_79)
        await refused(installed, REMEDIATOR, verb, what)
