"""Puts one replica together and runs it until SIGTERM.

Called by `cli`. Everything is made here once and handed to whom it concerns; there are no globals.
Both replicas watch and serve; the one that leads writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from functools import partial

import structlog

from remediator.cycle.fleet import Fleet
from remediator.cycle.loop import ControlLoop
from remediator.cycle.node_cycle import CycleSenses, NodeCycle
from remediator.drain.drains import Drains
from remediator.drain.gang_scout import GangScout
from remediator.drain.kueue import KueueWorkloads
from remediator.drain.look import DrainLook
from remediator.kube.access import Access
from remediator.kube.api import Api, release_version
from remediator.kube.api_groups import ApiGroups
from remediator.kube.caches import Caches, Listeners, nodes_selected
from remediator.kube.clock import SystemClock
from remediator.kube.elector import Elector
from remediator.kube.gateway import Gateway
from remediator.kube.isolation import Isolation
from remediator.kube.pace import Pace, PaceLane, Rates
from remediator.kube.publisher_pods import PublisherPods
from remediator.metrics import Metrics
from remediator.page.hosts import hosts_of
from remediator.page.service import serve_page
from remediator.serve.logs import configure_logs
from remediator.serve.server import make_app, start_server
from remediator.serve.session_gauges import set_session_gauges
from remediator.settings import RemediatorSettings
from remediator.upkeep.housekeeping import Housekeeping
from remediator.upkeep.maintenance import MaintenanceLeases
from remediator.upkeep.policy_source import PolicySource
from remediator.view.grouping import GroupKeys
from remediator.view.live import LiveSource
from remediator.view.verdict_reader import VerdictReader, reading
from remediator.world import World
from rules.api.nodes import FreshNode, HealthView, NodeView, QuarantineView
from rules.api.quarantine import Phase
from rules.api.timestamps import parse_time
from rules.api.writes import MarkNode, Write
from rules.drain.daemon_sets import untolerating
from rules.drain.plan import DrainPlan
from rules.policy.policy import Policy
from rules.session.recheck import recheck
from rules.session.status import sentence

_LOG = structlog.get_logger()

# Without a tick of the dispatcher for this long the process is stuck and is to be restarted.
_STUCK_S = 60.0
# Phases of a session whose node is not marked yet.
_NEW = frozenset({"", Phase.PENDING})
# How long a shutdown may take before what is left is dropped; the lease expires by itself.
_SHUTDOWN_S = 5.0


def rates_of(policy: Policy) -> Rates:
    """Rates per lane: every mark and every eviction costs up to two reads and two records."""
    limits = policy.limits
    both = limits.marks_per_second + limits.evictions_per_second
    return Rates(
        per_second={
            PaceLane.MARK: limits.marks_per_second,
            PaceLane.EVICT: limits.evictions_per_second,
            PaceLane.READ: 2 * both,
            PaceLane.STATUS: both,
            PaceLane.RECORD: 2 * both,
        }
    )


class Replica:
    """All parts of one process, wired."""

    def __init__(self, settings: RemediatorSettings, access: Access) -> None:
        homes = access.namespaces(settings.namespace)
        self.settings = settings
        self.clock = SystemClock()
        self.metrics = Metrics()
        self.isolation = Isolation(self.clock, self.metrics.count_surprise)
        self.metrics.build_info.labels(release_version()).set(1)
        self.policy = PolicySource(
            settings.policy,
            shadow=settings.shadow,
            metrics=self.metrics,
            on_change=self._policy_changed,
        )
        self.policy.start()
        self.pace = Pace(rates_of(self.policy.policy), self.clock)
        self.api = Api(access, self.clock, self.pace, self.metrics.observe_call)
        self.caches = Caches(
            self.api,
            self.clock,
            node_selector=self.policy.policy.node_selector,
            namespace=homes[0],
            to=Listeners(
                node=self._node_changed,
                marked=self._marked_changed,
                health=self._health_changed,
                session=self._session_changed,
                pause=self._pauses_changed,
                pdb=self._pdb_changed,
                agent=self._wake,
            ),
            isolation=self.isolation,
        )
        self.world = World(
            self.caches,
            self.clock,
            policy=lambda: self.policy.policy,
            own_node=settings.node_name,
            namespace=lambda: self.elector.namespace,
        )
        self.elector = Elector(
            self.api,
            self.clock,
            namespaces=homes,
            identity=settings.identity,
            ready=lambda: not self.caches.problem(),
            on_start=self._took_over,
            on_stop=self._lost,
        )
        self.gateway = Gateway(
            self.api,
            self.clock,
            self.elector,
            self.metrics,
            mode=lambda: self.policy.mode,
            recheck=self._recheck,
        )
        self.fleet = Fleet(
            self.world,
            self.clock,
            self.metrics,
            wake=self._wake,
            may_judge=self.may_act,
            report=self.gateway.send,
            isolation=self.isolation,
        )
        publishers = PublisherPods(self.api, self.clock, self.caches)
        self.cycle = NodeCycle(
            self.api,
            self.gateway,
            self.world,
            self.clock,
            self.metrics,
            policy=lambda: self.policy.policy,
            publishers=publishers,
            senses=CycleSenses(
                permit=self.fleet.permit,
                judged=self.fleet.judged,
                fleet_changed=self.fleet.changed,
                plan=self._plan,
                untolerating=self._untolerating,
            ),
            isolation=self.isolation,
        )
        look = DrainLook(self.api, self.clock, self.caches)
        groups = ApiGroups(self.api, self.clock)
        self.maintenance = MaintenanceLeases(
            self.api,
            groups,
            self.world,
            self.clock,
            changed=self._maintenance_changed,
        )
        self.world.doubts += [self.maintenance.too_old, self._time_unknown]
        self.scout = GangScout(
            look,
            KueueWorkloads(self.api, groups),
            self.world,
            self.clock,
            ready=lambda: not self.caches.problem(),
            fleet_changed=self.fleet.changed,
            isolation=self.isolation,
        )
        self.housekeeping = Housekeeping(
            self.api,
            self.gateway,
            self.world,
            self.clock,
            self.metrics,
            policy=lambda: self.policy.policy,
            publishers=publishers,
            may_act=self.may_act,
            isolation=self.isolation,
        )
        self.drains = Drains(
            self.api,
            self.gateway,
            self.world,
            self.clock,
            self.metrics,
            look=look,
            policy=lambda: self.policy.policy,
            wake=self._wake,
            last_active_at=self.cycle.last_active_at,
            isolation=self.isolation,
        )
        self.loop = ControlLoop(
            self.world,
            self.clock,
            self.cycle,
            may_write=self.may_act,
            steer=self.drains.steer,
            hand_over=self.elector.step_aside,
            fleet_changed=self.fleet.changed,
            answered_at=self._answered_at,
            isolation=self.isolation,
        )

    def may_act(self) -> bool:
        """This replica leads and its caches are complete."""
        return self.elector.may_write() and not self.caches.problem()

    def ready(self) -> str:
        """Why this replica could do nothing to a node now, were it to lead."""
        return self.caches.problem() or sentence(self.world.doubt())

    def healthy(self) -> str:
        """Why this process should be restarted."""
        silent_s = self.clock.elapsed() - self.loop.ticked_at
        return f"The loop has not ticked for {silent_s:.0f} s." if silent_s > _STUCK_S else ""

    def parts(self) -> list[Coroutine[None, None, None]]:
        """Everything that runs in the background, each part kept apart from the others."""
        keep = self.isolation.keep
        return [
            *(keep("watch", cache.run) for cache in self.caches.all),
            keep("policy", partial(self.policy.watch, self.clock)),
            keep("election", self.elector.run),
            keep("fleet", self.fleet.run),
            keep("drains", self.drains.run),
            keep("loop", self.loop.run),
            keep("gangs", self.scout.run),
            keep("maintenance", self.maintenance.run),
            keep("housekeeping", self.housekeeping.run),
        ]

    def page_source(self) -> LiveSource:
        """What the review page shows: this replica's caches."""
        return LiveSource(
            self.world.snapshot,
            self.clock,
            VerdictReader(reading(self.api), self.clock),
            identity=self.settings.identity,
            leading=self.elector.may_write,
            problem=self.caches.problem,
            keys=GroupKeys.of(self.settings.page_pool_labels, self.settings.page_rack_labels),
        )

    def refresh(self) -> None:
        """Gauges that are only worth computing per scrape."""
        metrics, now = self.metrics, self.clock.elapsed()
        metrics.leader.set(1 if self.elector.may_write() else 0)
        metrics.view_too_old.set(1 if self.world.doubt() else 0)
        skew = self.clock.skew
        metrics.clock_skew.set(skew.seconds())
        metrics.count_clock(skew.jumps, skew.contradictions)
        with self.isolation.guard("metrics", "the gauges of sessions"):
            set_session_gauges(metrics, self.caches.quarantines.items.values())
        for cache in self.caches.all:
            name = cache.resource.name
            metrics.watch_synced.labels(name).set(1 if cache.synced else 0)
            metrics.undecodable.labels(name).set(cache.broken_objects)
            if cache.heard_at is not None:
                metrics.watch_staleness.labels(name).set(now - cache.heard_at)

    # Parts that are made before those they speak to go through these.

    def _wake(self, node: str) -> None:
        self.loop.wake(node)

    def _node_changed(self, name: str, before: NodeView | None, after: NodeView | None) -> None:
        if after is None:
            # Not selected any more is not gone: the mark stays ours.
            self.world.node_seen(name, self.caches.marked.items.get(name))
        self.loop.node_changed(name, before, after)

    def _marked_changed(self, name: str, before: NodeView | None, after: NodeView | None) -> None:
        if name not in self.caches.nodes.items:
            self.world.node_seen(name, after)
            self.loop.node_changed(name, before, after)

    def _health_changed(self, name: str, health: HealthView | None) -> None:
        self.loop.health_changed(name, health)

    def _session_changed(
        self, before: QuarantineView | None, after: QuarantineView | None
    ) -> None:
        self.loop.session_changed(before, after)
        self.scout.sessions_changed()

    def _maintenance_changed(self, node: str) -> None:
        self.fleet.changed()
        self.loop.wake(node)

    def _pauses_changed(self) -> None:
        self.loop.pauses_changed()

    def _pdb_changed(self, key: str) -> None:
        self.drains.pdb_changed(key)

    def _answered_at(self) -> float | None:
        return self.api.last_answer_at

    def _plan(self, node: str) -> DrainPlan | None:
        return self.drains.plan(node)

    def _recheck(self, write: Write, node: FreshNode) -> str:
        return recheck(write, node, self.world.snapshot()) or self._turn_over(write)

    def _turn_over(self, write: Write) -> str:
        """Why a first mark that waited for its turn must not go by now: the fleet moved on."""
        session = self.caches.quarantines.items.get(getattr(write, "session", ""))
        if not isinstance(write, MarkNode) or session is None or session.status.phase not in _NEW:
            return ""
        permit = self.fleet.permit(session.name)
        return "" if permit.start else f"its turn is over: {permit.message}"

    def _time_unknown(self) -> str:
        doubt = self.clock.skew.doubt
        return f"the time is not certain, {doubt}" if doubt else ""

    def _untolerating(self, node: NodeView) -> tuple[str, ...]:
        return untolerating(node, self.caches.daemon_sets.items.values())

    def _policy_changed(self, policy: Policy) -> None:
        self.pace.apply(rates_of(policy))
        if self.caches.nodes.resource != (selected := nodes_selected(policy.node_selector)):
            self.caches.nodes.use(selected)
        self.loop.wake_all()

    def _took_over(self, renewed: str) -> None:
        self.world.nobody_took_over = self.elector.nobody_took_over
        self.world.acting_since = now = self.clock.now()
        at = parse_time(renewed)
        if at is not None:
            self.cycle.took_over_at(min(at, now), list(self.caches.quarantines.items.values()))
        self.loop.wake_all()

    def _lost(self) -> None:
        self.drains.stop_all()


