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
    product: str = "NVIDIA-H100-80GB-HBM3"
    instance_type: str = "p5.48xlarge"
    rack_size: int = 8
    zones: tuple[str, ...] = ("zone-a",)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget over a workload's pods; exactly one of the two limits."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pods: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A training Job over several nodes, Indexed; an evicted pod costs nothing but itself."""

    name: str
    pods: int
    pool: str
    gpus: int = 8
    namespace: str = "training"
    budget: Budget | None = None
    stop_after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """An inference Deployment."""

    name: str
    replicas: int
    pool: str
    gpus: int = 1
    namespace: str = "serving"
    budget: Budget | None = None
    stop_after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A DaemonSet on every node of the listed pools (of all pools without a list)."""

    name: str
    namespace: str = "gpu-operator"
    pools: tuple[str, ...] = ()
    tolerations: tuple[Object, ...] = (GPU_TOLERATION,)
    priority_class: str | None = None


DEVICE_PLUGIN = Daemon(name="nvidia-device-plugin-daemonset")
DCGM_EXPORTER = Daemon(name="nvidia-dcgm-exporter")
FEATURE_DISCOVERY = Daemon(name="gpu-feature-discovery")
NODE_EXPORTER = Daemon(
    name="node-exporter", namespace="monitoring", tolerations=({"operator": "Exists"},)
)
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


def idle_fleet(nodes: int) -> Fleet:
    """Nodes with nothing on them: what 5,000 healthy nodes cost."""
    return Fleet(pools=(Pool(name="gpu", nodes=nodes),))


def mixed_fleet(nodes: int, *, gang_size: int = 32, replicas: int = 64) -> Fleet:
    """Two thirds of the nodes train in gangs, the others serve with eight pods each.

    With its five DaemonSets this comes to a little over eight pods a node: 1,500 nodes carry
    12,500 pods.
    """
    training = nodes * 2 // 3
    serving = nodes - training
    gangs = tuple(
        Gang(
            name=f"llm-{number:03d}",
            pods=min(gang_size, training - number * gang_size),
            pool="train",
        )
        for number in range(-(-training // gang_size))
    )
    services = tuple(
        Serving(
            name=f"api-{number:03d}",
            replicas=min(replicas, serving * 8 - number * replicas),
            pool="serve",
            budget=Budget(max_unavailable="10%"),
        )
        for number in range(-(-serving * 8 // replicas))
    )
    return Fleet(
        pools=(
            Pool(name="train", nodes=training, zones=("zone-a", "zone-b")),
            Pool(name="serve", nodes=serving, zones=("zone-a", "zone-b")),
        ),
        workloads=(
            CNI,
            NODE_EXPORTER,
            DEVICE_PLUGIN,
            DCGM_EXPORTER,
            FEATURE_DISCOVERY,
            *gangs,
            *services,
        ),
    )
