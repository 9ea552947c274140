"""Nodes that detectors may not take: the control plane, and whoever is alone in its pool.

Used by `rules.fleet.turns` before a session starts and by `preflight` before anything happens, so
that both say the same. A person's request is never asked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rules.api.nodes import NodeView

_CONTROL_PLANE: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)
"""Labels that name a node's pool, the managed offerings' own first."""


def control_plane(node: NodeView) -> bool:
    """Whether the node carries the cluster itself."""
    return any(label in node.labels for label in _CONTROL_PLANE)


def pool_of(node: NodeView) -> str:
    """The node's pool as `label=value`; "" for the one pool of all nodes without such a label."""
    for label in POOL_LABELS:
        if label in node.labels:
            return f"{label}={node.labels[label]}"
    return ""


class NodePools:
    """The pools of the selected nodes."""

    def __init__(self, sizes: Counter[str]) -> None:
        """`sizes`: as somebody counts them, live."""
        self._sizes = sizes

    @classmethod
    def of(cls, selected: Iterable[NodeView]) -> NodePools:
        """The pools of these nodes."""
        return cls(Counter(map(pool_of, selected)))

    def alone(self, node: NodeView) -> str:
        """Why the node is the only one of its pool, as a clause; "" when it has company."""
        pool = pool_of(node)
        if self._sizes[pool] != 1:
            return ""
        if self._sizes.total() == 1:
            return "it is the only node that the policy selects, its work has nowhere to go"
        if pool:
            return f"it is the only node of its pool ({pool}), its work has nowhere to go"
        return (
            "it is the only selected node without a label that names a pool, which counts as a "
            f"pool of its own (a label such as {POOL_LABELS[-1]} would say where it belongs)"
        )
