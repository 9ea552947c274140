"""Hand-made nodes, health statuses and sessions around a fixed moment, for the tests of the
commands.
"""

from typing import Any

from hack.sim.cluster.resource import Resource
from rules.api import messages
from rules.api.evidence import digest
from rules.api.quarantine import Cause
from rules.api.timestamps import format_time, parse_time

NOW = parse_time("2026-03-05T12:00:00Z") or 0.0
XID_95 = "NVRM: Xid (PCI:0000:9d:00): 95, pid=7731, name=tritonserver, Uncontained ECC error"
HEALTHS = Resource("gpuward.io", "v1alpha1", "gpunodehealths", False, "GPUNodeHealth")
QUARANTINES = Resource("gpuward.io", "v1alpha1", "gpuquarantines", False, "GPUQuarantine")
EVIDENCES = Resource("gpuward.io", "v1alpha1", "gpuevidences", False, "GPUEvidence")
EVIDENCE = "gpu-7-0a1b2c3d"
PAUSES = Resource("gpuward.io", "v1alpha1", "gpuwardpauses", False, "GPUWardPause")
HEALTHY, UNKNOWN, BLOCKED, GONE = "gpu-healthy", "gpu-unknown", "gpu-blocked", "gpu-gone"
STATES = (HEALTHY, UNKNOWN, BLOCKED, GONE)
Object = dict[str, Any]


def ago(minutes: float) -> str:
    """Half a minute off the entire, so that ages do not flip while a test runs."""
    return format_time(NOW - minutes * 60 - 30)


def node(name: str, health: str = "healthy", **changes: Any) -> Object:
    labels = {
        "gpuward.io/gpus": "8",
        "gpuward.io/health": health,
        "gpuward.io/product": "NVIDIA-H100-80GB-HBM3",
        "gpuward.io/driver": "580.95.05",
        "gpuward.io/interconnect": "nvswitch",
        **changes.get("labels", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name, "labels": labels, "annotations": changes.get("annotations", {}),
        },
        "spec": changes.get("spec", {}),
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": f"boot-{name}"},
        },
    }  # fmt: skip


def policy_map(text: str) -> Object:
    """The ConfigMap of the policy in namespace gpuward."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpuward-policy", "namespace": "gpuward"},
        "data": {"policy.yaml": text},
    }


def quarantined(name: str, session: str, health: str = "unhealthy", **changes: Any) -> Object:
    """A node with our taint and cordon and somebody's taint."""
    note = f'{{"session":"{session}","at":"{ago(14)}","mark":"CordonAndTaint"}}'
    return node(
        name,
        health,
        annotations={"gpuward.io/session": note, **changes.get("annotations", {})},
        spec={
            "unschedulable": True,
            "taints": [
                {"key": "example.com/mine", "value": "x", "effect": "NoExecute"},
                {"key": "gpuward.io/quarantine", "value": "Xid95", "effect": "NoSchedule"},
            ],
        },
    )


def gpu_health(name: str, **changes: Any) -> Object:
    status = {
        "publisher": {"heartbeat": ago(1)},
        "bootID": f"boot-{name}",
        "observedAt": ago(60),
        "driverVersion": "580.95.05",
        "health": "Healthy",
        "gpusHealthy": "8/8",
        "sources": [{"name": "nvml", "state": "Up"}, {"name": "kmsg", "state": "Up"}],
        **changes,
    }
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUNodeHealth",
        "metadata": {"name": name},
        "status": status,
    }


def sick(name: str, line: str = XID_95, **changes: Any) -> Object:
    incident = {
        "id": f"i-{name}",
        "reason": "Xid95UncontainedMemoryError",
        "severity": "Fatal",
        "level": "Drain",
        "recommendedAction": "ResetGPU",
        "gpus": [f"GPU-{name}-4"],
        "active": True,
        "firstSeen": ago(15),
        "lastSeen": ago(14),
        "closesOn": "Reset",
        "count": 2,
        "evidence": [line],
    }
    gpu = {
        "uuid": f"GPU-{name}-4", "index": 4, "pci": "0000:9d:00.0", "serial": "1654023014005",
        "product": "NVIDIA H100 80GB HBM3", "health": "Unhealthy",
    }  # fmt: skip
    incidents = [] if changes.pop("closed", False) else [incident]
    return gpu_health(
        name, health="Unhealthy" if incidents else "Healthy", gpusHealthy="7/8", gpus=[gpu],
        reason="Xid95UncontainedMemoryError" if incidents else "", incidents=incidents,
        observedAt=ago(14), **changes,
    )  # fmt: skip


def session(name: str, on: str, phase: str, message: str, **changes: Any) -> Object:
    cause = {
        "source": "Detector", "incident": f"i-{on}", "reason": "Xid95UncontainedMemoryError",
        "severity": "Fatal", "message": changes.pop("line", XID_95),
    }  # fmt: skip
    spec = {"nodeName": on, "causes": [cause], "level": "Drain", **changes.pop("spec", {})}
    steps = changes.pop("steps", ("Pending",))
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUQuarantine",
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "mode": "Enforce",
            "phase": phase,
            "phaseSince": ago(14),
            "message": message,
            "timeline": [
                {"at": ago(14), "step": step, "message": "as it was then", "by": "gpuward"}
                for step in steps
            ],
            **changes,
        },
    }


def condition(kind: str, reason: str, message: str) -> Object:
    return {
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": ago(13),
    }  # fmt: skip


def waiting(on: str, reason: str, why: str, *more: Object, **changes: Any) -> Object:
    """A session that may not start yet."""
    fault = Cause(source="Detector", reason="Xid95UncontainedMemoryError", severity="Fatal")
    message = messages.pending([fault], why)
    blocked = condition("Blocked", reason, f"Waiting: {why}.")
    return session(
        f"{on}-0badcafe", on, "Pending", message, conditions=[blocked, *more], **changes
    )


def kept(name: str = EVIDENCE, node: str = "gpu-7", **changes: Any) -> Object:
    """A GPUEvidence as an agent writes it."""
    gpu = {
        "uuid": "GPU-7", "index": 3, "pci": "0000:4e:00.0", "product": "NVIDIA H100 80GB HBM3",
        "serial": "1650522003820", "board": "2G520-0000-000", "vbios": "96.00.74.00.01",
        "readings": [{"signal": "ecc_uncorrected_volatile", "value": "4"}],
        "links": ["to GPU-8: NV18"],
    }  # fmt: skip
    incident = {
        "id": "i1", "reason": "Xid79GPUFallenOffBus", "severity": "Fatal", "active": True,
        "gpus": ["GPU-7"], "evidence": ["NVRM: Xid 79 \x1b[2J"],
        "recommendedAction": "RestartNode",
    }  # fmt: skip
    spec: dict[str, Any] = {
        "session": name, "nodeName": node, "takenAt": "2026-03-05T11:00:00Z",
        "driverVersion": "580.95.05", "gpus": [gpu], "incidents": [incident],
        "kernelLog": "NVRM: first\nNVRM: last", "kernelLinesDropped": 0, **changes,
    }  # fmt: skip
    spec = {**spec, "sha256": changes.get("sha256") or digest(spec)}
    return {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUEvidence",
        "metadata": {"name": name},
        "spec": spec,
    }
