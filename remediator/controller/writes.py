"""Send the writes of one decision in order through the gateway, and store their answers.

`node_cycle` calls this with its decision. A status is written at most once a second; Events are
sent in the background.
"""

from collections.abc import Callable

import msgspec
import structlog

from remediator.kube import resources
from remediator.kube.answer import ApiError, Result, Sent
from remediator.world import Edge, EdgePart
from rules.api import object_name, timestamps
from rules.api import writes as d
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import QuarantineStatus
from rules.api.repair_writes import (
    DeleteTestJob,
    SetRepairCondition,
    SetValidated,
    WriteRepairObject,
)
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import memory
from rules.session.status import lost_fields, not_kept, not_recorded

_LOG = structlog.get_logger()

_STATUS_INTERVAL_S = 1.0
# For the pods of a drain that have left. Most drains end before, and need no such write.
_PROGRESS_INTERVAL_S = 10.0


class Writes(EdgePart):
    """Sends the decided writes of one process."""

    def __init__(self, edge: Edge, fleet_changed: Callable[[], None]) -> None:
        super().__init__(edge)
        self._fleet_changed = fleet_changed
        self._status_written: dict[str, tuple[float, str]] = {}
        """When (CLOCK_BOOTTIME) and with which phase each session's status went out, by UID."""
        self._stored_as: dict[str, tuple[QuarantineStatus, QuarantineStatus]] = {}
        """Each session's last status as sent and as stored, by UID, if they differ: an older CRD
        drops the fields that it does not know."""
        self._not_recorded: dict[str, str] = {}
        """Why the last status of a session was refused, by the session's name."""

    def forget(self, session: QuarantineView) -> None:
        """Drop what is known of an ended session."""
        self._status_written.pop(session.metadata.uid, None)
        self._not_recorded.pop(session.name, None)
        self._stored_as.pop(session.metadata.uid, None)

    def spread(
        self, session: QuarantineView | None, decision: d.Decision
    ) -> tuple[tuple[d.Write, ...], float | None]:
        """Limit status writes to one per session and second, and those of drain progress to one
        in 10 s; return the writes to send now and the seconds until the postponed status, None if
        nothing is postponed.

        Some status writes never wait: a new phase, the list of pods before their eviction, a
        repair, a test, and a quarantine. A status that the API server would store unchanged is not
        sent.
        """
        if session is None:
            return decision.writes, None
        # Events belong to the status they announce.
        silent = tuple(
            w for w in decision.writes if not isinstance(w, d.WriteSessionStatus | d.EmitEvent)
        )
        if self._stored_as.get(session.metadata.uid) == (decision.status, session.status):
            return silent, None
        phase = decision.status.phase if decision.status else ""
        written_at, written_phase = self._status_written.get(session.metadata.uid, (0.0, ""))
        progress = decision.status is not None and _is_progress(session.status, decision.status)
        interval_s = _PROGRESS_INTERVAL_S if progress else _STATUS_INTERVAL_S
        wait_s = written_at + interval_s - self._clock.elapsed()
        has_status = any(isinstance(w, d.WriteSessionStatus) for w in decision.writes)
        announces = decision.status is not None and memory.announced(decision.status.drain)
        begins = announces and not memory.announced(session.status.drain)
        repairs = decision.status is not None and _proof(decision.status) != _proof(session.status)
        quarantines = any(isinstance(w, d.TaintAndCordon) for w in decision.writes)
        at_once = phase != written_phase or begins or repairs or quarantines
        if not has_status or wait_s <= 0 or at_once:
            if has_status:
                self._status_written[session.metadata.uid] = (self._clock.elapsed(), phase)
            return decision.writes, None
        return silent, wait_s

    async def carry_out(self, name: str, writes: tuple[d.Write, ...]) -> Result | None:
        """Send in order; return DONE, the first failure, or None without writes."""
        done: Result | None = None
        for write in writes:
            if isinstance(write, d.EmitEvent):
                self._events.send(write)
                continue
            sent = await self._gateway.send(write)
            if isinstance(write, d.TaintAndCordon):
                self._observe_quarantine(write, sent)
            if sent.answer is not None and sent.result is not Result.HELD:
                refusal = self._world.refusals.note(write, sent.answer)
                if isinstance(write, d.WriteSessionStatus):
                    self._recorded(write, refusal)
                if isinstance(write, d.TaintAndCordon) and not sent.done:
                    # Another node may use its place in the budget until the next attempt.
                    self._fleet_changed()
            gone = sent.result in {Result.GONE, Result.CONFLICT}
            if sent.done or (isinstance(write, DeleteTestJob) and gone):
                self.learn(write, sent)
                done = Result.DONE
                continue
            if not (isinstance(write, d.TaintAndCordon) and sent.result is Result.UNKNOWN):
                self._world.reserved.discard(name)
            await self._catch_up(write, sent)
            return sent.result
        return done

    def _recorded(self, write: d.WriteSessionStatus, refusal: Refusal | None) -> None:
        """Report a refused status by an Event on the node, once per reason."""
        if refusal is None:
            self._not_recorded.pop(write.name, None)
            return
        if refusal.reason is WhyNot.API_BUSY:
            return
        if self._not_recorded.get(write.name) != refusal.reason:
            self._not_recorded[write.name] = refusal.reason
            node = self._world.caches.nodes.items.get(write.node)
            uid = node.uid if node is not None else ""
            self._events.send(not_recorded(write, refusal, uid, self._clock.now()))

    def _observe_quarantine(self, write: d.TaintAndCordon, sent: Sent) -> None:
        """Observe the time from the fault to the quarantine."""
        session = self._world.caches.quarantines.items.get(write.session)
        health = self._world.healths.get(write.node)
        if not sent.done or session is None or health is None:
            return
        ids = {cause.incident for cause in session.spec.causes}
        seen = [
            at
            for incident in health.status.incidents
            if incident.id in ids
            and (at := timestamps.parse_time(incident.first_seen)) is not None
        ]
        if seen and session.status.phase in {"", "Pending"}:
            self._metrics.fault_to_unschedulable.observe(max(0.0, self._clock.now() - min(seen)))

    def learn(self, write: d.Write, sent: Sent) -> None:
        """Store the object that the API server returned, for the next decision."""
        if sent.answer is None or not sent.answer.ok:
            return
        if isinstance(write, WriteRepairObject) and not _on_node(write):
            return
        try:
            match write:
                case d.CreateSession() | d.PatchSessionSpec() | d.WriteSessionStatus():
                    session = sent.answer.decode(QuarantineView)
                    if isinstance(write, d.WriteSessionStatus):
                        self._note_stored(write, session)
                    self._world.learn_session(session)
                    self._fleet_changed()
                case (
                    d.TaintAndCordon()
                    | d.RemoveTaint()
                    | d.RelabelNode()
                    | d.SetNodeUnknown()
                    | SetRepairCondition()
                    | SetValidated()
                    | WriteRepairObject()
                ):
                    self._gateway.forget(write.node)
                    self._world.learn_node(sent.answer.decode(NodeView))
                    self._fleet_changed()
                    self._world.reserved.discard(write.node)
                case _:
                    return
        except ApiError as error:
            _LOG.warning("answer not understood", node=write.node, why=str(error))

    def _note_stored(self, write: d.WriteSessionStatus, session: QuarantineView) -> None:
        if session.status == write.status:
            self._stored_as.pop(session.metadata.uid, None)
        else:
            self._stored_as[session.metadata.uid] = (write.status, session.status)
            self._note_lost(write, lost_fields(write.status, session.status))

    def _note_lost(self, write: d.WriteSessionStatus, lost: tuple[str, ...]) -> None:
        """Report outdated CRDs once: by an Event on one node, and in the log."""
        known = self._world.not_kept.keys() >= set(lost)
        self._world.not_kept.update(dict.fromkeys(lost, self._clock.now()))
        if known:
            return
        node = self._world.caches.nodes.items.get(write.node)
        event = not_kept(write, lost, node.uid if node is not None else "", self._clock.now())
        _LOG.warning("definitions", session=write.name, problem=event.message)
        self._events.send(event)

    async def _catch_up(self, write: d.Write, sent: Sent) -> None:
        """After a failed write, read the object again instead of waiting for the watch."""
        if sent.result not in {Result.CONFLICT, Result.GONE, Result.UNKNOWN}:
            return
        match write:
            case d.CreateSession() | d.PatchSessionSpec() | d.WriteSessionStatus():
                await self._read_session(write.name)
            case (
                d.TaintAndCordon()
                | d.RemoveTaint()
                | d.RelabelNode()
                | d.SetNodeUnknown()
                | SetRepairCondition()
                | WriteRepairObject()
            ):
                self._gateway.forget(write.node)
            case _:
                return

    async def _read_session(self, name: str) -> None:
        """Read the session; list all again if the API server contradicts the cache."""
        cache = self._world.caches.quarantines
        try:
            session = await self._api.get(
                object_name.api_path(resources.QUARANTINES, name), QuarantineView
            )
        except ApiError as error:
            if error.answer.is_not_found(name) and name in cache.items:
                cache.relist(f"the server has no {name}")
            raise
        if not cache.contradicted_by(session):
            self._world.learn_session(session)


def _on_node(write: WriteRepairObject) -> bool:
    return (write.address.api_version, write.address.resource) == ("v1", "nodes")


def _is_progress(before: QuarantineStatus, after: QuarantineStatus) -> bool:
    """Whether two statuses differ only in which pods of a drain have left."""
    if before.drain is None or after.drain is None or before.drain == after.drain:
        return False
    if before.drain.blocked != after.drain.blocked:
        return False
    return msgspec.structs.replace(after, drain=before.drain, message=before.message) == before


def _proof(status: QuarantineStatus) -> tuple[object, ...]:
    """The parts of a status that must be stored before their action; they never wait."""
    return status.repair, status.validation
