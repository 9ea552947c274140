"""What every page starts from: the fleet at one moment and the fleet rules' judgement of it. Pure.

`live` makes it from the remediator's caches; tests make it from values.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from remediator.view.shapes import ReplicaShown
from rules.api.nodes import AgentPod, HealthView, NodeView, QuarantineView
from rules.fleet.common_cause import CommonCause, label_named
from rules.fleet.node_health import HealthNow, health_now, health_unread
from rules.fleet.turns import FleetVerdict
from rules.session.observation import is_open
from rules.session.snapshot import FleetSnapshot

_AGENTS_ON: Final = "agents by node"
"""In `FleetSnapshot.memo`, among names of nodes: none has a blank in it."""

POOL_KEYS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "*/pool",
    "*/nodepool",
    "node.kubernetes.io/instance-type",
)
RACK_KEYS: Final = (
    "topology.kubernetes.io/rack",
    "*/rack",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "gpuward.io/nvlink-domain",
    "topology.kubernetes.io/zone",
)
UNNAMED: Final = "other"
"""The group of a node that no key names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKeys:
    """Label keys that name a node's pool and rack, the most telling first."""

    pool: tuple[str, ...] = POOL_KEYS
    rack: tuple[str, ...] = RACK_KEYS

    @classmethod
    def of(cls, pool: str, rack: str) -> GroupKeys:
        """From two comma-separated settings; an empty one means the defaults."""
        return cls(pool=_keys(pool) or POOL_KEYS, rack=_keys(rack) or RACK_KEYS)

    def group(self, labels: Mapping[str, str]) -> tuple[str, str]:
        """Pool and rack, `other` where no key of the list is on the node."""
        present = frozenset(labels)
        pool, rack = _first(present, self.pool), _first(present, self.rack)
        return labels.get(pool, "") or UNNAMED, labels.get(rack, "") or UNNAMED


def _keys(text: str) -> tuple[str, ...]:
    return tuple(key for part in text.split(",") if (key := part.strip()))


@functools.lru_cache(maxsize=4096)
def _first(present: frozenset[str], wanted: tuple[str, ...]) -> str:
    """The key that names the group; nodes of a fleet carry few different sets of keys."""
    return next(filter(None, (label_named(present, key) for key in wanted)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """The fleet as pages show it."""

    snapshot: FleetSnapshot
    replica: ReplicaShown
    """Who answers."""
    verdict: FleetVerdict = field(default_factory=FleetVerdict)
    common: tuple[CommonCause, ...] = ()
    """What nodes with the same fault share, of the nodes that the verdict counted."""
    keys: GroupKeys = field(default_factory=GroupKeys)
    by_node: Mapping[str, tuple[QuarantineView, ...]] = field(default_factory=dict)
    """Sessions by node, oldest first."""
    read: Mapping[str, HealthView] = field(default_factory=dict)
    """Health of healthy nodes that was read because somebody looks at them."""

    @property
    def now(self) -> float:
        """The moment it shows, on the API server's clock."""
        return self.snapshot.now

    def known(self, node: str) -> HealthView | None:
        """The health of a node: watched where it is sick or has a session, else as read."""
        return self.snapshot.healths.get(node) or self.read.get(node)

    def health_now(self, node: NodeView) -> HealthNow:
        """How the node's GPUs are, by its health object where that is known."""
        if (health := self.known(node.name)) is not None:
            return health_now(node, health, self.snapshot.agents, self.now)
        return health_unread(node, self._agents_on(node.name))

    def _agents_on(self, node: str) -> Sequence[AgentPod]:
        """The agents' pods on one node; indexed once for all nodes of a page."""
        index: dict[str, list[AgentPod]] | None = self.snapshot.memo.get(_AGENTS_ON)
        if index is None:
            index = {}
            for pod in self.snapshot.agents.values():
                index.setdefault(pod.node, []).append(pod)
            self.snapshot.memo[_AGENTS_ON] = index
        return index.get(node, ())

    def open_session(self, node: str) -> QuarantineView | None:
        """The node's session that has not ended."""
        return next((s for s in reversed(self.by_node.get(node, ())) if is_open(s)), None)


def sessions_by_node(
    sessions: Mapping[str, QuarantineView],
) -> dict[str, tuple[QuarantineView, ...]]:
    """Index of all sessions, each node's oldest first."""
    found: dict[str, tuple[QuarantineView, ...]] = {}
    for session in sorted(sessions.values(), key=lambda s: (s.metadata.created_at, s.name)):
        found[session.spec.node_name] = (*found.get(session.spec.node_name, ()), session)
    return found
