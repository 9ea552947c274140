"""One check at one node: observe, decide, carry out, until nothing is left to do now.

The loop calls `NodeCycle.look` for every node that may need something. Decisions are
`rules.session.decide.decide`; this module gathers what they ask for, hands their writes to the
gateway in order, takes the answers into the world and decides again. Two checks at one node never
overlap.
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
from rules.api.nodes import FreshNode, QuarantineView
from rules.api.refusal import surprise, unread
from rules.api.repair_writes import CreateTestJob, DeleteTestJob, WriteRepairObject
from rules.catalog.why_not import Refusal
from rules.drain import node_room
from rules.drain.drain_plan import DrainPlan
from rules.session import absent, observation
from rules.session.decide import decide
from rules.session.observation import Permit
from rules.session.status import saying, steady, write_of

_LOG = structlog.get_logger()

# A decision follows from the objects, so a handful of rounds reaches the end of what can be done
# at once; a rule that never comes to rest must not keep the API server busy.
_ROUNDS = 12
# The node, the object and the template of a step, and the objects of every step that is taken
# back.
_READS = 20
_EVIDENCE_FRESH_S = 4.0
_BACKOFF_S = (0.1, 30.0)
# A write that met something else than what it was decided on.
_CHANGED = frozenset({Result.CONFLICT, Result.GONE})
# About half a minute: sooner, an API server that restarts would be reported in every session.
_READS_FAILED_SAID_FROM = 9
# A check that failed in a way nobody foresaw is not tried again sooner, whatever wakes the node.
_SURPRISED_S = 5.0


class RestlessError(Exception):
    """Decisions about one node follow each other without end: a rule undoes what it just did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the loop has to know after a check."""

    again_in_s: float | None = None
    """When to look again, though nothing changes."""
    evicting: d.Evicting | None = None
    """What the drain may do; None when the check failed: leave it as it is."""
    hand_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReads:
    """What decisions need that is not in the world."""

    permit: Callable[[str], Permit]
    """By session name."""
    judged: Callable[[QuarantineView], bool]
    """Whether the fleet rules know the session as it is now."""
    fleet_changed: Callable[[], None]
    plan: Callable[[str], DrainPlan | None]


class NodeCycle(EdgePart):
    """Looks at nodes for one process."""

    def __init__(
        self, edge: Edge, *, reads: NodeReads, objects: RepairObjects, collectors: CycleReads
    ) -> None:
        super().__init__(edge)
        self._reads = reads
        self._objects = objects
        self._collectors = collectors
        self._not_before: dict[str, float] = {}
        """Nodes whose last check did not come to rest or ended with a surprise
        (CLOCK_BOOTTIME).
        """
        self._failures: dict[str, int] = {}
        self._said: dict[str, str] = {}
        self._doubted: set[str] = set()
        """Nodes whose quarantine met another version than the watch showed: to be read first."""
        self._writes = Writes(edge, collectors.fleet_changed)

    async def look(self, name: str) -> Looked:
        """Do all that can be done about this node now."""
        wait_s = self._not_before.get(name, float("-inf")) - self._clock.elapsed()
        if wait_s > 0:
            return Looked(again_in_s=wait_s)
        wake_s: list[float] = []
        looked = Looked()
        for _ in range(_ROUNDS):
            try:
                progress, looked, wake = await self._round(name)
            except ApiError as error:
                _LOG.warning("look", node=name, why=str(error))
                wait_s = self._back_off(name)
                if self._failures[name] >= _READS_FAILED_SAID_FROM:
                    await self._explain(name, unread(str(error)))
                return Looked(again_in_s=wait_s)
            except Exception as error:  # noqa: BLE001 - one node must not stop the others
                return await self._surprised(name, error)
            wake_s.extend([wake] if wake is not None else [])
            if progress is Result.DONE:
                continue
            if progress is None:
                if looked.evicting is not None:  # else a status waits that may be refused again
                    self._failures.pop(name, None)
                self._not_before.pop(name, None)
                break
            wake_s = [self._back_off(name)]
            break
        else:
            return await self._surprised(name, RestlessError(f"{_ROUNDS} rounds of writes"))
        return Looked(
            again_in_s=min(wake_s, default=None),
            evicting=looked.evicting,
            hand_over=looked.hand_over,
        )

    async def _surprised(self, name: str, error: Exception) -> Looked:
        """What nobody foresaw happened to this node: say it, do nothing to it, try again later."""
        where = self._isolation.note("look", f"node {name}", error)
        wait_s = max(_SURPRISED_S, self._back_off(name))
        self._not_before[name] = self._clock.elapsed() + wait_s
        self._world.reserved.discard(name)
        await self._explain(name, surprise(where))
        return Looked(again_in_s=wait_s, evicting=d.Evicting.NO)

    async def _explain(self, name: str, refusal: Refusal) -> None:
        """Put on record why the node's session does not go on."""
        with self._isolation.guard("look", f"the status of the session of {name}"):
            for session in self._world.open_sessions(name)[:1]:
                status = saying(session.status, refusal, self._clock.now())
                if steady(status, session.status) != session.status:
                    write = write_of(session, status)
                    self._writes.learn(write, await self._gateway.send(write))

    async def _round(self, name: str) -> tuple[Result | None, Looked, float | None]:
        """Decide once for each open session (or for none); what became of the first write."""
        await self._reads.read(name)
        fresh: FreshNode | None = None
        gone = False
        if name in self._doubted or self._unwatched(name):
            fresh = await self._fresh(name)
            gone = fresh is None
            self._doubted.discard(name)
        sessions: list[QuarantineView | None] = [*self._world.open_sessions(name)] or [None]
        looked = Looked()
        wake_s = self._reads.evidence_due_s(name)
        for session in sessions:
            if session is not None and not self._judged(session):
                # The fleet wakes this node with its permit, within milliseconds when it is quiet.
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
                looked = Looked(evicting=decision.evicting, hand_over=decision.hand_over)
                self._say(name, decision)
            writes, postponed_s = self._writes.spread(session, decision)
            if decision.wake_at is not None:
                # What is to follow a status that is not sent yet follows it.
                due_s = max(postponed_s or 0.05, decision.wake_at - self._clock.now())
                wake_s = due_s if wake_s is None else min(wake_s, due_s)
            if postponed_s is not None:
                # What the status says of the drain is not stored yet: the drain goes on meanwhile.
                looked = replace(looked, evicting=None)
                wake_s = postponed_s if wake_s is None else min(wake_s, postponed_s)
            result = await self._writes.carry_out(name, writes)
            if decision.step == absent.STEP_CREATE_AGAIN and result is Result.DONE:
                self._metrics.objects_lost.labels("GPUQuarantine").inc()
            if result in _CHANGED and any(isinstance(write, d.TaintAndCordon) for write in writes):
                self._doubted.add(name)
            if any(isinstance(write, WriteRepairObject) for write in writes):
                self._objects.forget(name)
            if any(isinstance(write, CreateTestJob | DeleteTestJob) for write in writes):
                self._reads.forget_job(name)
            accepted = result in {None, Result.DONE} and postponed_s is None
            if session is not None and accepted:
                # Before the next round: what it credits for an outage is on record now.
                self._world.active[session.metadata.uid] = self._clock.now()
            if result is not None:
                return result, looked, wake_s
        if sessions == [None] and not decision.unfinished:
            self._forget(name)
        return None, looked, wake_s

    def _forget(self, name: str) -> None:
        """No session concerns the node any more, and all that followed from it is done."""
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
        """Whether no watch shows a node with an open session: it is beside the policy's selection
        and does not carry our label (not yet, or somebody took it off). Changes there wake nobody.
        """
        caches = self._world.caches
        shown = name in caches.nodes.items or name in caches.quarantined.items
        return not shown and bool(self._world.open_sessions(name))

    def _judged(self, session: QuarantineView) -> bool:
        """Whether the fleet rules have an answer for a session that waits for one."""
        if session.status.phase not in {"", "Pending", "Marked"}:
            return True
        return self._collectors.judged(session)

    def _decide(
        self, name: str, session: QuarantineView | None, fresh: FreshNode | None, gone: bool
    ) -> d.Decision:
        """No await in here: what is decided rests on one moment."""
        snapshot = self._world.snapshot()
        node = fresh or snapshot.nodes.get(name)
        if node is None and not gone:
            # Not selected (any more) is not gone: the policy's selector may have changed.
            return d.Decision(step="ReadNode", because="not in the cache", needs_fresh_node=True)
        # The policy may ask for more by now than when the node came.
        if node is not None:
            self._world.note_external(name, node)
        uid = session.metadata.uid if session else ""
        daemon_sets = self._world.caches.daemon_sets.items.values()
        sessions = self._world.sessions
        seen = replace(
            observation.observe(snapshot, name, sessions=sessions, session=session, node=fresh),
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
        decision = decide(session, seen, snapshot.now, snapshot.policy)
        if any(isinstance(write, d.TaintAndCordon) for write in decision.writes):
            # Counted at once, so that no other node gets the same place in the budget.
            self._world.reserved.add(name)
        return decision

    async def _fresh(self, name: str) -> FreshNode | None:
        if not object_name.is_object_name(name):
            # A session may name anything; there is certainly no node that is called so.
            return None
        try:
            node = await self._gateway.fresh_node(name)
        except ApiError as error:
            # A node that the watch still shows is gone when both report it.
            if error.answer.says_gone(name) and name not in self._world.caches.nodes.items:
                self._world.reserved.discard(name)
                self._world.node_seen(name, None)
                return None
            if error.answer.says_gone(name):
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
        """One line per cycle, when it says something new."""
        said = f"{decision.step}|{decision.because}|{decision.blocked_by}|{decision.message}"
        if self._said.get(name) == said or (decision.step == "Watch" and name not in self._said):
            return
        self._said[name] = said
        _LOG.info(
            "cycle",
            node=name,
            step=decision.step,
            because=decision.because,
            blocked_by=decision.blocked_by or "",
            message=decision.message,
            mode=self._policy().mode,
        )
