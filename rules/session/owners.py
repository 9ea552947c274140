"""Who else is working on a node: while they are, gpuward does no further harm to it.

Read by `rules.session.decide` and `rules.fleet.turns` at every decision. Names are those the
owners write: Cluster Autoscaler, Karpenter, GPU Operator (driver upgrade, MIG manager), kured, and
the Node maintenance Lease of medik8s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules.api import names
from rules.api.nodes import LeaseView, NodeView
from rules.api.timestamps import parse_time

_OWNER_TAINTS: Final = {
    "ToBeDeletedByClusterAutoscaler": "Cluster Autoscaler is removing the node",
    "karpenter.sh/disrupted": "Karpenter is replacing the node",
    "medik8s.io/drain": "the node maintenance operator is draining the node",
}
MAINTENANCE_NAMESPACE: Final = "medik8s-leases"
"""Where the medik8s operators keep their leases unless they are told otherwise."""
_MAINTENANCE_PREFIX: Final = "node-"
_KURED: Final = "weave.works/kured-reboot-in-progress"


def working_owner(node: NodeView, lease: LeaseView | None, now: float) -> str:
    """One clause naming who works on the node now; "" when nobody does."""
    if node.metadata.deletion_timestamp is not None:
        return "the node is being deleted"
    for taint in node.spec.taints:
        if taint.key in _OWNER_TAINTS:
            return _OWNER_TAINTS[taint.key]
    state = node.labels.get(names.LABEL_DRIVER_UPGRADE, "")
    if state in names.DRIVER_UPGRADING:
        return f"the GPU Operator is upgrading the driver ({state})"
    if node.labels.get(names.LABEL_MIG_STATE) in names.MIG_CHANGING:
        return "the MIG manager is changing the GPU partitions"
    paused = [
        (key, value)
        for key, value in node.labels.items()
        if value.startswith(names.PAUSED)
        and value != names.PAUSED_BY_US
        and key.startswith(names.PREFIX_GPU_DEPLOY)
    ]
    if paused:
        return f"the GPU Operator paused its pods ({min(paused)[1][:63]})"
    if _KURED in node.annotations:
        return "kured is rebooting the node"
    return _lease_owner(lease, now)


def failed_owner(node: NodeView) -> str:
    """One clause naming an owner whose work broke off and left the node to people; "" of none.

    It stops nothing here: what is done to the node is judged by what the agent sees.
    """
    if node.labels.get(names.LABEL_DRIVER_UPGRADE) == names.DRIVER_UPGRADE_FAILED:
        return (
            "the GPU Operator's driver upgrade failed here and waits for a person: see to its "
            "driver pod (kubectl get pods -A -o wide -l app.kubernetes.io/component=nvidia-driver "
            f"--field-selector spec.nodeName={node.name}), or label the node "
            f"{names.LABEL_DRIVER_UPGRADE}=upgrade-required to have it tried again"
        )
    return ""


def leases_by_node(leases: Iterable[LeaseView]) -> dict[str, LeaseView]:
    """The maintenance leases of that namespace, by the node that they are about."""
    return {
        lease.metadata.name.removeprefix(_MAINTENANCE_PREFIX): lease
        for lease in leases
        if lease.metadata.name.startswith(_MAINTENANCE_PREFIX)
    }


def _lease_owner(lease: LeaseView | None, now: float) -> str:
    if lease is None or not lease.spec.holder_identity:
        return ""
    renewed = parse_time(lease.spec.renew_time or "") or parse_time(lease.spec.acquire_time or "")
    duration_s = lease.spec.lease_duration_seconds or 0
    if renewed is None or now > renewed + duration_s:
        return ""
    return f"{lease.spec.holder_identity[:100]} holds the node's maintenance lease"