async def run(settings: RemediatorSettings) -> int:
    """Run until SIGTERM or SIGINT; AccessError or ListenError when nothing useful can run."""
    configure_logs()
    access = Access(settings.kubeconfig)
    await access.load()
    replica = Replica(settings, access)
    app = make_app(
        replica.metrics, healthy=replica.healthy, ready=replica.ready, refresh=replica.refresh
    )
    runner, port = await start_server(app, settings.listen)
    page = await serve_page(
        replica.page_source(), settings.page_listen, hosts_of(settings.page_hosts)
    )
    _LOG.info(
        "started",
        identity=settings.identity,
        server=access.host,
        port=port,
        namespace=replica.elector.namespace,
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await replica.api.open()
    tasks = replica.parts()
    try:
        await _until_stopped(tasks, stopped)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_S):
                await replica.elector.release()
        if page is not None:
            await page.cleanup()
        await replica.api.close()
        await runner.cleanup()
        _LOG.info("stopped")
    return 0


async def _until_stopped(parts: list[Coroutine[None, None, None]], stopped: asyncio.Event) -> None:
    """Run all parts; only one that cannot even be kept apart ends by itself, and the process."""
    tasks = [asyncio.create_task(part) for part in parts]
    waiter = asyncio.create_task(stopped.wait())
    done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (waiter, *tasks):
        task.cancel()
    await asyncio.gather(waiter, *tasks, return_exceptions=True)
    for task in done:
        if task is not waiter:
            task.result()
