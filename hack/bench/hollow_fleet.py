"""A fleet without machines on a real API server: nodes, agents, workload, kubelets and reboots.

Nodes have the labels of GPU operator and node feature discovery, a Ready agent pod and a
GPUNodeHealth. A faulty node gets workload pods first. Its kubelet ends evicted pods, and it
reboots when its session is Quarantined and its workload is gone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers.nodes import node_info
from hack.sim.cluster.controllers.pods import GPU, stamp
from hack.sim.cluster.controllers.suite import utc_now
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet import Fleet, Pool, apply_fleet
from hack.sim.cluster.fleet.fleet_health import AT_ONCE, XID_79, FleetHealth
from hack.sim.cluster.resource import (
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    STRATEGIC_MERGE_PATCH,
    Resource,
)
from rules.api import names
from rules.api.health import PublisherPod
from rules.api.quarantine import Phase

GPUS = 8
QUARANTINES = Resource(names.GROUP, names.VERSION, "gpuquarantines", False, "GPUQuarantine")
NODE_LABELS = {
    names.LABEL_GPUS: str(GPUS),
    names.LABEL_HEALTH: "healthy",
    names.LABEL_GPUS_HEALTHY: str(GPUS),
    names.LABEL_INTERCONNECT: "nvswitch",
    names.LABEL_DRIVER: "580.95.05",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{n:02}": "true" for n in range(50)},
}
POD_ENDS_S = 1.0
REBOOT_S = 5.0
_NAMESPACE = "work"
_OWNER = "job"


class HollowFleet:
    """The nodes, and for each faulty one the times (Unix) of its stages."""

    def __init__(self, client: Client, nodes: int) -> None:
        self._client = client
        self._fleet = Fleet(pools=(Pool(name="gpu", nodes=nodes, gpus=GPUS, labels=NODE_LABELS),))
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._health = FleetHealth(client, utc_now, shown=False)
        self._workload: dict[str, set[str]] = {}
        self._ending: set[str] = set()
        self._phases: dict[str, str] = {}
        self._rebooted: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.names = self._fleet.node_names()
        self.detected: dict[str, float] = {}
        self.quarantined: dict[str, float] = {}
        """When both taint and cordon were on the node."""
        self.empty: dict[str, float] = {}
        self.released: dict[str, float] = {}

    async def create(self) -> None:
        """Create the nodes with their agent pods and health statuses."""
        await apply_fleet(self._client, self._fleet, utc_now())
        # The API server taints a new node as not ready, and no controller removes it here.
        untainted = {"spec": {"taints": None}}
        await self._each(self._client.patch(NODES, name, untainted) for name in self.names)
        await self._each(map(self._agent, self.names))
        await self._health.all_healthy(self.names)

    async def add_workload(self, nodes: Iterable[str], pods: int) -> None:
        """Run so many pods of a ReplicaSet on each of these nodes, one GPU each."""
        await self._client.create(NAMESPACES, _object("v1", "Namespace", _NAMESPACE))
        labels = {"app": _OWNER}
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec()},
        }
        owner = await self._client.create(
            REPLICA_SETS, {**_object("apps/v1", "ReplicaSet", _OWNER), "spec": spec}, _NAMESPACE
        )
        controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
        controller |= {"name": _OWNER, "uid": owner["metadata"]["uid"]}
        meta = {"labels": labels, "ownerReferences": [controller]}
        self._workload |= {node: {f"{node}-{n}" for n in range(pods)} for node in nodes}
        await self._each(
            self._running_pod(name, _NAMESPACE, meta, _pod_spec(node, gpus=1))
            for node, its in self._workload.items()
            for name in its
        )

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """Run kubelets and reboots, and record when each stage is reached."""
        async with asyncio.TaskGroup() as self._group:
            self._spawn(self._follow(NODES, None, self._node_changed))
            self._spawn(self._follow(PODS, _NAMESPACE, self._pod_changed))
            self._spawn(self._follow(QUARANTINES, None, self._session_changed))
            yield
            for task in self._tasks:
                task.cancel()

    async def fail(self, nodes: Sequence[str], rate: float = 0.0) -> None:
        """Report Xid 79 on the nodes: `rate` of them per second, or all at once."""
        began = time.time()
        if not rate:
            self.detected |= dict.fromkeys(nodes, began)
            await self._health.all_fail(nodes, XID_79)
        for number, node in enumerate(nodes if rate else ()):
            await asyncio.sleep(began + number / rate - time.time())
            self.detected[node] = time.time()
            self._spawn(self._health.fail(node, XID_79))

    async def until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until it holds. False if it does not within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _agent(self, node: str) -> None:
        labels = {
            "app.kubernetes.io/name": "gpuward",
            "app.kubernetes.io/component": "agent",
            "controller-revision-hash": "5d8f7c9b6f",
            "pod-template-generation": "1",
        }
        name = f"gpuward-agent-{node}"
        pod = await self._running_pod(name, "gpuward", {"labels": labels}, _pod_spec(node))
        publisher = PublisherPod(pod=f"gpuward/{name}", pod_uid=pod["metadata"]["uid"])
        self._health.publishers[node] = publisher

    async def _running_pod(self, name: str, namespace: str, meta: Object, spec: Object) -> Object:
        body = _object("v1", "Pod", name)
        body["metadata"] |= meta
        pod = await self._client.create(PODS, {**body, "spec": spec}, namespace)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(utc_now())}
        pod["status"] = {"phase": "Running", "conditions": [ready]}
        return await self._client.update_status(PODS, pod, namespace)

    async def _follow(
        self, resource: Resource, namespace: str | None, changed: Callable[[str, Object], None]
    ) -> None:
        """Watch the resource and start again where the server ends a watch."""
        version = ""
        while True:
            watch = self._client.watch(resource, namespace, resource_version=version)
            async for kind, obj in watch:
                version = obj["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    changed(kind, obj)
                    self._changed.set()

    def _node_changed(self, kind: str, node: Object) -> None:
        name, spec = node["metadata"]["name"], node["spec"]
        tainted = any(taint["key"] == names.TAINT_QUARANTINE for taint in spec.get("taints") or ())
        cordoned = bool(spec.get("unschedulable"))
        if name in self.detected and tainted and cordoned:
            self.quarantined.setdefault(name, time.time())
        elif name in self.quarantined and not tainted and not cordoned:
            self.released.setdefault(name, time.time())

    def _pod_changed(self, kind: str, pod: Object) -> None:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        left = self._workload.get(node, set())
        if kind == "DELETED":
            left.discard(name)
            if not left:
                self.empty.setdefault(node, time.time())
                self._reboot_if_due(node)
        elif pod["metadata"].get("deletionTimestamp") and name not in self._ending:
            self._ending.add(name)
            self._spawn(self._end(name))

    def _session_changed(self, kind: str, session: Object) -> None:
        node = session["spec"]["nodeName"]
        self._phases[node] = session.get("status", {}).get("phase", "")
        self._reboot_if_due(node)

    async def _end(self, pod: str) -> None:
        await asyncio.sleep(POD_ENDS_S)
        try:
            await self._client.delete(PODS, pod, _NAMESPACE, grace=0)
        except ApiError as error:
            if error.code != 404:
                raise

    def _reboot_if_due(self, node: str) -> None:
        due = self._phases.get(node) == Phase.QUARANTINED and not self._workload.get(node)
        if due and node not in self._rebooted:
            self._rebooted.add(node)
            self._spawn(self._reboot(node))

    async def _reboot(self, node: str) -> None:
        await asyncio.sleep(REBOOT_S)
        await self._client.patch(
            *(NODES, node, {"status": {"nodeInfo": node_info(node, boot=1)}}),
            subresource="status",
            content_type=STRATEGIC_MERGE_PATCH,
        )
        await self._health.recreated(node)

    async def _each(self, work: Iterable[Coroutine[Any, Any, Any]]) -> None:
        async def one(call: Coroutine[Any, Any, Any]) -> None:
            async with self._gate:
                await call

        await asyncio.gather(*map(one, work))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _object(api_version: str, kind: str, name: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def _pod_spec(node: str = "", gpus: int = 0) -> Object:
    container: Object = {"name": "main", "image": "registry.example/image:1"}
    if gpus:
        container["resources"] = {"limits": {GPU: str(gpus)}}
    return {"containers": [container], **({"nodeName": node} if node else {})}
