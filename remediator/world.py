"""What this process knows of the cluster, shaped as the rules take it.

The caches fill it, answers to own writes fill it sooner, and the loop reads it: sessions by node,
health statuses of nodes that are no longer sick, sessions that somebody deleted, nodes whose
quarantine is on its way. Nothing here decides, and nothing here is needed after a restart.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from remediator.kube.api import Api
from remediator.kube.caches import Caches
from remediator.kube.clock import Clock
from remediator.kube.gateway import Gateway
from remediator.kube.isolation import Isolation
from remediator.kube.refusals import Refusals, Telling
from remediator.metrics import Metrics
from rules.api.nodes import HealthView, LeaseView, NodeView, PauseView, QuarantineView
from rules.api.refusal import NodeWrite
from rules.drain.gangs import Gang
from rules.policy.policy import Policy
from rules.session import external, history, observation, status
from rules.session.observation import FleetSnapshot, Vanished

# A deletion is acted on within seconds; a record of it older than this helps nobody.
_DELETIONS_KEPT = 64
# Objects that vanish within this time vanish together: a definition's end takes them one after the
# other.
_TOGETHER_S = 2.0
# A restored backup is seen by one cache after the other.
_REWOUND_S = 60.0


def availability(node: NodeView) -> tuple[object, ...]:
    """What the fleet rules read of a node."""
    return node.spec.unschedulable, node.ready, node.labels


def _nobody(*_: object) -> None:
    """Who hears of what is learned before anybody does."""


class World:
    """The fleet as known now."""

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
        """Those that have not ended: asked for at every check, however much history is kept."""
        self.counting: dict[str, QuarantineView] = {}
        """Sessions by name that the fleet rules may still count, however much history is kept."""
        self.deleted: dict[str, tuple[QuarantineView, ...]] = {}
        """Sessions that vanished while open, by node name."""
        self._vanished: dict[str, float] = {}
        """When the last of `deleted` vanished (CLOCK_BOOTTIME), by node name."""
        self._ended: dict[str, tuple[QuarantineView, ...]] = {}
        """Sessions that were deleted after their end, by node name."""
        self._ended_vanished: dict[str, float] = {}
        """When the last of `_ended` vanished (CLOCK_BOOTTIME), by node name."""
        self._lost: dict[str, str] = {}
        """Why nobody asked for what is in `deleted`, once that is settled, by node name."""
        self._vanished_pauses: dict[str, tuple[PauseView, float]] = {}
        """Pauses that vanished a moment ago, by name, and when (CLOCK_BOOTTIME)."""
        self.lost_pauses: dict[str, PauseView] = {}
        """Pauses that nobody ended, by name: in force until a pause is seen again."""
        self.healths: dict[str, HealthView] = {}
        self.learned: Callable[[QuarantineView | None, QuarantineView], None] = _nobody
        """Hears of sessions that this process wrote: their watch brings nothing new any more."""
        """Health statuses by node name: all sick ones, and those read for a session."""
        self.maintenance_leases: dict[str, LeaseView] = {}
        self.unselected: dict[str, NodeView] = {}
        """Nodes under session or with a taint and cordon that the policy's selector does not
        select.
        """
        self.reserved: set[str] = set()
        """Nodes whose quarantine was decided and is not in the cache yet."""
        self.external_seen: dict[str, Mapping[str, float]] = {}
        """Since when we have seen what others say on a node, in every replica."""
        self.refusals = Refusals(clock)
        """Writes on nodes that the API server refused a moment ago."""
        self.gangs: dict[str, tuple[Gang, ...]] = {}
        """Gangs with GPU pods on nodes whose session waits to be quarantined or drained, in every
        replica: a new leader knows them at once."""
        self.kueue_unhealthy: dict[str, tuple[str, ...]] = {}
        """Nodes that Kueue still replaces, by key of the gang."""
        self.not_kept: dict[str, float] = {}
        """Fields of a session's status that the API server dropped, and when it last did."""
        self.no_other_replica = False
        self.acting_since = 0.0
        self.active: dict[str, float] = {}
        """When each session was last decided with every write accepted, by UID."""
        self.doubts: list[Callable[[], str]] = [caches.too_old]
        """Who may say that something known is too old, or too uncertain, to rest disruption on."""
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
            observing_since=self.observing_since,
            acting_since=self.acting_since,
            doubt=self.doubt(),
            own_node=self._own_node,
            own_namespace=self.own_namespace,
            no_other_replica=self.no_other_replica,
            reserved=self.reserved,
            taint_refused=self.refusals.nodes(NodeWrite.MARK),
            gangs=self.gangs,
            not_kept={f for f, at in self.not_kept.items() if now - at < status.NOT_KEPT_S},
            kueue_unhealthy=self.kueue_unhealthy,
        )

    def doubt(self) -> str:
        """Why no disruption may rest on what is known now, a clause; empty when it may."""
        for ask in self.doubts:
            if why := ask():
                return why
        return ""

    def _nodes(self) -> Mapping[str, NodeView]:
        items = self.caches.nodes.items
        return ChainMap(items, self.unselected) if self.unselected else items

    def node_seen(self, name: str, node: NodeView | None) -> None:
        """A node as just read, written or watched outside the selection; None: it is gone."""
        if node is None or name in self.caches.nodes.items:
            self.unselected.pop(name, None)
        else:
            self.unselected[name] = node

    def learn_node(self, node: NodeView) -> None:
        """Take in a node that a write returned."""
        name = node.metadata.name
        if name in self.caches.nodes.items:
            self.caches.nodes.learn(node)
        else:
            self.node_seen(name, node)

    def note_external(self, name: str, node: NodeView | None) -> bool:
        """Keep since when others say what they say on the node; whether it is other than
        before.
        """
        known = self.external_seen.get(name, {})
        policy = self._policy()
        said = (
            external.first_seen(node, policy, known, self._clock.now()) if node is not None else {}
        )
        if said:
            self.external_seen[name] = said
        else:
            self.external_seen.pop(name, None)
        return said.keys() != known.keys()

    def open_sessions(self, node: str) -> list[QuarantineView]:
        """The node's sessions that have not ended, oldest first."""
        return list(self._open.get(node, ()))

    def nodes_with_open_sessions(self) -> list[str]:
        """Names of nodes with a session that has not ended."""
        return list(self._open)

    def session_changed(
        self, before: QuarantineView | None, after: QuarantineView | None
    ) -> Iterable[str]:
        """Keep the index; the names of the nodes concerned."""
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
        """How the sessions of a node that are gone went.

        An operator deletes one session of a definition that lives. What goes together with the
        sessions of other nodes, with its definition or with a restored backup, nobody asked for.
        History deletes ended sessions of many nodes at once, so only open ones count as many.
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
            # A later outage or restore does not change how it went.
            self._lost[node] = why
        # Once settled it stays so, also for a decision whose `now` was read before this one.
        settled_at = self._clock.now() + settled_in_s if settled_in_s > 0 else 0.0
        return Vanished(lost=why, settled_at=settled_at, ended=ended)

    def forget_deleted(self, node: str) -> None:
        """What followed from the sessions of the node that are gone is done."""
        self.deleted.pop(node, None)
        self._lost.pop(node, None)
        self._ended.pop(node, None)
        self._ended_vanished.pop(node, None)
        at = self._vanished.get(node)
        if at is not None and self._clock.elapsed() - at > 2 * _REWOUND_S:
            # Until then it tells of others that they went together with it.
            del self._vanished[node]

    def pause_changed(self, before: PauseView | None, after: PauseView | None) -> None:
        """A pause came, changed or vanished. Where there is one, it says what is paused."""
        if after is not None:
            self._vanished_pauses.clear()
            self.lost_pauses.clear()
        elif before is not None:
            self._vanished_pauses[before.metadata.name] = before, self._clock.elapsed()

    def pauses(self) -> Mapping[str, PauseView]:
        """The pauses in force: those there are, those that nobody ended, and for a moment those
        of which that is not known yet.
        """
        items = self.caches.pauses.items
        if not self._vanished_pauses and not self.lost_pauses:
            return items
        vanished = {name: pause for name, (pause, _) in self._vanished_pauses.items()}
        return {**self.lost_pauses, **vanished, **items}

    def settle_pauses(self) -> int | None:
        """Decide whether people ended the pauses that vanished a moment ago, by the rule for
        sessions; how many nobody ended, None where there is nothing to decide.
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
        """Leave out the ended sessions whose windows are over, and after a new policy count those
        whose windows are not.
        """
        now, policy = self._clock.now(), self._policy()
        self.counting = {
            name: session
            for name, session in self.caches.quarantines.items.items()
            if history.counts_until(session, policy) > now
        }

    def learn_session(self, session: QuarantineView) -> None:
        """Take in a session that a write returned."""
        before = self.caches.quarantines.items.get(session.name)
        taken = self.caches.quarantines.learn(session)
        if taken is not None:
            self.session_changed(before, taken)
            self.learned(before, taken)

    def health_changed(self, node: str, health: HealthView | None) -> None:
        """A sick health status came, changed, or is no longer sick (None)."""
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
    """One replica's hands and eyes."""

    api: Api
    gateway: Gateway
    telling: Telling
    world: World
    clock: Clock
    metrics: Metrics
    isolation: Isolation
    policy: Callable[[], Policy]
    may_act: Callable[[], bool]
    """This replica leads and its caches are complete."""


class EdgePart:
    """A part of a replica that works at its edge."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._api, self._gateway, self._world = edge.api, edge.gateway, edge.world
        self._telling = edge.telling
        self._clock, self._metrics, self._isolation = edge.clock, edge.metrics, edge.isolation
        self._policy, self._may_act = edge.policy, edge.may_act
