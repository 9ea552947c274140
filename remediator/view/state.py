"""What every page starts from: the fleet at one moment and the fleet rules' judgement of it, made
from this replica's own caches; and single reads of health objects.

Every replica serves, leading or not. A state is made at most every two seconds however many look,
and only while somebody looks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from remediator.kube import resources
from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.view.shapes import ReplicaShown
from rules.api import object_name
from rules.api.nodes import AgentPod, HealthView, NodeView, QuarantineView
from rules.fleet import common_cause, node_health, turns
from rules.fleet.common_cause import CommonCause
from rules.fleet.memory import FleetMemory
from rules.fleet.node_health import HealthNow, health_now
from rules.fleet.turns import FleetAssessment
from rules.session import observation
from rules.session.observation import FleetSnapshot

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
    """Label keys that name a node's pool and rack, the most specific first."""

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
    return next(filter(None, (common_cause.label_named(present, key) for key in wanted)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """The fleet as pages show it."""

    snapshot: FleetSnapshot
    replica: ReplicaShown
    """Who answers."""
    assessment: FleetAssessment = field(default_factory=FleetAssessment)
    common: tuple[CommonCause, ...] = ()
    """What nodes with the same fault share, of the nodes that the health status counted."""
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
        return node_health.health_unread(node, self._agents_on(node.name))

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
        return next(
            (s for s in reversed(self.by_node.get(node, ())) if observation.is_open(s)), None
        )


def sessions_by_node(
    sessions: Mapping[str, QuarantineView],
) -> dict[str, tuple[QuarantineView, ...]]:
    """Index of all sessions, each node's oldest first."""
    found: dict[str, tuple[QuarantineView, ...]] = {}
    for session in sorted(sessions.values(), key=lambda s: (s.metadata.created_at, s.name)):
        found[session.spec.node_name] = (*found.get(session.spec.node_name, ()), session)
    return found


KEPT_S: Final = 2.0
HEALTH_KEPT_S: Final = 20.0
_MOST_KEPT: Final = 64
_PER_SECOND: Final = 2.0
_BURST: Final = 10.0


class LiveSource:
    """The pages' source in a running remediator.

    The health of healthy nodes, which no watch brings, is read when somebody opens the page of
    one, kept for a while, and so seldom in a second that no visitor loads the API server.
    """

    def __init__(
        self,
        snapshot: Callable[[], FleetSnapshot],
        replica: Callable[[FleetSnapshot], ReplicaShown],
        clock: Clock,
        api: Api,
        keys: GroupKeys,
    ) -> None:
        self._snapshot = snapshot
        self._replica = replica
        self._clock = clock
        self._api = api
        self._keys = keys
        self._memory = FleetMemory()
        self._made: PageState | None = None
        self._made_at = float("-inf")
        self._making = asyncio.Lock()
        self._kept: OrderedDict[str, tuple[float, HealthView | None]] = OrderedDict()
        self._tokens = _BURST
        self._filled_at = clock.elapsed()

    async def state(self) -> PageState:
        """The fleet now, at most two seconds old."""
        async with self._making:
            if self._made is None or self._clock.elapsed() - self._made_at >= KEPT_S:
                # Copied before the first await: the caches go on, the page is of one moment.
                snapshot = _copied(self._snapshot())
                replica = self._replica(snapshot)
                self._made = await asyncio.to_thread(self._judged, snapshot, replica)
                self._made_at = self._clock.elapsed()
            return self._made

    async def health(self, node: str) -> HealthView | None:
        """At most 20 s old; the last known one when reads are too many."""
        now = self._clock.elapsed()
        at, known = self._kept.get(node, (float("-inf"), None))
        self._tokens = min(_BURST, self._tokens + (now - self._filled_at) * _PER_SECOND)
        self._filled_at = now
        if now - at < HEALTH_KEPT_S or self._tokens < 1:
            return known
        self._tokens -= 1
        # Kept before the answer comes, so that a second visitor does not ask again.
        self._keep(node, now, known)
        try:
            found = await self._api.get(object_name.api_path(resources.HEALTHS, node), HealthView)
        except ApiError:
            found = None
        self._keep(node, now, found)
        return found

    def _keep(self, node: str, at: float, health: HealthView | None) -> None:
        self._kept[node] = (at, health)
        self._kept.move_to_end(node)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    def _judged(self, snapshot: FleetSnapshot, replica: ReplicaShown) -> PageState:
        # A standby replica shows the same as the leader because it judges the same objects. A
        # judgement that fails leaves nothing half remembered.
        memory, self._memory = self._memory, FleetMemory()
        assessment = turns.judge_fleet(snapshot, memory)
        self._memory = memory
        return PageState(
            snapshot=snapshot,
            replica=replica,
            assessment=assessment,
            common=common_cause.common_causes(memory.census.labels, snapshot.healths),
            keys=self._keys,
            by_node=sessions_by_node(snapshot.quarantines),
        )


def _copied(snapshot: FleetSnapshot) -> FleetSnapshot:
    """With maps of its own; the views in them never change."""
    return dataclasses.replace(
        snapshot,
        nodes=dict(snapshot.nodes),
        healths=dict(snapshot.healths),
        quarantines=dict(snapshot.quarantines),
        counting=dict(snapshot.counted),
        records=dict(snapshot.records),
        pauses=dict(snapshot.pauses),
        agents=dict(snapshot.agents),
        maintenance_leases=dict(snapshot.maintenance_leases),
        device_taints=dict(snapshot.device_taints),
        gangs=dict(snapshot.gangs),
    )
