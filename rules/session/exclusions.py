"""Exclusions of a node: the opt-out label, pauses, and other controllers that work on it.

Evaluated at every decision, for every turn, and again before every disruptive write. Recognized
owners are Cluster Autoscaler, Karpenter, GPU Operator (driver upgrade, MIG manager), kured, and
the node maintenance Lease of medik8s.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from rules.api import names, object_name, selectors, timestamps
from rules.api.metadata import LabelSelector
from rules.api.nodes import LeaseView, NodeView, PauseView
from rules.api.quarantine import PauseSpec
from rules.api.selectors import Matcher

if TYPE_CHECKING:
    from rules.session.observation import FleetSnapshot

_OWNER_TAINTS: Final = {
    "ToBeDeletedByClusterAutoscaler": "Cluster Autoscaler is removing the node",
    "karpenter.sh/disrupted": "Karpenter is replacing the node",
    "medik8s.io/drain": "the node maintenance operator is draining the node",
}
MAINTENANCE_NAMESPACE: Final = "medik8s-leases"
"""Default namespace of the leases of the medik8s operators."""
_MAINTENANCE_PREFIX: Final = "node-"
_KURED: Final = "weave.works/kured-reboot-in-progress"


def kept_off(node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return why gpuward must not act on the node now, as a clause; "" if it may."""
    if opted_out(node):
        return "the node is opted out"
    for pause in pauses_on(node, snapshot):
        return f"GPUWardPause {pause.metadata.name} covers the node"
    return owner_on(node, snapshot)


def owner_on(node: NodeView, snapshot: FleetSnapshot) -> str:
    """Return a clause naming the controller that works on the node in the snapshot; "" if none."""
    return working_owner(node, snapshot.maintenance_leases.get(node.name), snapshot.now)


def pauses_on(node: NodeView, snapshot: FleetSnapshot) -> tuple[PauseView, ...]:
    """Return the pauses that cover the node, sorted by name."""
    known = sorted(snapshot.pauses.items())
    return tuple(pause for _, pause in known if pause_covers(pause, node, snapshot.now))


def working_owner(node: NodeView, lease: LeaseView | None, now: float) -> str:
    """Return a clause naming the controller that works on the node now; "" if none."""
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
        if key.startswith(names.PREFIX_GPU_DEPLOY)
        and value.startswith(names.PAUSED)
        and value != names.PAUSED_BY_US
    ]
    if paused:
        return f"the GPU Operator paused its pods ({min(paused)[1][:63]})"
    if _KURED in node.annotations:
        return "kured is rebooting the node"
    return _lease_owner(lease, now)


def failed_owner(node: NodeView) -> str:
    """Return a clause naming a controller with failed work that needs an operator; "" if none.

    It does not exclude the node: the agent's health status decides.
    """
    if node.labels.get(names.LABEL_DRIVER_UPGRADE) == names.DRIVER_UPGRADE_FAILED:
        return (
            "the GPU Operator's driver upgrade failed and needs operator action: check its "
            "driver pod (kubectl get pods -A -o wide -l app.kubernetes.io/component=nvidia-driver "
            f"--field-selector spec.nodeName={node.name}), or label the node "
            f"{names.LABEL_DRIVER_UPGRADE}=upgrade-required to retry"
        )
    return ""


def leases_by_node(leases: Iterable[LeaseView]) -> dict[str, LeaseView]:
    """Return the maintenance leases by node name."""
    return {
        lease.metadata.name.removeprefix(_MAINTENANCE_PREFIX): lease
        for lease in leases
        if lease.metadata.name.startswith(_MAINTENANCE_PREFIX)
    }


def _lease_owner(lease: LeaseView | None, now: float) -> str:
    if lease is None or not lease.spec.holder_identity:
        return ""
    renewed = timestamps.parse_time(lease.spec.renew_time or "") or timestamps.parse_time(
        lease.spec.acquire_time or ""
    )
    duration_s = lease.spec.lease_duration_seconds or 0
    if renewed is None or now > renewed + duration_s:
        return ""
    return f"{lease.spec.holder_identity[:100]} holds the node's maintenance lease"


def pause_covers(pause: PauseView, node: NodeView, now: float) -> bool:
    """Return whether a pause covers the node now. An ambiguous pause covers every node."""
    return not pause_over(pause, now) and pause_means(pause, node)


def pause_means(pause: PauseView, node: NodeView) -> bool:
    """Return whether the scope of a pause includes the node."""
    spec = pause.spec
    if spec.scope.all or node.name in spec.scope.nodes or pause_doubt(pause):
        return True
    selector = _selector_of(spec)
    return selector is not None and selector(node.labels)


def pause_singles_out(pause: PauseView, node: NodeView, now: float) -> bool:
    """Return whether a pause covers the node by its name or labels, not as part of everything."""
    scope = pause.spec.scope
    picks = node.name in scope.nodes or any((scope.node_selector or {}).values())
    return picks and not scope.all and not pause_doubt(pause) and pause_covers(pause, node, now)


def pause_over(pause: PauseView, now: float) -> bool:
    """Return whether the pause has ended; an unreadable end counts as never."""
    until = timestamps.parse_time(pause.spec.until) if pause.spec.until else None
    return until is not None and now >= until


def pause_doubt(pause: PauseView) -> str:
    """Return why the scope of a pause is ambiguous; "" if it is not.

    Its author wants disruption to stop somewhere, so ambiguous means everywhere.
    """
    scope = pause.spec.scope
    if pause.doubt:
        return f"it cannot be read in full ({pause.doubt})"
    if scope.all:
        return ""
    if scope.node_selector is None and not scope.nodes:
        return "its scope is empty"
    if impossible := _impossible(scope.nodes):
        return f"{impossible} is no valid node name"
    try:
        _selector_of(pause.spec)
    except (msgspec.ValidationError, ValueError) as error:
        return f"its nodeSelector is invalid: {error}"[:300]
    return ""


@functools.lru_cache(maxsize=64)
def _impossible(nodes: tuple[str, ...]) -> str:
    """Return the first invalid node name, quoted. Cached: a pause may name thousands and is
    evaluated per node.
    """
    return next((f"{name!r:.80}" for name in nodes if not object_name.is_object_name(name)), "")


def _selector_of(spec: PauseSpec) -> Matcher | None:
    """Return the selector as a function; ValueError if it is invalid or has an unknown key."""
    if spec.scope.node_selector is None:
        return None
    return selectors.matcher(msgspec.convert(spec.scope.node_selector, _StrictSelector))


class _StrictSelector(LabelSelector, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rejects unknown keys: a misspelt key would select everything or nothing."""


def opted_out(node: NodeView) -> bool:
    """Return whether the opt-out label is set: gpuward reports the node and does not act on it."""
    return node.labels.get(names.LABEL_OPT_OUT) == "true"
