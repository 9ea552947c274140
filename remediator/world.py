"""The state of the cluster as this process knows it, in the form that the rules take.

Caches and answers to own writes fill it: sessions by node, GPUNodeHealth objects, deleted
sessions, and nodes that are being quarantined. Nothing here is needed after a restart.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from remediator.kube.api import Api
from remediator.kube.caches import Caches
from remediator.kube.clock import Clock
from remediator.kube.gateway import Gateway
from remediator.kube.isolation import Isolation
from remediator.kube.refusals import EventSender, Refusals
from remediator.metrics import Metrics
from rules.api import resource_slices
from rules.api.nodes import HealthView, LeaseView, NodeView, PauseView, QuarantineView
from rules.api.refusal import NodeWrite
from rules.api.resource_slices import NodeTaints
from rules.drain.gangs import Gang
from rules.policy.policy import Policy
from rules.session import external, history, observation, status
from rules.session.observation import FleetSnapshot, Vanished

# The most deleted sessions that are kept per node.
_DELETIONS_KEPT = 64
# Objects that vanish within this time vanish together: deleting a CRD deletes them one by one.
_TOGETHER_S = 2.0
# Caches notice a restored backup at different times.
_REWOUND_S = 60.0


def availability(node: NodeView) -> tuple[object, ...]:
    """The parts of a node that the fleet rules read."""
    return node.spec.unschedulable, node.ready, node.labels


def _nobody(*_: object) -> None:
    """The default listener: does nothing."""


class World:
    """The fleet as last known."""

    def __init__(
        self,
        caches: Caches,
        clock: Clock,
        *,
        policy: Callable[[], Policy],
        own_node: str,
        own_namespace: str,
    ) -> None:
        self.caches = caches
        self.sessions: dict[str, list[QuarantineView]] = {}
        """All sessions by node name, oldest first."""
        self._open: dict[str, list[QuarantineView]] = {}
        """Open sessions by node name, so that a check does not search the history."""
        self.counting: dict[str, QuarantineView] = {}
        """Sessions by name that the fleet rules may still count."""
        self.deleted: dict[str, tuple[QuarantineView, ...]] = {}
        """Sessions that vanished while open, by node name."""
        self._vanished: dict[str, float] = {}
        """When the last of `deleted` vanished (CLOCK_BOOTTIME), by node name."""
        self._ended: dict[str, tuple[QuarantineView, ...]] = {}
        """Sessions that were deleted after their end, by node name."""
        self._ended_vanished: dict[str, float] = {}
        """When the last of `_ended` vanished (CLOCK_BOOTTIME), by node name."""
        self._lost: dict[str, str] = {}
        """Why no operator asked for the deletions in `deleted`, once decided, by node name."""
        self._vanished_pauses: dict[str, tuple[PauseView, float]] = {}
        """Pauses that vanished a moment ago, by name, and when (CLOCK_BOOTTIME)."""
        self.lost_pauses: dict[str, PauseView] = {}
        """Pauses that no operator ended, by name: in force until a pause is seen again."""
        self.healths: dict[str, HealthView] = {}
        """GPUNodeHealth by node name: all that are not Healthy, and those read for a session."""
        self.learned: Callable[[QuarantineView | None, QuarantineView], None] = _nobody
        """Called for sessions that this process wrote, because their watch event is no news."""
        self.maintenance_leases: dict[str, LeaseView] = {}
        self.unselected: dict[str, NodeView] = {}
        """Nodes with a session or a quarantine taint that the policy does not select."""
        self.reserved: set[str] = set()
        """Nodes with a decided quarantine that is not in the cache yet."""
        self.external_seen: dict[str, Mapping[str, float]] = {}
        """Since when this replica sees the conditions of external detectors, by node."""
        self.device_taints: dict[str, Mapping[str, NodeTaints]] = {}
        """Taints of devices that triggers of the policy name, by node and driver."""
        self.refusals = Refusals(clock)
        """Recently refused writes on nodes."""
        self.gangs: dict[str, tuple[Gang, ...]] = {}
        """Gangs with GPU pods on nodes that wait for quarantine or drain, in every replica."""
        self.kueue_unhealthy: dict[str, tuple[str, ...]] = {}
        """Nodes that Kueue still replaces, by key of the gang."""
        self.not_kept: dict[str, float] = {}
        """Fields of a session's status that the API server dropped, and when it last did."""
        self.no_other_replica = False
        self.acting_since = 0.0
        self.active: dict[str, float] = {}
        """When each session was last decided with every write accepted, by UID."""
        self.doubts: list[Callable[[], str]] = [caches.too_old]
        """Functions that return why data is too old or uncertain for a disruption, or ""."""
        self.observing_since = clock.now()
        self._clock = clock
        self._policy = policy
        self.own_namespace = own_namespace
        self._own_node = own_node

    def snapshot(self) -> FleetSnapshot:
        """The fleet at this moment; the maps are live and must be used before the next await."""
        now = self._clock.now()
        return FleetSnapshot(
            now=now,
            policy=self._policy(),
            nodes=self._nodes(),
            healths=self.healths,
            quarantines=self.caches.quarantines.items,
            counting=self.counting,
            records=self.caches.records.items,
            pauses=self.pauses(),
            agents=self.caches.agents,
            maintenance_leases=self.maintenance_leases,
            external_seen=self.external_seen,
            device_taints=self.device_taints,
            observing_since=self.observing_since,
            acting_since=self.acting_since,
            doubt=self.doubt(),
            own_node=self._own_node,
            own_namespace=self.own_namespace,
            no_other_replica=self.no_other_replica,
            reserved=self.reserved,
            taint_refused=self.refusals.nodes(NodeWrite.TAINT),
            gangs=self.gangs,
            not_kept={f for f, at in self.not_kept.items() if now - at < status.NOT_KEPT_S},
            kueue_unhealthy=self.kueue_unhealthy,
        )

    def doubt(self) -> str:
        """Why the known state allows no disruption now, a clause; "" if it does."""
        for ask in self.doubts:
            if why := ask():
                return why
        return ""

    def _nodes(self) -> Mapping[str, NodeView]:
        items = self.caches.nodes.items
        return ChainMap(items, self.unselected) if self.unselected else items

    def node_seen(self, name: str, node: NodeView | None) -> None:
        """Store a node that was read, written or watched outside the selection; None: gone."""
        if node is None or name in self.caches.nodes.items:
            self.unselected.pop(name, None)
        else:
            self.unselected[name] = node

    def learn_node(self, node: NodeView) -> None:
        """Store a node that a write returned."""
        name = node.metadata.name
        if name in self.caches.nodes.items:
            self.caches.nodes.learn(node)
        else:
            self.node_seen(name, node)

    def note_external(self, name: str, node: NodeView | None) -> bool:
        """Store since when external detectors report what they report on the node; return whether
        that changed.
        """
        known = self.external_seen.get(name, {})
        seen: Mapping[str, float] = {}
        if node is not None:
            policy = self._policy().of(node.labels)
            taints = self.device_taints.get(name, {})
            seen = external.first_seen(node, policy, known, self._clock.now(), taints)
        if seen:
            self.external_seen[name] = seen
        else:
            self.external_seen.pop(name, None)
        return seen.keys() != known.keys()

    def note_device_taints(self, node: str, driver: str, taints: NodeTaints) -> bool:
        """Store the taints of the driver's devices on the node; return whether they changed."""
        before = self.device_taints.pop(node, {})
        after = {**before, driver: taints}
        if taints == resource_slices.UNKNOWN:
            del after[driver]
        if after:
            self.device_taints[node] = after
        return after != before

    def policy_of(self, name: str) -> Policy:
        """The policy of the node; that of the fleet if the node is unknown."""
        node = self._nodes().get(name)
        return self._policy() if node is None else self._policy().of(node.labels)

    def open_sessions(self, node: str) -> list[QuarantineView]:
        """The node's sessions that have not ended, oldest first."""
        return list(self._open.get(node, ()))

    def nodes_with_open_sessions(self) -> list[str]:
        """Names of nodes with a session that has not ended."""
        return list(self._open)

    def session_changed(
        self, before: QuarantineView | None, after: QuarantineView | None
    ) -> Iterable[str]:
        """Update the indexes; return the names of the nodes concerned."""
        concerned = {session.spec.node_name for session in (before, after) if session is not None}
        if before is not None:
            self._index(before, None)
            self.counting.pop(before.name, None)
        if after is not None:
            self._index(after, after)
            if history.counts_until(after, self._policy()) > self._clock.now():
                self.counting[after.name] = after
        elif before is not None and observation.is_open(before):
            known = self.deleted.get(before.spec.node_name, ())
            self.deleted[before.spec.node_name] = (*known, before)[-_DELETIONS_KEPT:]
            self._vanished[before.spec.node_name] = self._clock.elapsed()
            self._lost.pop(before.spec.node_name, None)
        elif before is not None:
            ended = self._ended.get(before.spec.node_name, ())
            self._ended[before.spec.node_name] = (*ended, before)[-_DELETIONS_KEPT:]
            self._ended_vanished[before.spec.node_name] = self._clock.elapsed()
        return concerned

    def vanished(self, node: str) -> Vanished:
        """Whether an operator deleted the missing sessions of a node, or they were lost.

        An operator deletes one session while its CRD exists. Sessions are lost if they vanish
        together with those of other nodes, with their CRD or with a restored backup. Only open
        sessions count, because ended sessions of many nodes are deleted at once.
        """
        times = (self._vanished.get(node), self._ended_vanished.get(node))
        at = max((at for at in times if at is not None), default=None)
        ended = self._ended.get(node, ())
        if at is None:
            return Vanished()
        settled_in_s = at + _TOGETHER_S - self._clock.elapsed()
        others = [name for name, gone in self._vanished.items() if abs(gone - at) <= _TOGETHER_S]
        if node in self._lost:
            why = self._lost[node]
        elif abs(self.caches.rewound_at - at) <= _REWOUND_S:
            why = "the API server went back to an older state"
        elif len(others) > 1:
            why = f"the sessions of {len(others)} nodes vanished within {_TOGETHER_S:.0f} s"
        elif self.caches.quarantines.went_with_definition(at, _REWOUND_S):
            why = "the definition of GPUQuarantine was deleted"
        else:
            why = ""
        if why and settled_in_s <= 0:
            # A later outage or restore does not change the result.
            self._lost[node] = why
        # Once settled it stays settled, also for a decision with an earlier `now`.
        settled_at = self._clock.now() + settled_in_s if settled_in_s > 0 else 0.0
        return Vanished(lost=why, settled_at=settled_at, ended=ended)

    def forget_deleted(self, node: str) -> None:
        """Drop the deleted sessions of a node after their consequences are handled."""
        self.deleted.pop(node, None)
        self._lost.pop(node, None)
        self._ended.pop(node, None)
        self._ended_vanished.pop(node, None)
        at = self._vanished.get(node)
        if at is not None and self._clock.elapsed() - at > 2 * _REWOUND_S:
            # Until then it shows that others vanished together with it.
            del self._vanished[node]

    def pause_changed(self, before: PauseView | None, after: PauseView | None) -> None:
        """Handle a pause that was added, changed or deleted; an existing pause replaces lost
        ones.
        """
        if after is not None:
            self._vanished_pauses.clear()
            self.lost_pauses.clear()
        elif before is not None:
            self._vanished_pauses[before.metadata.name] = before, self._clock.elapsed()

    def pauses(self) -> Mapping[str, PauseView]:
        """The pauses in force: existing ones, lost ones, and for a moment those that vanished and
        are not decided yet.
        """
        items = self.caches.pauses.items
        if not self._vanished_pauses and not self.lost_pauses:
            return items
        vanished = {name: pause for name, (pause, _) in self._vanished_pauses.items()}
        return {**self.lost_pauses, **vanished, **items}

    def settle_pauses(self) -> int | None:
        """Decide as for sessions whether an operator ended the pauses that vanished; return how
        many were lost, None if there is nothing to decide.
        """
        gone_at = [at for _, at in self._vanished_pauses.values()]
        if not gone_at or self._clock.elapsed() - max(gone_at) <= _TOGETHER_S:
            return None
        cache = self.caches.pauses
        vanished, self._vanished_pauses = self._vanished_pauses, {}
        lost = (
            (len(vanished) > 1 and not cache.items)
            or any(abs(self.caches.rewound_at - at) <= _REWOUND_S for at in gone_at)
            or any(cache.went_with_definition(at, _REWOUND_S) for at in gone_at)
        )
        if not lost:
            return 0
        self.lost_pauses |= {name: pause for name, (pause, _) in vanished.items()}
        return len(vanished)

    def recount(self) -> None:
        """Select again the sessions that the fleet rules count, by time and policy."""
        now, policy = self._clock.now(), self._policy()
        self.counting = {
            name: session
            for name, session in self.caches.quarantines.items.items()
            if history.counts_until(session, policy) > now
        }

    def learn_session(self, session: QuarantineView) -> None:
        """Store a session that a write returned."""
        before = self.caches.quarantines.items.get(session.name)
        taken = self.caches.quarantines.learn(session)
        if taken is not None:
            self.session_changed(before, taken)
            self.learned(before, taken)

    def health_changed(self, node: str, health: HealthView | None) -> None:
        """Store a GPUNodeHealth that is not Healthy; None removes it."""
        if health is not None:
            self.healths[node] = health
        else:
            self.healths.pop(node, None)

    def _index(self, old: QuarantineView, new: QuarantineView | None) -> None:
        node = old.spec.node_name
        sessions = [s for s in self.sessions.get(node, ()) if s.name != old.name]
        if new is not None:
            sessions.append(new)
            sessions.sort(key=lambda s: (s.metadata.created_at, s.name))
        opened = [session for session in sessions if observation.is_open(session)]
        for index, found in ((self.sessions, sessions), (self._open, opened)):
            if found:
                index[node] = found
            else:
                index.pop(node, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The common dependencies of the parts of a replica."""

    api: Api
    gateway: Gateway
    events: EventSender
    world: World
    clock: Clock
    metrics: Metrics
    isolation: Isolation
    policy: Callable[[], Policy]
    may_act: Callable[[], bool]
    """Whether this replica leads and its caches are complete."""


class EdgePart:
    """Base of the parts of a replica."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._api, self._gateway, self._world = edge.api, edge.gateway, edge.world
        self._events = edge.events
        self._clock, self._metrics, self._isolation = edge.clock, edge.metrics, edge.isolation
        self._policy, self._may_act = edge.policy, edge.may_act
