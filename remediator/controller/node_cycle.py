"""Check one node: observe, decide and write, until nothing is left to do now.

The loop calls `NodeCycle.check` for every node that may need a change. Decisions come from
`rules.session.decide.decide`. This module reads what they need, sends their writes in order,
stores the answers and decides again. Two checks of one node never overlap.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from remediator import world
from remediator.controller.node_reads import NodeReads
from remediator.controller.writes import Writes
from remediator.kube.answer import ApiError, Result
from remediator.kube.other_apis import RepairObjects
from remediator.world import Edge, EdgePart
from rules.api import object_name, quarantine_taint, timestamps
from rules.api import writes as d
from rules.api.device_taints import TaintDevice, UntaintDevice
from rules.api.nodes import FreshNode, QuarantineView
from rules.api.refusal import surprise, unread
from rules.api.repair_writes import CreateTestJob, DeleteTestJob, WriteRepairObject
from rules.catalog.why_not import Refusal
from rules.drain import node_room
from rules.drain.drain_plan import DrainPlan
from rules.policy.policy import Policy
from rules.session import absent, observation
from rules.session.decide import decide
from rules.session.observation import NodeObservation, Permit
from rules.session.status import steady, with_refused_write, write_of

_LOG = structlog.get_logger()

# A few rounds complete everything that can be done at once. The limit protects the API server from
# a rule that never settles.
_ROUNDS = 12
# The node, the object and the template of a step, and the objects of every step that is undone.
_READS = 20
_EVIDENCE_FRESH_S = 4.0
_BACKOFF_S = (0.1, 30.0)
# After these the cached objects of the node are read again.
_ON_OBJECTS = WriteRepairObject | TaintDevice | UntaintDevice
# After a version conflict of these the node itself is read.
_ON_TAINT = d.TaintAndCordon | d.RemoveTaint
# The object changed or disappeared after the decision.
_CHANGED = frozenset({Result.CONFLICT, Result.GONE})
# About half a minute, so that a restart of the API server is not reported in every session.
_READS_FAILED_REPORTED_FROM = 9
# The shortest wait after an unexpected error, whatever wakes the node.
_SURPRISED_S = 5.0


class RestlessError(Exception):
    """Decisions about one node never settle: a rule undoes its own writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check, for the loop."""

    again_in_s: float | None = None
    """When to check again if nothing changes."""
    evicting: d.Evicting | None = None
    """What the drain may do; None when the check failed: leave it as it is."""
    hand_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReads:
    """Inputs of decisions that are not in the world."""

    permit: Callable[[str], Permit]
    """By session name."""
    judged: Callable[[QuarantineView], bool]
    """Whether the fleet assessment includes the session as it is now."""
    fleet_changed: Callable[[], None]
    plan: Callable[[str], DrainPlan | None]


Decide = Callable[[QuarantineView | None, NodeObservation, float, Policy], d.Decision]


class NodeCycle(EdgePart):
    """Checks nodes, for one process."""

    def __init__(
        self,
        edge: Edge,
        *,
        reads: NodeReads,
        objects: RepairObjects,
        collectors: CycleReads,
        decide: Decide = decide,
    ) -> None:
        super().__init__(edge)
        self._rules = decide
        self._reads = reads
        self._objects = objects
        self._collectors = collectors
        self._not_before: dict[str, float] = {}
        """Earliest next check (CLOCK_BOOTTIME) of nodes whose last check did not settle or had an
        unexpected error."""
        self._failures: dict[str, int] = {}
        self._logged: dict[str, str] = {}
        self._doubted: set[str] = set()
        """Nodes to read before the next decision: taint and cordon had a version conflict."""
        self._writes = Writes(edge, collectors.fleet_changed)

    async def check(self, name: str) -> CheckResult:
        """Do everything that can be done for this node now."""
        wait_s = self._not_before.get(name, float("-inf")) - self._clock.elapsed()
        if wait_s > 0:
            return CheckResult(again_in_s=wait_s)
        wake_s: list[float] = []
        result = CheckResult()
        for _ in range(_ROUNDS):
            try:
                progress, result, wake = await self._round(name)
            except ApiError as error:
                _LOG.warning("node check", node=name, why=str(error))
                wait_s = self._back_off(name)
                if self._failures[name] >= _READS_FAILED_REPORTED_FROM:
                    await self._explain(name, unread(str(error)))
                return CheckResult(again_in_s=wait_s)
            except Exception as error:  # noqa: BLE001 - one node must not stop the others
                return await self._surprised(name, error)
            wake_s.extend([wake] if wake is not None else [])
            if progress is Result.DONE:
                continue
            if progress is None:
                if result.evicting is not None:  # else a postponed status may be refused again
                    self._failures.pop(name, None)
                self._not_before.pop(name, None)
                break
            wake_s = [self._back_off(name)]
            break
        else:
            return await self._surprised(name, RestlessError(f"{_ROUNDS} rounds of writes"))
        return CheckResult(
            again_in_s=min(wake_s, default=None),
            evicting=result.evicting,
            hand_over=result.hand_over,
        )

    async def _surprised(self, name: str, error: Exception) -> CheckResult:
        """Handle an unexpected error: report it, leave the node as it is, try again later."""
        where = self._isolation.note("node_check", f"node {name}", error)
        wait_s = max(_SURPRISED_S, self._back_off(name))
        self._not_before[name] = self._clock.elapsed() + wait_s
        self._world.reserved.discard(name)
        await self._explain(name, surprise(where))
        return CheckResult(again_in_s=wait_s, evicting=d.Evicting.NO)

    async def _explain(self, name: str, refusal: Refusal) -> None:
        """Write to the session's status why it does not continue."""
        with self._isolation.guard("node_check", f"the status of the session of {name}"):
            for session in self._world.open_sessions(name)[:1]:
                status = with_refused_write(session.status, refusal, self._clock.now())
                if steady(status, session.status) != session.status:
                    write = write_of(session, status)
                    self._writes.learn(write, await self._gateway.send(write))

    async def _round(self, name: str) -> tuple[Result | None, CheckResult, float | None]:
        """Decide once for each open session, or once without one; return the result of the first
        write, the check result and the seconds until the next check.
        """
        await self._reads.read(name)
        fresh: FreshNode | None = None
        gone = False
        if name in self._doubted or self._unwatched(name):
            fresh = await self._fresh(name)
            gone = fresh is None
            self._doubted.discard(name)
        sessions: list[QuarantineView | None] = [*self._world.open_sessions(name)] or [None]
        outcome = CheckResult()
        wake_s = self._reads.evidence_due_s(name)
        for session in sessions:
            if session is not None and not self._judged(session):
                # The fleet wakes this node as soon as it has a permit.
                continue
            decision = self._decide(name, session, fresh, gone)
            for _ in range(_READS):
                if decision.needs_fresh_node:
                    fresh = await self._fresh(name)
                    gone = fresh is None
                    await self._reads.read_health(name, fresh)
                elif decision.needs_object is not None:
                    await self._objects.read(name, decision.needs_object)
                else:
                    break
                decision = self._decide(name, session, fresh, gone)
            if session is sessions[0]:
                outcome = CheckResult(evicting=decision.evicting, hand_over=decision.hand_over)
                self._say(name, decision)
            writes, postponed_s = self._writes.spread(session, decision)
            if decision.wake_at is not None:
                # Steps after a postponed status wait for it.
                wait_s = 0.05 if postponed_s is None else min(postponed_s, 1.0)
                due_s = max(wait_s, decision.wake_at - self._clock.now())
                wake_s = due_s if wake_s is None else min(wake_s, due_s)
            if postponed_s is not None:
                # The status of the drain is not stored yet: the drain continues meanwhile.
                outcome = replace(outcome, evicting=None)
                wake_s = postponed_s if wake_s is None else min(wake_s, postponed_s)
            result = await self._writes.carry_out(name, writes)
            if decision.step == absent.STEP_CREATE_AGAIN and result is Result.DONE:
                self._metrics.objects_lost.labels("GPUQuarantine").inc()
            if result in _CHANGED and any(isinstance(write, _ON_TAINT) for write in writes):
                self._doubted.add(name)
            if any(isinstance(write, _ON_OBJECTS) for write in writes):
                self._objects.forget(name)
            if any(isinstance(write, CreateTestJob | DeleteTestJob) for write in writes):
                self._reads.forget_job(name)
            accepted = result in {None, Result.DONE} and postponed_s is None
            if session is not None and accepted:
                # Before the next round: the credit for an outage is stored now.
                self._world.active[session.metadata.uid] = self._clock.now()
            if result is not None:
                return result, outcome, wake_s
        if sessions == [None] and not decision.unfinished:
            self._forget(name)
        return None, outcome, wake_s

    def _forget(self, name: str) -> None:
        """Drop everything known of a node without open sessions and unfinished work."""
        self._world.forget_deleted(name)
        if name not in self._world.caches.quarantined.items:
            self._world.unselected.pop(name, None)
        self._reads.forget(name)
        self._doubted.discard(name)
        self._world.refusals.forget(name)
        self._gateway.forget(name)
        self._objects.forget(name)
        if name not in self._world.caches.healths.items:
            self._world.health_changed(name, None)
        for session in self._world.sessions.get(name, ()):
            self._writes.forget(session)
            self._world.active.pop(session.metadata.uid, None)

    def _unwatched(self, name: str) -> bool:
        """Whether no watch shows a node with an open session: the policy does not select it and
        it has no quarantine label. Changes of such a node do not wake it.
        """
        caches = self._world.caches
        shown = name in caches.nodes.items or name in caches.quarantined.items
        return not shown and bool(self._world.open_sessions(name))

    def _judged(self, session: QuarantineView) -> bool:
        """Whether the fleet assessment includes a session that needs it."""
        if session.status.phase not in {"", "Pending", "Marked"}:
            return True
        return self._collectors.judged(session)

    def _decide(
        self, name: str, session: QuarantineView | None, fresh: FreshNode | None, gone: bool
    ) -> d.Decision:
        """Decide on one consistent state; nothing is awaited here."""
        snapshot = self._world.snapshot()
        managed = fresh or self._world.caches.managed_now(name)
        node = managed or snapshot.nodes.get(name)
        if node is None and not gone:
            # Not selected (any more) is not gone: the policy's selector may have changed.
            return d.Decision(step="ReadNode", because="not in the cache", needs_fresh_node=True)
        # The policy may have changed since the node was read.
        if node is not None:
            self._world.note_external(name, node)
        uid = session.metadata.uid if session else ""
        daemon_sets = self._world.caches.daemon_sets.items.values()
        sessions = self._world.sessions
        seen = replace(
            observation.observe(snapshot, name, sessions=sessions, session=session, node=managed),
            permit=self._collectors.permit(session.name) if session else Permit(),
            deleted=self._world.deleted.get(name, ()),
            vanished=self._world.vanished(name),
            untolerating=node_room.untolerating(node, daemon_sets) if node and session else (),
            plan=self._collectors.plan(name),
            last_active_at=self._world.active.get(uid),
            job=self._reads.job(name),
            refused=self._world.refusals.of(name),
            objects=self._objects.known(name),
            evidence=self._reads.evidence(session),
        )
        decision = self._rules(session, seen, snapshot.now, snapshot.policy_of(node))
        if any(isinstance(write, d.TaintAndCordon) for write in decision.writes):
            # Reserve the place in the budget at once.
            self._world.reserved.add(name)
        return decision

    async def _fresh(self, name: str) -> FreshNode | None:
        if not object_name.is_object_name(name):
            # A session may hold any text; no node can have this name.
            return None
        try:
            node = await self._gateway.fresh_node(name)
        except ApiError as error:
            # The node is gone only if the watch does not show it either.
            if error.answer.is_not_found(name) and name not in self._world.caches.nodes.items:
                self._world.reserved.discard(name)
                self._world.node_seen(name, None)
                return None
            if error.answer.is_not_found(name):
                self._world.caches.nodes.relist(f"the server has no node {name}")
            raise
        self._world.caches.nodes.contradicted_by(node)
        if name not in self._world.caches.nodes.items and self._world.open_sessions(name):
            known = self._world.unselected.get(name)
            if known is None or world.availability(known) != world.availability(node):
                self._collectors.fleet_changed()
            self._world.node_seen(name, node)
        if not quarantine_taint.quarantined(node):
            self._world.reserved.discard(name)
        return node

    def _back_off(self, name: str) -> float:
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        return timestamps.backoff_s(failures, *_BACKOFF_S)

    def _say(self, name: str, decision: d.Decision) -> None:
        """Log the decision if it is new."""
        text = f"{decision.step}|{decision.because}|{decision.blocked_by}|{decision.message}"
        if self._logged.get(name) == text or (
            decision.step == "Watch" and name not in self._logged
        ):
            return
        self._logged[name] = text
        _LOG.info(
            "cycle",
            node=name,
            step=decision.step,
            because=decision.because,
            blocked_by=decision.blocked_by or "",
            message=decision.message,
            mode=self._world.policy_of(name).mode,
        )
