"""The writes of one decision: sent in order, their answers taken into the world.

`node_cycle` decides and hands them over; the gateway is the only way out. A status is written at
most once a second, an Event waits for nobody.
"""

from collections.abc import Callable

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


class Writes(EdgePart):
    """Sends what was decided about nodes, for one process."""

    def __init__(self, edge: Edge, fleet_changed: Callable[[], None]) -> None:
        super().__init__(edge)
        self._fleet_changed = fleet_changed
        self._status_written: dict[str, tuple[float, str]] = {}
        """When (CLOCK_BOOTTIME) and with which phase each session's status went out, by UID."""
        self._stored_as: dict[str, tuple[QuarantineStatus, QuarantineStatus]] = {}
        """Each session's last status as it was sent and as the API server keeps it, by UID, where
        that is not the same: an older definition drops the fields that it does not know."""
        self._not_recorded: dict[str, str] = {}
        """Why the last status of a session was refused, by the session's name."""

    def forget(self, session: QuarantineView) -> None:
        """The session is over."""
        self._status_written.pop(session.metadata.uid, None)
        self._not_recorded.pop(session.name, None)
        self._stored_as.pop(session.metadata.uid, None)

    def spread(
        self, session: QuarantineView | None, decision: d.Decision
    ) -> tuple[tuple[d.Write, ...], float | None]:
        """At most one status write per session and second.

        A change of phase never waits, nor does the record of who is about to be evicted, of a
        repair or a test, or of a taint and cordon that is put on: once it is there, nothing asks
        for its record and its Event again. What the API server would store as it did before is not
        sent again.
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
        wait_s = written_at + _STATUS_INTERVAL_S - self._clock.elapsed()
        has_status = any(isinstance(w, d.WriteSessionStatus) for w in decision.writes)
        announces = decision.status is not None and memory.announced(decision.status.drain)
        begins = announces and not memory.announced(session.status.drain)
        repairs = decision.status is not None and _proof(decision.status) != _proof(session.status)
        marks = any(isinstance(w, d.TaintAndCordon) for w in decision.writes)
        at_once = phase != written_phase or begins or repairs or marks
        if not has_status or wait_s <= 0 or at_once:
            if has_status:
                self._status_written[session.metadata.uid] = (self._clock.elapsed(), phase)
            return decision.writes, None
        return silent, wait_s

    async def carry_out(self, name: str, writes: tuple[d.Write, ...]) -> Result | None:
        """Send in order; DONE when all were, the first failure else, None without writes."""
        done: Result | None = None
        for write in writes:
            if isinstance(write, d.EmitEvent):
                self._telling.tell(write)
                continue
            sent = await self._gateway.send(write)
            if isinstance(write, d.TaintAndCordon):
                self._marked(write, sent)
            if sent.answer is not None and sent.result is not Result.HELD:
                refusal = self._world.refusals.note(write, sent.answer)
                if isinstance(write, d.WriteSessionStatus):
                    self._recorded(write, refusal)
                if isinstance(write, d.TaintAndCordon) and not sent.done:
                    # Its place in the budget is another node's until it is tried again.
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
        """A status that is refused is said on the node, once for each reason."""
        if refusal is None:
            self._not_recorded.pop(write.name, None)
            return
        if refusal.reason is WhyNot.API_BUSY:
            return
        if self._not_recorded.get(write.name) != refusal.reason:
            self._not_recorded[write.name] = refusal.reason
            node = self._world.caches.nodes.items.get(write.node)
            uid = node.uid if node is not None else ""
            self._telling.tell(not_recorded(write, refusal, uid, self._clock.now()))

    def _marked(self, write: d.TaintAndCordon, sent: Sent) -> None:
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
        """Take what the API server returned, so that the next decision sees it."""
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
        """Say once of the cluster's definitions that they are old: on one node, and in the log."""
        known = self._world.not_kept.keys() >= set(lost)
        self._world.not_kept.update(dict.fromkeys(lost, self._clock.now()))
        if known:
            return
        node = self._world.caches.nodes.items.get(write.node)
        event = not_kept(write, lost, node.uid if node is not None else "", self._clock.now())
        _LOG.warning("definitions", session=write.name, problem=event.message)
        self._telling.tell(event)

    async def _catch_up(self, write: d.Write, sent: Sent) -> None:
        """After a failed write: read what it was about, instead of waiting for the watch."""
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
        """The session as it is; where the server contradicts the cache, that is listed again."""
        cache = self._world.caches.quarantines
        try:
            session = await self._api.get(
                object_name.api_path(resources.QUARANTINES, name), QuarantineView
            )
        except ApiError as error:
            if error.answer.says_gone(name) and name in cache.items:
                cache.relist(f"the server has no {name}")
            raise
        if not cache.contradicted_by(session):
            self._world.learn_session(session)


def _on_node(write: WriteRepairObject) -> bool:
    return (write.address.api_version, write.address.resource) == ("v1", "nodes")


def _proof(status: QuarantineStatus) -> tuple[object, ...]:
    """What is on record before something is asked for: it never waits."""
    return status.repair, status.validation
