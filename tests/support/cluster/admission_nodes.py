"""Nodes and callers as the server hands them to admission; used by the tests of the policies."""

import copy
from typing import Any

from rules.api import names

NODE_CLAIM = "authentication.kubernetes.io/node-name"
AGENT = "system:serviceaccount:gpuward:gpuward-agent"
REMEDIATOR = "system:serviceaccount:gpuward:gpuward-remediator"
BOUND = {NODE_CLAIM: ["gpu-1"]}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
HEALTHY = {"type": "GPUHealthy", "status": "True", "reason": "AllChecksPassing"}
FOREIGN_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OUR_TAINT = {"key": names.TAINT_QUARANTINE, "value": "Xid79", "effect": "NoSchedule"}


def node(**changes: Any) -> dict[str, Any]:
    """A node as the server stores it."""
    full: dict[str, Any] = {
        "metadata": {
            "name": "gpu-1",
            "uid": "u-1",
            "labels": {"kubernetes.io/hostname": "gpu-1", names.LABEL_HEALTH: "healthy"},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            "finalizers": ["example.com/keep"],
            "ownerReferences": [{"kind": "Machine", "name": "m", "uid": "m-1"}],
        },
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [FOREIGN_TAINT]},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"},
            "conditions": [READY, HEALTHY],
            "nodeInfo": {"bootID": "b"},
        },
    }
    return edited(full, changes)


def bare() -> dict[str, Any]:
    """A node just registered, with nothing that can be absent."""
    return {"metadata": {"name": "gpu-1", "uid": "u-1"}, "spec": {}, "status": {}}


def edited(original: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with values at dotted paths (`__` for a dot); None removes."""
    result = copy.deepcopy(original)
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = result
        for parent in parents:
            at = at.setdefault(parent, {})
        if value is None:
            at.pop(last, None)
        else:
            at[last] = value
    return result


def gpu_false(condition: str = "False") -> list[dict[str, str]]:
    """The conditions after a health status of the agent."""
    return [READY, {**HEALTHY, "status": condition}, {"type": "GPUDegraded", "status": "False"}]
