"""Run the drains: one task per node that plans, and one eviction queue for all nodes.

`loop` sets per node whether pods may be evicted (`Evicting`). A pass takes the pods of the node
from a watch, or lists them, and makes a plan (`rules.drain.plan`). The queue
(`rules.drain.queue`) has at most one eviction in flight per PDB over all nodes.
`rules.drain.eviction` classifies each answer, and the drain's memory keeps it. A lost memory costs
time, never safety.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import structlog

from remediator.controller import evictions
from remediator.controller.drain_reads import DrainReader
from remediator.controller.evictions import Counting, OwnerEvents, PodRecheck
from remediator.controller.node_drain import NodeDrain
from remediator.controller.notices import Notices
from remediator.controller.pod_watch import PodWatch
from remediator.kube import clock
from remediator.kube.answer import ApiError, Result
from remediator.world import Edge, EdgePart
from rules.api import timestamps
from rules.api import writes as d
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.catalog.reason import DrainScope
from rules.drain import blockers, drain_plan, holdings
from rules.drain import queue as pdb_queue
from rules.drain.drain_plan import DrainInput, DrainPlan
from rules.drain.eviction import EvictionKind, EvictionOutcome, matching, needs_turn, no_answer
from rules.drain.memory import announced, answered, forced, not_forced, not_notified
from rules.drain.plan import kept_from_eviction, kept_from_force, plan_drain
from rules.policy.policy import Policy
from rules.session import causes, drain_scope

KeptFrom = Callable[[PodView, DrainInput, Policy, float], str]

_LOG = structlog.get_logger()

# A drain is woken by its watch, by the PDBs' watch and by its plan. Other changes wait this long.
_WAITING_S = 5.0
# While pods are leaving and no watch shows them, they are listed this often.
_LEAVING_S = 2.0
_FAILED_S = 2.0
_LONGEST_S = 60.0
# Events and answers come in bursts.
_BURST_S = 0.1
# The queue is checked again after this pause, and so many times the last check: 10 % of a core.
_PUMP_S, _PUMP_REST = 0.02, 9.0
# Owners that a plan still needs are read at once.
_SHORT_S = 0.25
# No pod is evicted on an older plan.
_LIST_OLD_S = 60.0


class Drains(EdgePart):
    """All drains and their common eviction queue."""

    def __init__(
        self,
        edge: Edge,
        *,
        reader: DrainReader,
        wake: Callable[[str], None],
        failed_s: float = _FAILED_S,
        listed_again_s: Callable[[DrainPlan], tuple[float, float]] = drain_plan.listed_again_s,
    ) -> None:
        super().__init__(edge)
        self._failed_s, self._pause_s = failed_s, listed_again_s
        self._wake = wake
        self._reader = reader
        self._notices = Notices(edge, reader=reader)
        self._drains: dict[str, NodeDrain] = {}
        self._queue = pdb_queue.PdbQueue()
        self._owner_events = OwnerEvents(edge)
        self._counting = Counting(lambda: edge.world.caches.pdbs.items)
        self._due = asyncio.Event()
        self.pods = PodWatch(edge, self._pods_changed)
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Send evictions that are due until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._notices.run())
                group.create_task(self.pods.run())
                while True:
                    began = self._clock.elapsed()
                    wait_s = self._pump(group)
                    took_s = self._clock.elapsed() - began
                    self._due.clear()
                    if await clock.heard(self._due, wait_s):
                        await self._clock.sleep(max(_PUMP_S, _PUMP_REST * took_s))
        finally:
            # The passes ended with the group: the next checks start their drains again.
            self._group, nodes = None, list(self._drains)
            self.stop_all()
            for node in nodes:
                self._wake(node)

    def plan(self, node: str) -> DrainPlan | None:
        """The node's plan as of the last list, with every answer since."""
        drain = self._drains.get(node)
        return drain.plan if drain is not None else None

    def steer(self, node: str, evicting: d.Evicting) -> None:
        """Start, go on with, or stop the node's drain."""
        drain = self._drains.get(node)
        sessions = self._world.open_sessions(node)
        if evicting is d.Evicting.NO or not sessions:
            if drain is not None:
                self._stop(node, drain)
            return
        session = sessions[0]
        if drain is not None and drain.session_uid == session.metadata.uid:
            if drain.steered is evicting:
                # The status may list the pods to evict now.
                self._due.set()
                if drain.unannounced and self._on_record(node):
                    drain.changed.set()
                return
            self._stop(node, drain)
        if self._group is None:
            return
        before, drain = drain, NodeDrain(session, evicting, self._clock.elapsed())
        self._drains[node] = drain
        if evicting is d.Evicting.GO:
            drain.watch = self.pods.follow(node)
        elif before is not None and before.session_uid == drain.session_uid:
            self._reuse(drain, before)
        drain.task = self._group.create_task(self._run(node, drain))

    def _reuse(self, drain: NodeDrain, before: NodeDrain) -> None:
        """Go on with the plan of the drained node instead of a list at once."""
        plan = before.plan if before.is_known_idle() else None
        if plan is not None and drain.steered is d.Evicting.WATCH:
            # A repair that is decided later needs newer lists.
            drain.plan = replace(plan, clear_since=None, others_clear_since=None)
        elif plan is not None and plan.others_clear_since is not None:
            drain.plan = plan

    def stop_all(self) -> None:
        """Stop all drains after losing leadership; requests in flight end by themselves."""
        for node, drain in list(self._drains.items()):
            self._stop(node, drain)

    def pdb_changed(self, key: str) -> None:
        """A PDB's watch saw a change: ask again at once."""
        self._counting.changed(key)
        self._queue = pdb_queue.pdb_changed(self._queue, key)
        self._due.set()

    def _pods_changed(self, node: str) -> None:
        if (drain := self._drains.get(node)) is not None:
            drain.changed.set()

    def _stop(self, node: str, drain: NodeDrain) -> None:
        self._drains.pop(node, None)
        if drain.watch is not None:
            self.pods.leave(drain.watch)
        # Break the reference cycle of task and drain, so that the plan is freed at once.
        task, drain.task = drain.task, None
        if task is not None:
            task.cancel()

    async def _run(self, node: str, drain: NodeDrain) -> None:
        if drain.watch is None and drain.plan is not None:
            await self._clock.sleep(self._listed_again_s(node, drain, drain.plan))
        while True:
            drain.changed.clear()
            sessions = self._world.open_sessions(node)
            if not sessions or sessions[0].metadata.uid != drain.session_uid:
                return
            try:
                wait_s = await self._pass(node, drain, sessions[0])
                drain.failures = 0
            except ApiError as error:
                _LOG.warning("drain pass", node=node, why=str(error))
                code = error.answer.code
                plan = drain_plan.not_listed(drain.memory, drain.plan, code, str(error))
                self._list_failed(node, drain, plan)
                wait_s = min(_WAITING_S, self._failed_s * drain.failures)
            except Exception as error:  # noqa: BLE001 - one node must not stop the others
                where = self._isolation.note("drain", f"node {node}", error)
                self._list_failed(node, drain, drain_plan.failed(drain.memory, drain.plan, where))
                wait_s = timestamps.backoff_s(drain.failures, _WAITING_S, _LONGEST_S)
            if await clock.heard(drain.changed, wait_s):
                await self._clock.sleep(_BURST_S)

    def _list_failed(self, node: str, drain: NodeDrain, plan: DrainPlan) -> None:
        """Stop evictions after a failed pass; report the failure from the second one on."""
        drain.failures += 1
        drain.wanted = ()
        if drain.failures >= drain_plan.REPORTED_FROM:
            if drain.steered is not d.Evicting.WATCH:
                drain.plan, drain.memory = plan, plan.memory
            self._wake(node)

    async def _pass(self, node: str, drain: NodeDrain, session: QuarantineView) -> float:
        """Plan; return the seconds until the next pass if nothing changes."""
        if drain.steered in {d.Evicting.WATCH, d.Evicting.CONFIRM_IDLE}:
            return await self._watch(node, drain, session)
        began = self._clock.elapsed()
        if drain.is_settled(began):
            return _WAITING_S
        settle_s = self._world.policy_of(node).drain.settle_s
        certain = drain.must_be_certain(settle_s, self._clock.now(), began)
        watched, listed_now = await drain.seen(self.pods, began, certain=certain)
        snapshot = self._world.snapshot()
        health = snapshot.healths.get(node)
        asking = causes.causes_in_effect(session, snapshot)
        listed = await self._reader.read(
            session,
            asking,
            drain.memory,
            drain.plan,
            last_active_at=self._world.active.get(drain.session_uid),
            dry_run=drain.dry_run,
            own_namespace=snapshot.own_namespace,
            scope=drain_scope.in_effect(
                session, asking, health, self._world.policy_of(node)
            ).scope,
            accused=drain_scope.accused_gpus(session, health),
            certain=certain,
            watched=watched,
        )
        now = self._clock.now()
        plan = plan_drain(listed, self._world.policy_of(node), drain.memory, now)
        drain.planned(listed, plan, began, listed=listed_now)
        self._due.set()
        self._wake(node)
        await self._force(node, drain, plan)
        drain.unannounced = bool(plan.notify) and not self._on_record(node)
        if plan.notify and not drain.unannounced:
            refused = await self._notices.send(plan)
            if refused is not None:
                drain.book(not_notified(drain.memory, refused))
        if plan.wants_owners and not drain.dry_run:
            return _SHORT_S
        if self._group is not None and (soon := drain.prepares_in_s(settle_s, now)) is not None:
            self._group.create_task(self.pods.prepare(soon))
        wait_s = _LEAVING_S if plan.leaving and drain.watched() is None else _WAITING_S
        if plan.wake_at is not None:
            wait_s = min(wait_s, max(0.05, plan.wake_at - self._clock.now()))
        return wait_s

    async def _watch(self, node: str, drain: NodeDrain, session: QuarantineView) -> float:
        """On a drained node, find pods that bypassed the scheduler, and check if it is empty."""
        close = drain.steered is d.Evicting.CONFIRM_IDLE
        # A drained node is not watched, and a repair must not start from a cached list.
        pods = await (self._reader.pods_on(node) if close else self._reader.cached_pods_on(node))
        now = self._clock.now()
        before, snapshot = drain.plan, self._world.snapshot()
        drained = drain_scope.recorded(session.status.drain)
        drain.plan = drain_plan.plan_watch(
            pods,
            node,
            causes.worst(causes.causes_in_effect(session, snapshot)),
            self._world.policy_of(node),
            drain.memory,
            since=timestamps.parse_time(session.status.phase_since) or now,
            now=now,
            before=before,
            certain=close,
            own_namespace=snapshot.own_namespace,
            scope=drained.scope if drained is not None else DrainScope.NODE,
            accused=drain_scope.accused_gpus(session, snapshot.healths.get(node)),
        )
        same = before is not None and (
            before.arrived == drain.plan.arrived and before.using_gpus == drain.plan.using_gpus
        )
        if close or not same:
            self._wake(node)
        return self._listed_again_s(node, drain, drain.plan)

    def _listed_again_s(self, node: str, drain: NodeDrain, plan: DrainPlan) -> float:
        """Seconds until the pods of a drained node are listed again."""
        if drain.steered is d.Evicting.CONFIRM_IDLE:
            return max(1.0, self._world.policy_of(node).drain.settle_s)
        return random.uniform(*self._pause_s(plan))

    async def _force(self, node: str, drain: NodeDrain, plan: DrainPlan) -> None:
        """Force pods off past the deadline, if the policy allows it: condition, then deletion."""
        for target, delete in plan.force:
            kept = partial(self._kept_from, kept_from_force, node, drain)
            about = PodRecheck(self._api, self._clock, delete, kept)
            sent = await self._gateway.send(target, about)
            if sent.done:
                sent = await self._gateway.send(delete, about)
            if sent.result is Result.REFUSED and sent.answer is not None:
                refusal = blockers.force_refusal(sent.answer.code, sent.answer.sentence())
                drain.book(not_forced(drain.memory, delete.uid, refusal))
            if sent.done:
                eviction = d.EvictPod(
                    node=delete.node, namespace=delete.namespace, name=delete.name, uid=delete.uid
                )
                drain.book(forced(drain.memory, eviction))
                self._metrics.evictions.labels("Forced").inc()
                self._owner_events.report(delete)

    def _kept_from(self, rule: KeptFrom, node: str, drain: NodeDrain, pod: PodView) -> str:
        """Why the pod must not be evicted now: the drain ended, or its plan or policy changed."""
        if self._drains.get(node) is not drain or drain.input is None:
            return "its drain was stopped"
        if self._clock.elapsed() - drain.planned_at > _LIST_OLD_S:
            return "the node's pods could not be listed for over a minute"
        known = holdings.as_listed(pod, drain.input.pods)
        return rule(known, drain.input, self._world.policy_of(node), self._clock.now())

    def _kept_from_eviction(self, drain: NodeDrain, eviction: d.EvictPod, pod: PodView) -> str:
        if all(wanted.uid != eviction.uid for wanted in drain.wanted):
            return "the plan leaves it alone by now"
        return self._kept_from(kept_from_eviction, eviction.node, drain, pod)

    def _pump(self, group: asyncio.TaskGroup) -> float | None:
        """Send due evictions; return the seconds until the next one is due, None if none is."""
        now = self._clock.now()
        wanted = [
            eviction
            for node, drain in self._drains.items()
            if drain.dry_run or self._on_record(node)
            for eviction in drain.wanted
            if drain.may_ask(eviction)
        ]
        self._queue, send = pdb_queue.due(self._queue, wanted, now)
        for eviction in send:
            group.create_task(self._evict(eviction))
        due_at = pdb_queue.next_due_at(self._queue, wanted, now)
        return None if due_at is None else max(0.01, due_at - now)

    def _on_record(self, node: str) -> bool:
        sessions = self._world.open_sessions(node)
        return bool(sessions) and announced(sessions[0].status.drain)

    async def _evict(self, eviction: d.EvictPod) -> None:
        outcome = no_answer("cancelled")
        try:
            outcome = await self._ask(eviction)
        except ApiError as error:
            outcome = no_answer(str(error))
        except Exception as error:  # noqa: BLE001 - one pod must not stop the others
            about = f"pod {eviction.namespace}/{eviction.name}"
            self._isolation.note("eviction", about, error)
        finally:
            self._answered(eviction, outcome)

    async def _ask(self, eviction: d.EvictPod) -> EvictionOutcome:
        """Read the pod again, then evict it."""
        drain = self._drains.get(eviction.node)
        if drain is None:
            return no_answer("its drain was stopped")
        kept = partial(self._kept_from_eviction, drain, eviction)
        listed = partial(drain.listed, eviction.uid, self._clock)
        about = PodRecheck(self._api, self._clock, eviction, kept, listed)
        why = await about.check()
        if (known := about.known()) is not None:
            return known
        if why or about.pod is None:
            return no_answer(why)
        pdbs = matching(about.pod, self._world.caches.pdbs.items.values())
        if not eviction.pdb and needs_turn(about.pod, pdbs):
            return EvictionOutcome(kind=EvictionKind.POD_CHANGED, message="a PDB protects it now")
        asked_at = self._counting.version(eviction.pdb)
        sent = await self._gateway.send(eviction, about)
        if (known := about.known()) is not None:
            return known
        if sent.result is Result.HELD:
            return no_answer("")
        if sent.answer is None:
            return no_answer(sent.why)
        outcome = evictions.outcome_of(sent.answer, about.pod, pdbs, self._clock.now())
        if outcome.unproven:
            return await about.confirmed(outcome)
        if outcome.accepted and eviction.pdb and not eviction.dry_run:
            await self._counting.counted(eviction, asked_at)
        return outcome

    def _answered(self, eviction: d.EvictPod, outcome: EvictionOutcome) -> None:
        if not eviction.dry_run:
            self._metrics.evictions.labels(outcome.kind.value).inc()
        if outcome.accepted:
            self._owner_events.report(eviction)
        now = self._clock.now()
        self._queue = pdb_queue.answered(self._queue, eviction, outcome, now, random.random())
        drain = self._drains.get(eviction.node)
        if drain is not None and drain.dry_run == eviction.dry_run:
            drain.answered_at[eviction.uid] = self._clock.elapsed()
            drain.book(answered(drain.memory, eviction, outcome))
            drain.changed.set()
        self._due.set()
