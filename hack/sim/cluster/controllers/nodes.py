"""Node objects of a GPU cluster, and the controllers that taint nodes and end orphaned pods.

A cordon becomes the taint `node.kubernetes.io/unschedulable` here, as in a real cluster, which is
also why a quarantining patch may meet a newer resourceVersion.
"""

import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key, key_of
from hack.sim.cluster.controllers.pods import GPU, stamp, with_condition
from hack.sim.cluster.controllers.running import (
    NOTHING,
    Controller,
    Delete,
    Outcome,
    Patch,
    UpdateStatus,
    Write,
    own_key,
    with_status,
)
from hack.sim.cluster.controllers.scheduler import UNSCHEDULABLE_TAINT
from hack.sim.cluster.resource import NODES, PODS

KERNEL = "6.8.0-1032-nvidia"
KUBELET = "v1.34.2"
_UP_FOR = timedelta(days=1)
"""A node that only just came up has its first uncordon taken for its driver manager's."""
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def boot_id(node: str, boot: int) -> str:
    """The kernel's boot ID of the given boot of a node: another one after each reboot."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}/boot/{boot}"))


def node_object(
    name: str,
    *,
    now: datetime,
    gpus: int = 8,
    product: str = "NVIDIA-H100-80GB-HBM3",
    instance_type: str = "p5.48xlarge",
    zone: str = "zone-a",
    labels: Mapping[str, str] | None = None,
    taints: list[Object] | None = None,
    cpu: str = "192",
    memory: str = "2Ti",
) -> Object:
    """A registered node that has been Ready for long. GPU labels are there only with GPUs."""
    gpu_labels = (
        {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": str(gpus),
            "nvidia.com/gpu.product": product,
        }
        if gpus
        else {}
    )
    capacity = {"cpu": cpu, "memory": memory, "pods": "250", "ephemeral-storage": "2Ti"}
    if gpus:
        capacity[GPU] = str(gpus)
    spec: Object = {"providerID": f"sim:///{zone}/{name}"}
    if taints:
        spec["taints"] = taints
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                # Kubelets still set these, and a controller manager adds them where they lack.
                "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": instance_type,
                "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": "region-1",
                **gpu_labels,
                **(labels or {}),
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": ready_conditions(
                ready_conditions([], ready=True, now=now - _UP_FOR), ready=True, now=now
            ),
            "addresses": [
                {"type": "InternalIP", "address": node_ip(name)},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": node_info(name, boot=0),
        },
    }


def node_info(name: str, *, boot: int) -> Object:
    """status.nodeInfo of one boot of a node."""
    machine = uuid.uuid5(uuid.NAMESPACE_DNS, name)
    return {
        "machineID": machine.hex,
        "systemUUID": str(machine),
        "bootID": boot_id(name, boot),
        "kernelVersion": KERNEL,
        "osImage": "Ubuntu 24.04.3 LTS",
        "containerRuntimeVersion": "containerd://2.1.4",
        "kubeletVersion": KUBELET,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def ready_conditions(conditions: list[Object], *, ready: bool, now: datetime) -> list[Object]:
    """The conditions a living kubelet reports, merged into those that others wrote."""
    beat = {"lastHeartbeatTime": stamp(now)}
    for kind, reason, message in _PRESSURES:
        entry = {"type": kind, "status": "False", "reason": reason, "message": message, **beat}
        conditions = with_condition(conditions, entry, stamp(now))
    entry = {
        "type": "Ready",
        "status": str(ready),
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "message": "kubelet is posting ready status" if ready else "container runtime is down",
        **beat,
    }
    return with_condition(conditions, entry, stamp(now))


def silent_conditions(conditions: list[Object], now: datetime) -> list[Object]:
    """What the node lifecycle controller writes for a kubelet that fell silent."""
    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready"):
        beat = next((c.get("lastHeartbeatTime") for c in conditions if c["type"] == kind), None)
        entry = {
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastHeartbeatTime": beat or stamp(now),
        }
        conditions = with_condition(conditions, entry, stamp(now))
    return conditions


def node_ip(name: str) -> str:
    """An address of the simulated machine network that stays the same for one node name."""
    number = zlib.crc32(name.encode())
    return f"10.{number & 63}.{number >> 8 & 255}.{1 + (number >> 16 & 127)}"


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
ORPHANED_S = 2.0
OWNED_KEYS = {UNSCHEDULABLE_TAINT, NOT_READY, UNREACHABLE}


def wanted_taints(node: Object) -> list[tuple[str, str]]:
    """(key, effect) of each taint that the node's state asks for."""
    taints: list[tuple[str, str]] = []
    if node.get("spec", {}).get("unschedulable"):
        taints.append((UNSCHEDULABLE_TAINT, "NoSchedule"))
    ready = pod_state.condition(node, "Ready")
    if ready is not None and ready["status"] != "True":
        key = UNREACHABLE if ready["status"] == "Unknown" else NOT_READY
        taints += [(key, "NoSchedule"), (key, "NoExecute")]
    return taints


def reconcile_taints(node: Object, now: datetime) -> Outcome:
    """Bring the taints of this controller in line; every other taint stays as it is."""
    present: list[Object] = node.get("spec", {}).get("taints") or []
    wanted = wanted_taints(node)
    kept = [
        taint
        for taint in present
        if taint["key"] not in OWNED_KEYS or (taint["key"], taint["effect"]) in wanted
    ]
    have = {(taint["key"], taint["effect"]) for taint in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": stamp(now)}
        for key, effect in wanted
        if (key, effect) not in have
    ]
    taints = [*kept, *added]
    if taints == present:
        return NOTHING
    patch = {"spec": {"taints": taints or None}}
    return Outcome(writes=(Patch(resource=NODES, target=node, patch=patch),))


def reconcile_orphan(pod: Object, now: datetime) -> Outcome:
    """A pod bound to a node that no longer exists ends Failed and is deleted (pod GC)."""
    writes: list[Write] = []
    if not pod_state.is_finished(pod):
        status = pod.get("status") or {}
        entry = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        }
        conditions = pod_state.with_condition(status.get("conditions"), entry, stamp(now))
        body = with_status(pod, {**status, "phase": "Failed", "conditions": conditions})
        writes.append(UpdateStatus(resource=PODS, body=body))
    writes.append(Delete(resource=PODS, target=pod, grace_s=0))
    return Outcome(writes=tuple(writes))


def _on_node_key(
    reconcile: Callable[[Object, datetime], Outcome],
) -> Callable[[Key, Caches, datetime], Outcome]:
    def reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
        node = caches[NODES].get(key)
        return NOTHING if node is None else reconcile(node, now)

    return reconcile_key


def taint_controller() -> Controller:
    """Taints nodes by their state."""
    return Controller(
        name="node-taints",
        routes={NODES: own_key},
        reconcile=_on_node_key(reconcile_taints),
    )


def orphan_controller() -> Controller:
    """Deletes pods of vanished nodes after 2 s (40 s in Kubernetes)."""

    def pods_of_gone_node(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
        if old is not None and new is None:
            for pod in caches[PODS].on_node(old["metadata"]["name"]):
                yield key_of(pod)

    def reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
        pod = caches[PODS].get(key)
        if pod is None or caches[NODES].get(("", pod_state.node_of(pod))) is not None:
            return NOTHING
        return reconcile_orphan(pod, now)

    return Controller(
        name="pod-garbage-collector",
        routes={NODES: pods_of_gone_node},
        reconcile=reconcile_key,
        settle_s=lambda _collection: ORPHANED_S,
    )
