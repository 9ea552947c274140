"""Create all parts of one replica and connect them.

Every replica watches and serves; only the leader writes.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial

from remediator import version
from remediator.controller import records
from remediator.controller.device_taint_watch import DeviceTaintWatch
from remediator.controller.drain_reads import DrainReader, MaintenanceLeases
from remediator.controller.drains import Drains
from remediator.controller.fleet import Fleet
from remediator.controller.gangs import GangScout, KueueWorkloads
from remediator.controller.housekeeping import Housekeeping, NewNodeTests
from remediator.controller.lifecycle import DrainConditions
from remediator.controller.loop import ControlLoop, WorkQueue
from remediator.controller.node_cycle import CycleReads, NodeCycle
from remediator.controller.node_reads import NodeReads
from remediator.controller.pod_groups import PodGroups
from remediator.controller.policy_source import LeaderReport, PolicySource
from remediator.controller.records import RecordKeeping
from remediator.kube import answer
from remediator.kube.access import Access
from remediator.kube.api import Api
from remediator.kube.caches import Caches, Listeners, PublisherPods
from remediator.kube.clock import RATES, CallQueue, Clock, RateLimiter
from remediator.kube.elector import Elector
from remediator.kube.gateway import Gateway
from remediator.kube.isolation import Isolation
from remediator.kube.other_apis import ApiGroups, RepairObjects
from remediator.kube.refusals import EventSender
from remediator.metrics import Metrics, set_gauges
from remediator.settings import RemediatorSettings
from remediator.view.shapes import ReplicaShown
from remediator.view.state import GroupKeys, LiveSource
from remediator.world import Edge, World
from rules.api import quarantine, timestamps
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.repair_writes import SetRepairCondition, WriteRepairObject
from rules.api.writes import TaintAndCordon, Write
from rules.fleet import node_health
from rules.policy.policy import Policy
from rules.session import observation, status
from rules.session.observation import FleetSnapshot
from rules.session.recheck import recheck

# Without a tick of the loop for this long, the process is stuck and must be restarted.
_STUCK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """The classes that use time and the API server; scenarios replace them for virtual time."""

    clock: Callable[[], Clock] = Clock
    rate_limiter: Callable[[Mapping[CallQueue, float], Clock], RateLimiter] = RateLimiter
    metrics: Callable[[], Metrics] = Metrics
    api: Callable[..., Api] = Api
    gateway: Callable[..., Gateway] = Gateway
    elector: Callable[..., Elector] = Elector
    isolation: Callable[..., Isolation] = Isolation


class Replica:
    """All parts of one process."""

    def __init__(
        self, settings: RemediatorSettings, access: Access, border: Border | None = None
    ) -> None:
        border = border or Border()
        self.settings = settings
        self.clock = border.clock()
        self.metrics = border.metrics()
        self.isolation = border.isolation(self.clock, self.metrics.count_surprise)
        self.metrics.build_info.labels(version.release_version()).set(1)
        self.policy = PolicySource(
            settings.policy,
            shadow=settings.shadow,
            builtin_validation=settings.builtin_validation,
            metrics=self.metrics,
            on_change=self._policy_changed,
        )
        self.policy.start()
        self.rate_limiter = border.rate_limiter(RATES, self.clock)
        self.api = border.api(access, self.clock, self.rate_limiter, self.metrics.observe_call)
        listeners = Listeners()
        self.caches = Caches(
            self.api,
            self.clock,
            node_selector=self.policy.policy.node_selector,
            namespace=settings.namespace,
            to=listeners,
            isolation=self.isolation,
        )
        self.world = World(
            self.caches,
            self.clock,
            policy=lambda: self.policy.policy,
            own_node=settings.node_name,
            own_namespace=settings.namespace,
        )
        self.elector: Elector = border.elector(
            self.api,
            self.clock,
            namespace=settings.namespace,
            identity=settings.identity,
            ready=lambda: not self.caches.problem(),
            time_known=lambda: not self.clock.skew.undecided,
            on_start=self._took_over,
            on_stop=self._deposed,
            annotations=LeaderReport(
                self.clock, self.ready, self.world.refusals.missing_session_right, self.policy
            ).annotations,
        )
        self.gateway = border.gateway(
            self.api,
            self.clock,
            self.elector,
            self.metrics,
            mode=lambda node: self.world.policy_of(node).mode,
            recheck=self._recheck,
            watched=lambda name: self.caches.nodes.items.get(name),
            watched_now=self.caches.node_now,
        )
        edge = Edge(
            api=self.api,
            gateway=self.gateway,
            events=EventSender(self.gateway, self.clock),
            world=self.world,
            clock=self.clock,
            metrics=self.metrics,
            isolation=self.isolation,
            policy=lambda: self.policy.policy,
            may_act=self.may_act,
        )
        self.queue = WorkQueue(self.clock)
        self.fleet = Fleet(edge, wake=partial(self.queue.add, urgent=True))
        reader = DrainReader(self.api, self.clock, self.caches)
        self.drains = Drains(edge, reader=reader, wake=self.queue.add)
        publishers = PublisherPods(self.api, self.clock, self.caches)
        groups = ApiGroups(self.api, self.clock)
        self.objects = RepairObjects(self.api, groups, self.clock)
        self.cycle = NodeCycle(
            edge,
            reads=NodeReads(edge, publishers),
            objects=self.objects,
            collectors=CycleReads(
                permit=self.fleet.permit,
                judged=self.fleet.judged,
                fleet_changed=self.fleet.changed,
                plan=self.drains.plan,
            ),
        )
        self.loop = ControlLoop(
            edge,
            self.cycle,
            self.queue,
            steer=self.drains.steer,
            hand_over=self.elector.step_aside,
            fleet_changed=self.fleet.changed,
        )
        self.maintenance = MaintenanceLeases(edge, groups, changed=self._maintenance_changed)
        self.device_taints = DeviceTaintWatch(edge, changed=self.loop.device_taints_changed)
        self.world.doubts += [self.maintenance.too_old, self._time_unknown]
        kueue = KueueWorkloads(self.api, groups)
        pod_groups = PodGroups(self.api, groups, self.clock)
        self.scout = GangScout(
            edge,
            reader,
            kueue,
            pod_groups,
            follow=self.drains.pods.read_early,
            fleet_changed=self.fleet.changed,
        )
        self.housekeeping = Housekeeping(edge, publishers=publishers)
        self.records = RecordKeeping(edge)
        self.drain_conditions = DrainConditions(edge)
        self.new_node_tests = NewNodeTests(edge)
        self.world.learned = self._session_learned
        listeners.node = self._node_changed
        listeners.quarantined = self._tainted_changed
        listeners.health = self._health_changed
        listeners.session = self._session_changed
        listeners.pause = self.loop.pauses_changed
        listeners.pdb = self.drains.pdb_changed
        listeners.agent = self._agent_changed
        listeners.evidence = self._evidence_changed

    def may_act(self) -> bool:
        """Whether this replica leads and its caches are complete."""
        return self.elector.may_write() and not self.caches.problem()

    def ready(self) -> str:
        """Why this replica could not act on a node now if it were the leader; "" if it could."""
        return self.caches.problem() or status.sentence(self.world.doubt())

    def healthy(self) -> str:
        """Why this process must be restarted; "" if it is healthy."""
        now = self.clock.elapsed()
        if (silent_s := now - self.loop.ticked_at) > _STUCK_S:
            return f"The loop has not ticked for {silent_s:.0f} s."
        if (rejected_s := self.api.rejection.lasts_s(now)) > answer.LONGEST_S:
            return (
                f"The API server and this process have rejected each other for {rejected_s:.0f} s:"
                " certificates or token do not match; a restart reads them again."
            )
        return ""

    def parts(self) -> list[Coroutine[None, None, None]]:
        """All background parts, isolated from each other."""
        keep = self.isolation.keep
        return [
            *(keep("watch", cache.run) for cache in self.caches.followed),
            keep("policy", partial(self.policy.watch, self.clock)),
            keep("election", self.elector.run),
            keep("fleet", self.fleet.run),
            keep("drains", self.drains.run),
            keep("loop", self.loop.run),
            keep("gangs", self.scout.run),
            keep("maintenance", self.maintenance.run),
            keep("watch", self.device_taints.run),
            keep("housekeeping", self.housekeeping.run),
            keep("new_nodes", self.new_node_tests.run),
            keep("records", self.records.run),
            keep("lifecycle", self.drain_conditions.run),
        ]

    def page_source(self) -> LiveSource:
        """The source of the review page: this replica's caches."""
        keys = GroupKeys.of(self.settings.page_pool_labels, self.settings.page_rack_labels)
        return LiveSource(self.world.snapshot, self._shown, self.clock, self.api, keys)

    def _shown(self, snapshot: FleetSnapshot) -> ReplicaShown:
        problem = self.ready()
        return ReplicaShown(
            identity=self.settings.identity,
            leading=self.elector.may_write(),
            mode=str(snapshot.policy.mode),
            problem=problem,
            leader_problem="" if problem else status.sentence(self.elector.leader_status.unable),
            policy_problem=self.policy.trouble,
            at=timestamps.format_time(snapshot.now),
            grafana=self.settings.grafana_url,
        )

    def refresh(self) -> None:
        """Update the gauges that are computed per scrape."""
        metrics, now = self.metrics, self.clock.elapsed()
        metrics.leader.set(1 if self.elector.may_write() else 0)
        metrics.view_too_old.set(1 if self.world.doubt() else 0)
        skew = self.clock.skew
        metrics.clock_skew.set(skew.seconds())
        metrics.count_clock(skew.jumps, skew.contradictions)
        for call_queue, limit in self.api.limits().items():
            metrics.api_in_flight_limit.labels(call_queue.value).set(limit)
        with self.isolation.guard("metrics", "the gauges of sessions"):
            set_gauges(metrics, self.world.snapshot())
        for cache in self.caches.followed:
            name = cache.resource.name
            metrics.watch_synced.labels(name).set(1 if cache.synced else 0)
            metrics.undecodable.labels(name).set(cache.broken_objects)
            if cache.heard_at is not None:
                metrics.watch_staleness.labels(name).set(now - cache.heard_at)

    def _node_changed(self, name: str, before: NodeView | None, after: NodeView | None) -> None:
        if after is None:
            # No longer selected is not gone: gpuward still owns its taint and cordon.
            self.world.node_seen(name, self.caches.quarantined.items.get(name))
        self.loop.node_changed(name, before, after)
        if (
            before is not None
            and after is not None
            and node_health.published_health(before) != node_health.published_health(after)
        ):
            self.housekeeping.check_soon(name)
        self.records.repair_reported(before, after)

    def _agent_changed(self, node: str) -> None:
        self.loop.wake(node)
        self.housekeeping.check_soon(node)

    def _tainted_changed(self, name: str, before: NodeView | None, after: NodeView | None) -> None:
        if name not in self.caches.nodes.items:
            self.world.node_seen(name, after)
            self.loop.node_changed(name, before, after)

    def _evidence_changed(self, name: str) -> None:
        session = self.caches.quarantines.items.get(name)
        if session is not None and observation.is_open(session):
            self.loop.wake(session.spec.node_name)

    def _health_changed(self, name: str, health: HealthView | None) -> None:
        self.loop.health_changed(name, health)
        self.records.node_changed(name)

    def _session_learned(
        self, before: QuarantineView | None, after: QuarantineView | None
    ) -> None:
        for name in records.session_nodes(before, after):
            self.records.node_changed(name)
        self.scout.sessions_changed()

    def _session_changed(
        self, before: QuarantineView | None, after: QuarantineView | None
    ) -> None:
        self._session_learned(before, after)
        self.loop.session_changed(before, after)

    def _maintenance_changed(self, node: str) -> None:
        self.fleet.changed()
        self.loop.wake(node)

    def _recheck(self, write: Write, node: NodeView) -> str:
        return recheck(write, node, self.world.snapshot()) or self._turn_over(write)

    def _turn_over(self, write: Write) -> str:
        """Why a first quarantine or a repair has no permit any more; "" if it has."""
        session = self.caches.quarantines.items.get(getattr(write, "session", ""))
        if isinstance(write, SetRepairCondition | WriteRepairObject):
            permit = self.fleet.permit(write.session)
            return "" if permit.repair else f"its turn is over: {permit.why}"
        if (
            not isinstance(write, TaintAndCordon)
            or session is None
            or session.status.phase not in quarantine.NOT_TAINTED_YET
        ):
            return ""
        permit = self.fleet.permit(session.name)
        return "" if permit.start else f"its turn is over: {permit.why}"

    def _time_unknown(self) -> str:
        doubt = self.clock.skew.doubt
        return f"the time is not certain, {doubt}" if doubt else ""

    def _policy_changed(self, policy: Policy) -> None:
        self.world.recount()
        self.caches.select(policy.node_selector)
        self.fleet.policy_changed()
        self.loop.wake_all()

    def _deposed(self) -> None:
        self.drains.stop_all()

    def _took_over(self, renewed: str) -> None:
        self.world.no_other_replica = self.elector.no_other_replica
        self.world.acting_since = now = self.clock.now()
        at = timestamps.parse_time(renewed)
        if at is not None:
            # Another replica was active until then, so there was no outage.
            for session in self.caches.quarantines.items.values():
                uid = session.metadata.uid
                self.world.active[uid] = max(min(at, now), self.world.active.get(uid, 0.0))
        self.records.took_over()
        self.loop.took_over()
