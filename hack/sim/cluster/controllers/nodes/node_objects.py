"""Node objects as a GPU cluster has them, and the changes a kubelet makes to its own.

The fleet builder and the fake kubelets use it. Pure: builds objects and patches.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers.pods import GPU, with_condition
from hack.sim.cluster.controllers.timestamps import stamp

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
