"""GPU DaemonSets that select a node and do not tolerate our taint: they could not come back.

A driver or device plugin rollout on a quarantined node would wait for ever, so sessions and `plan`
name them. Pure; called by the remediator before a decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules.api.mark import EFFECT
from rules.api.names import TAINT_QUARANTINE
from rules.api.nodes import NodeView
from rules.api.pods import DaemonSetView, Toleration

_GPU_KEYS: Final = ("nvidia.com/", "gpuward.io/", "feature.node.kubernetes.io/pci-10de")


def untolerating(node: NodeView, daemon_sets: Iterable[DaemonSetView]) -> tuple[str, ...]:
    """`namespace/name` of each, sorted. Affinity is not looked at: a name too many is harmless."""
    return tuple(
        sorted(
            f"{ds.metadata.namespace}/{ds.metadata.name}"
            for ds in daemon_sets
            if _is_for_gpus(ds)
            and _selects(ds, node)
            and not any(_tolerates(t) for t in ds.spec.template.spec.tolerations)
        )
    )


def _is_for_gpus(daemon_set: DaemonSetView) -> bool:
    """Drivers, plugins and exporters: they select or tolerate what only GPU nodes have."""
    spec = daemon_set.spec.template.spec
    keys = [*spec.node_selector, *(toleration.key for toleration in spec.tolerations)]
    return any(key.startswith(_GPU_KEYS) for key in keys)


def _selects(daemon_set: DaemonSetView, node: NodeView) -> bool:
    wanted = daemon_set.spec.template.spec.node_selector
    return all(node.labels.get(key) == value for key, value in wanted.items())


def _tolerates(toleration: Toleration) -> bool:
    if toleration.effect not in {"", EFFECT}:
        return False
    if toleration.key == "":
        return toleration.operator == "Exists"
    return toleration.key == TAINT_QUARANTINE
