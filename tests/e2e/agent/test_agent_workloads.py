"""Whose processes Xid 13 and 31 name: real processes in cgroups of pods, and the API server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from agent.senses.host import sees_host_processes
from hack.sim.cluster.clients.client import ApiError, Object
from hack.sim.cluster.controllers.pods import node_of
from hack.sim.cluster.fleet.fleet import Pool, Serving
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from hack.sim.manifests import post_manifests, read_manifests
from rules.catalog.thresholds import DEFAULT_RULES
from tests.support.agent.agent_process import AgentProcess, running
from tests.support.cluster.either_cluster import Cluster
from tests.support.cluster.rbac_grants import BASE

WEB = Serving(name="web", replicas=1, pool="gpu", gpus=8)
FAULT = (
    "NVRM: Xid (PCI:0000:3b:00): 31, pid={pid}, name=python, Ch 00000008, intr 00000000. MMU "
    "Fault: ENGINE GRAPHICS"
)
JUDGED_AFTER_S = DEFAULT_RULES["ContextDelay"].value + 1
WORKLOADS = BASE.parent / "components" / "workloads"


def cgroup_root() -> Path | None:
    """Where cgroups of version 2 can be made, if they can."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (root / "cgroup.procs").exists() and os.access(root / "cgroup.procs", os.W_OK):
            return root
    return None


ROOT = cgroup_root()
pytestmark = [
    pytest.mark.skipif(
        ROOT is None, reason="making a cgroup as the kubelet does needs root and cgroup v2"
    ),
    pytest.mark.skipif(
        not sees_host_processes(), reason="the agent refuses to work without the host's processes"
    ),
]


@contextmanager
def process_of(pod: Object) -> Iterator[int]:
    """A real process where a kubelet with the cgroupfs driver would put this pod's."""
    assert ROOT is not None
    parts = (f"gpuward-test-{os.getpid()}", f"pod{pod['metadata']['uid']}", "f" * 64)
    folders = [ROOT.joinpath(*parts[: count + 1]) for count in range(3)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            (folders[-1] / "cgroup.procs").write_text(str(child.pid))
            yield child.pid
        finally:
            child.communicate(b"\n")
            for folder in reversed(folders):
                folder.rmdir()


async def account(cluster: Cluster, *, granted: bool) -> Path:
    """The agent's own account, with or without component workloads."""
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    objects = [o for o in read_manifests(BASE) if o["metadata"]["name"] == "gpuward-agent"]
    objects = [o for o in objects if o["kind"] in kinds]
    if granted:
        objects += read_manifests(WORKLOADS)
    await cluster.add_namespace("gpuward")
    await post_manifests(cluster.client, objects, namespace="gpuward")
    return await cluster.plane.service_account_kubeconfig("gpuward", "gpuward-agent")


class Scene:
    """A node with one pod of Deployment web, and an agent that one burst convinces."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.node = ""
        self.pod: Object = {}

    async def prepare(self) -> None:
        await self._cluster.add(WEB, pool=Pool(name="gpu", nodes=1))
        (self.pod,) = await self._cluster.ready_pods("web", 1)
        self.node = node_of(self.pod)

    async def agent(self, *, granted: bool = True, workloads: str = "api") -> AgentProcess:
        rules = self._folder / "rules.yaml"
        rules.write_text(
            "apiVersion: gpuward.io/v1alpha1\nkind: Rules\n"
            "thresholds: {RepeatBursts: {value: 1}, RepeatWorkloads: {value: 1}}\n"
        )
        kubeconfig = await account(self._cluster, granted=granted)
        options = {"rules": str(rules), "workloads": workloads}
        return AgentProcess(self._folder, kubeconfig, self.node, **options)

    async def until(self, check: Callable[[Object], Any], what: str) -> Any:
        async def there() -> Any:
            try:
                found = await self._cluster.client.get(GPU_NODE_HEALTHS, self.node)
            except ApiError:
                return None
            return check(found.get("status") or {})

        return await self._cluster.until(there, what)

    async def source(self, state: str, reason: str) -> None:
        def said(status: Object) -> bool:
            words = [(s["name"], s["state"], s.get("reason", "")) for s in status["sources"]]
            return ("workloads", state, reason) in words

        await self.until(lambda s: s and said(s), f"source workloads {state} {reason}")

    async def incident(self, severity: str) -> Object:
        def found(status: Object) -> Object | None:
            incidents = status.get("incidents") or ()
            return next((i for i in incidents if i["severity"] == severity), None)

        return cast("Object", await self.until(found, f"an incident of {severity}"))

    def lists_of_pods(self) -> int:
        requests = self._cluster.plane.requests
        return requests.count(verb="list", resource="pods", agent="gpuward-agent")


@pytest.fixture
async def scene(secure_cluster: Cluster, tmp_path: Path) -> Scene:
    made = Scene(secure_cluster, tmp_path)
    await made.prepare()
    return made


async def test_the_finding_names_the_deployment_of_the_process(scene: Scene) -> None:
    agent = await scene.agent()
    with process_of(scene.pod) as pid, running(agent):
        await scene.source("Up", "")
        for _ in range(20):
            agent.kernel_line(FAULT.format(pid=pid))
        incident = await scene.incident("Degraded")
    assert (incident["level"], incident["recommendedAction"]) == ("Report", "RunDiagnostics")
    assert incident["evidence"][-1].startswith("Xid 31: 1 bursts")
    assert "(Deployment serving/web)" in incident["evidence"][-1]
    assert scene.lists_of_pods() == 1


async def test_a_process_that_is_in_no_pod_stays_a_record(scene: Scene) -> None:
    agent = await scene.agent()
    with process_of(scene.pod) as pid, running(agent):
        await scene.source("Up", "")
        agent.kernel_line(FAULT.format(pid=os.getpid()).replace(" 31,", " 13,"))
        await scene.incident("Info")
        agent.kernel_line(FAULT.format(pid=pid).replace("0000:3b:00", "0000:5e:00"))
        degraded = await scene.incident("Degraded")
        record = await scene.incident("Info")
    assert (degraded["xids"], record["xids"]) == ([31], [13])


async def test_without_the_permission_it_is_said_and_health_is_as_before(scene: Scene) -> None:
    """Two GPUs show it, so the place alone says nothing either."""
    agent = await scene.agent(granted=False)
    with process_of(scene.pod) as pid, running(agent):
        await scene.source("Up", "")
        # One after the other at once: in this scene a burst that stays alone is one too many.
        agent.kernel_line(FAULT.format(pid=pid))
        agent.kernel_line(FAULT.format(pid=pid).replace("0000:3b:00", "0000:5e:00"))
        await scene.source("Down", "Forbidden")
        await scene.until(lambda s: s and len(s.get("incidents") or ()) == 2, "both records")
        await asyncio.sleep(JUDGED_AFTER_S)
        status = await scene.until(lambda s: s, "the verdict")
    found = [(i["reason"], i["severity"], i.get("evidence")) for i in status["incidents"]]
    assert {severity for _, severity, _ in found} == {"Info"}, found
    assert status["health"] == "Unknown"
    assert scene.lists_of_pods() == 1
    assert "apply component workloads" in agent.log.read_text()


async def test_off_is_the_default_and_asks_nobody(scene: Scene) -> None:
    agent = await scene.agent(workloads="off")
    with process_of(scene.pod) as pid, running(agent):
        await scene.source("Absent", "Off")
        agent.kernel_line(FAULT.format(pid=pid))
        await scene.incident("Info")
    assert scene.lists_of_pods() == 0
