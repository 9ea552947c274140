"""A fleet as a description, and `apply_fleet`, which puts it into an API server.

Pools of nodes in racks and the workloads on them. Only nodes and owners are created: the pods come
from the controllers and the scheduler that run, ours or real ones.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers.nodes import node_object
from hack.sim.cluster.controllers.pods import GPU
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    STRATEGIC_MERGE_PATCH,
    Resource,
)

T = TypeVar("T")
_AT_ONCE = 32
POOL_LABEL = "pool"
RACK_LABEL = "topology.example.com/rack"
GPU_TOLERATION: Object = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes of one kind, named `<name>-0000` upwards, filled into racks of `rack_size`."""

    name: str
    nodes: int
    gpus: int = 8
    rack_size: int = 8
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget over a workload's pods; exactly one of the two limits."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A training Job over several nodes; an evicted pod costs nothing but itself."""

    name: str
    pods: int
    pool: str
    gpus: int = 8
    namespace: str = "training"
    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """An inference Deployment."""

    name: str
    replicas: int
    pool: str
    gpus: int = 1
    namespace: str = "serving"
    budget: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A DaemonSet on every node."""

    name: str
    namespace: str = "gpu-operator"
    tolerations: tuple[Object, ...] = (GPU_TOLERATION,)


DEVICE_PLUGIN = Daemon(name="nvidia-device-plugin-daemonset")
DCGM_EXPORTER = Daemon(name="nvidia-dcgm-exporter")
CNI = Daemon(name="cilium", namespace="kube-system", tolerations=({"operator": "Exists"},))

Workload = Gang | Serving | Daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Everything a simulated cluster holds at its start."""

    pools: tuple[Pool, ...]
    workloads: tuple[Workload, ...] = ()

    def node_names(self) -> list[str]:
        """All node names, pool by pool."""
        return [name for pool in self.pools for name in node_names(pool)]

    def namespaces(self) -> list[str]:
        """The namespaces that the workloads need."""
        return sorted({workload.namespace for workload in self.workloads})

    def pod_count(self) -> int:
        """How many pods run when every node takes every DaemonSet's pod."""
        nodes = len(self.node_names())
        return sum(
            workload.pods
            if isinstance(workload, Gang)
            else workload.replicas
            if isinstance(workload, Serving)
            else nodes
            for workload in self.workloads
        )


def node_names(pool: Pool) -> list[str]:
    """The names of a pool's nodes."""
    return [f"{pool.name}-{number:04d}" for number in range(pool.nodes)]


def rack_of(pool: Pool, number: int) -> str:
    """The rack of the pool's node of that number."""
    return f"{pool.name}-rack-{number // pool.rack_size:03d}"


IMAGE = "registry.example/workload:1"


def pod_template(
    app: str,
    *,
    gpus: int = 0,
    pool: str | None = None,
    tolerations: tuple[Object, ...] = (GPU_TOLERATION,),
    annotations: dict[str, str] | None = None,
) -> Object:
    """A pod template of one container, labelled `app`, kept to one pool where one is named."""
    resources: Object = {"requests": {"cpu": "100m", "memory": "256Mi"}}
    if gpus:
        resources["limits"] = {GPU: str(gpus)}
    spec: Object = {"containers": [{"name": "main", "image": IMAGE, "resources": resources}]}
    if tolerations:
        spec["tolerations"] = list(tolerations)
    if pool is not None:
        spec["nodeSelector"] = {POOL_LABEL: pool}
    meta: Object = {"labels": {"app": app}}
    if annotations:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": spec}


def manifest(workload: Workload) -> Object:
    """The object that owns the workload's pods."""
    match workload:
        case Gang():
            return _job(workload)
        case Serving():
            spec = {"replicas": workload.replicas, **_selection(workload.name)}
            spec["template"] = pod_template(
                workload.name,
                gpus=workload.gpus,
                pool=workload.pool,
            )
            return _object("apps/v1", "Deployment", workload, spec)
        case Daemon():
            return _daemon_set(workload)


def budget_manifest(workload: Workload) -> Object | None:
    """The workload's PodDisruptionBudget, named as the workload."""
    if isinstance(workload, Daemon) or workload.budget is None:
        return None
    return _object("policy/v1", "PodDisruptionBudget", workload, _budget_spec(workload))


def _budget_spec(workload: Gang | Serving) -> Object:
    budget = workload.budget or Budget()
    spec: Object = _selection(workload.name)
    if budget.min_available is not None:
        spec["minAvailable"] = budget.min_available
    if budget.max_unavailable is not None:
        spec["maxUnavailable"] = budget.max_unavailable
    return spec


def _job(gang: Gang) -> Object:
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    ignore = {"action": "Ignore", "onPodConditions": [disrupted]}
    template = pod_template(gang.name, gpus=gang.gpus, pool=gang.pool)
    template["spec"]["restartPolicy"] = "Never"
    spec = {
        "completions": gang.pods,
        "parallelism": gang.pods,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [ignore]},
        "template": template,
    }
    return _object("batch/v1", "Job", gang, spec)


def _daemon_set(daemon: Daemon) -> Object:
    template = pod_template(daemon.name, tolerations=daemon.tolerations)
    return _object(
        "apps/v1", "DaemonSet", daemon, {**_selection(daemon.name), "template": template}
    )


def _object(api_version: str, kind: str, workload: Workload, spec: Object) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "labels": {"app": workload.name},
        },
        "spec": spec,
    }


def _selection(app: str) -> Object:
    return {"selector": {"matchLabels": {"app": app}}}


async def apply_fleet(client: Client, fleet: Fleet, now: datetime) -> None:
    """Create namespaces, nodes, workloads and budgets."""
    await _each(fleet.namespaces(), lambda name: _ensure_namespace(client, name))
    nodes = [node for pool in fleet.pools for node in pool_nodes(pool, now)]
    await _each(nodes, lambda node: create_node(client, node))
    for workload in fleet.workloads:
        await client.create(_owners(workload), manifest(workload))
        if (budget := budget_manifest(workload)) is not None:
            await client.create(POD_DISRUPTION_BUDGETS, budget)


def _owners(workload: Workload) -> Resource:
    """The collection of the object that owns the workload's pods."""
    match workload:
        case Serving():
            return DEPLOYMENTS
        case Gang():
            return JOBS
        case Daemon():
            return DAEMON_SETS


def pool_nodes(pool: Pool, now: datetime) -> list[Object]:
    """The Node objects of a pool."""
    return [
        node_object(
            name,
            now=now,
            gpus=pool.gpus,
            labels={POOL_LABEL: pool.name, RACK_LABEL: rack_of(pool, number), **pool.labels},
        )
        for number, name in enumerate(node_names(pool))
    ]


async def create_node(client: Client, node: Object) -> Object:
    """Register a node as a kubelet does: the object, then a patch of its status.

    Others write to a new node too (its taint, its pod range): an update would meet a conflict.
    """
    await client.create(NODES, node)
    return await client.patch(
        NODES,
        node["metadata"]["name"],
        {"status": node["status"]},
        subresource="status",
        content_type=STRATEGIC_MERGE_PATCH,
    )


async def _ensure_namespace(client: Client, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await client.create(NAMESPACES, body)
    except ApiError as error:
        if error.code != 409:
            raise


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Do the work on every item, `_AT_ONCE` at a time."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> None:
        async with gate:
            await work(item)

    await asyncio.gather(*(one(item) for item in items))
