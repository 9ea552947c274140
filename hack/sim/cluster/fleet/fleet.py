"""A fleet as a description: pools of nodes in racks, the workloads on them and their manifests.

Demo, benchmarks and tests write one and give it to `fleet_load.load`. Values only: no writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers.pods import GPU

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
    """A DaemonSet on every node of the listed pools (of all pools without a list)."""

    name: str
    namespace: str = "gpu-operator"
    pools: tuple[str, ...] = ()
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
    if daemon.pools:
        term = {
            "matchExpressions": [
                {"key": POOL_LABEL, "operator": "In", "values": list(daemon.pools)}
            ]
        }
        required = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
        template["spec"]["affinity"] = {"nodeAffinity": required}
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
