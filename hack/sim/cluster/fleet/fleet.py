"""A fleet as a description: pools of nodes in racks, and the workloads that run on them.

Demo, benchmarks and tests write one and give it to `fleet_load.load`. Values only: no writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hack.sim.cluster.clients.client import Object

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
