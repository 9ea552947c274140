"""What a node's assessment and sessions say of its GPUs and of itself, for their records.

Reads objects and decides nothing; `rules.fleet.record_update` makes a record of it. Called by the
leader's record keeping whenever a session or a assessment of the node changed. Records are written
up to a minute later.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rules.api import gpu_record, messages, names, timestamps
from rules.api.gpu_record import (
    FaultOutcome,
    OperatorAction,
    RecordEvent,
    RecordStatus,
    RecordView,
)
from rules.api.health import GpuStatus, HealthStatus, IncidentStatus
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.quarantine import Mode, Phase, RepairState
from rules.api.writes import CreateRecord, DeleteObject, WriteRecord
from rules.catalog.reason import Severity, severity_rank
from rules.fleet import record_update
from rules.fleet.record_update import RecordIdentity
from rules.session import causes, history

MOST_GPUS: Final = 64
"""Records that one node's assessment may open: as many GPUs as it may list."""
MOST_RECORDS_OF_NODE: Final = 64
"""Records of GPUs that one node may have on the ledger: no node holds near as many in 90 days, and
a hostile assessment could name new ones at every check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One record as it should be; `known` is how it is, None where there is none."""

    name: str
    node: str
    status: RecordStatus
    known: RecordView | None = None

    def write(self, version: str = "") -> CreateRecord | WriteRecord:
        """The next write: a record is made first and filled then, as its status is apart."""
        version = version or (self.known.metadata.resource_version if self.known else "")
        if not version:
            return CreateRecord(name=self.name, node=self.node)
        return WriteRecord(
            name=self.name,
            node=self.node,
            resource_version=version,
            status=gpu_record.record_patch(self.status),
        )


def record_changes(
    name: str,
    node: NodeView | None,
    health: HealthView | None,
    sessions: Iterable[QuarantineView],
    records: Mapping[str, RecordView],
    now: float,
) -> tuple[RecordChange, ...]:
    """The records of one node that are not as they should be."""
    found = _found(name, health, list(sessions), records)
    changes = []
    for record, (identity, faults) in sorted(found.items()):
        known = records.get(record)
        if known is not None and known.doubt:
            # What cannot be read in full is not written over.
            continue
        before = known.status if known is not None else None
        words: list[OperatorAction] = []
        if before is None or before.node in {"", name}:
            # Said of the GPUs that are there: one that was taken out keeps its past.
            words = _words_on(node) if identity.node == name else []
        after = record_update.updated(before, identity, faults, words, now)
        if after is not None and after != before:
            changes.append(RecordChange(name=record, node=name, status=after, known=known))
    return tuple(changes)


def aged(records: Iterable[RecordView], now: float) -> tuple[RecordChange | DeleteObject, ...]:
    """What time alone does to records: faults leave the window, and old records end."""
    due: list[RecordChange | DeleteObject] = []
    for record in records:
        if record.doubt:
            continue
        if record_update.outlived_record(record, now):
            node, uid = record.status.node, record.metadata.uid
            due.append(DeleteObject(plural="gpurecords", name=record.name, uid=uid, node=node))
            continue
        after = record_update.told(record.status, now)
        if after != record.status:
            node = record.status.node
            due.append(RecordChange(name=record.name, node=node, status=after, known=record))
    return tuple(due)


def room_for_records(name: str, records: Iterable[RecordView]) -> int:
    """How many GPUs' records this node may still open: those count that were ever plugged in
    there.

    The latest place alone would let two nodes that name each other's GPUs open any number.
    """
    held = sum(
        one.status.scope == gpu_record.GPU_SCOPE
        and any(place.node == name for place in one.status.places)
        for one in records
    )
    return max(0, MOST_RECORDS_OF_NODE - held)


def _found(
    name: str,
    health: HealthView | None,
    sessions: list[QuarantineView],
    records: Mapping[str, RecordView],
) -> dict[str, tuple[RecordIdentity, list[RecordEvent]]]:
    """What each record is about, by its name, and the faults that are known of it."""
    status = health.status if health is not None and not health.doubt else HealthStatus()
    gpus = {gpu.uuid: gpu for gpu in status.gpus if gpu.uuid}
    by_incident = _sessions_by_incident(sessions)
    found: dict[str, tuple[RecordIdentity, list[RecordEvent]]] = {}
    faults: defaultdict[str, list[RecordEvent]] = defaultdict(list)
    seen = set()
    for incident in status.incidents:
        if severity_rank(incident.severity) < Severity.DEGRADED.rank:
            continue
        seen.add(incident.id)
        fault = _fault_of(name, incident, by_incident.get(incident.id))
        for uuid in incident.gpus[:MOST_GPUS] or ("",):
            faults[uuid].append(fault)
    for session in sessions:
        for uuid, fault in _kept_by(name, session, by_incident, seen):
            faults[uuid].append(fault)
    published = health is not None and not health.doubt
    whole = published and len(gpus) >= status.expected_gpus.count
    listed = {gpu.uuid: gpu for s in sessions for gpu in causes.kept_inventory(s.status.evidence)}
    own = [
        uuid
        for uuid in faults
        if not uuid
        or uuid in gpus
        or _may_report(name, uuid, records, whole=whole and uuid not in listed)
    ]
    for uuid in own[:MOST_GPUS]:
        identity = _identity(name, uuid, gpus.get(uuid), status)
        if uuid in listed and not identity.serial:
            identity = dataclasses.replace(identity, serial=listed[uuid].serial)
        record = gpu_record.gpu_record_name(uuid) if uuid else gpu_record.node_record_name(name)
        found[record] = identity, faults[uuid]
    return found


def _may_report(name: str, uuid: str, records: Mapping[str, RecordView], *, whole: bool) -> bool:
    """Whether a node may speak of a GPU that its assessment does not list.

    Any UUID may stand in an incident. An agent lists a GPU that it lost, until the node boots: so
    what a assessment names that lists as many GPUs as the node should have, and listed no other
    when a session opened (`whole`), may be another node's, and opens no record. One that is known
    to be elsewhere is not this node's to accuse; but what became of a fault that was recorded here
    is told to its end, wherever the GPU is by then.
    """
    known = records.get(gpu_record.gpu_record_name(uuid))
    if known is None:
        return not whole
    if known.status.node in {"", name}:
        return True
    return any(event.node == name for event in known.status.events)


def _identity(
    name: str,
    uuid: str,
    gpu: GpuStatus | None,
    status: HealthStatus,
) -> RecordIdentity:
    if not uuid:
        return RecordIdentity(
            scope=gpu_record.NODE_SCOPE,
            node=name,
            driver=status.driver_version[:64],
        )
    return RecordIdentity(
        scope=gpu_record.GPU_SCOPE,
        uuid=uuid[:96],
        serial=gpu.serial if gpu is not None else "",
        product=gpu.product if gpu is not None else "",
        # A assessment that does not list the GPU says nothing of where it is now.
        node=name if gpu is not None else "",
        slot=gpu.pci if gpu is not None else "",
        driver=status.driver_version[:64],
    )


def _sessions_by_incident(sessions: list[QuarantineView]) -> dict[str, QuarantineView]:
    """The session that an incident belongs to; the latest where several name it."""
    ordered = sorted(sessions, key=lambda s: (s.metadata.created_at, s.name))
    return {
        cause.incident: session
        for session in ordered
        for cause in session.spec.causes
        if cause.incident
    }


def _fault_of(name: str, incident: IncidentStatus, session: QuarantineView | None) -> RecordEvent:
    outcome, ended = _ended(session, incident.closed_at, active=incident.active)
    return RecordEvent(
        at=incident.first_seen,
        reason=incident.reason,
        severity=incident.severity,
        node=name,
        session=session.name if session is not None else "",
        steps=steps_of(session) if session is not None else (),
        ended_at=ended,
        outcome=outcome,
    )


def _kept_by(
    name: str,
    session: QuarantineView,
    by_incident: Mapping[str, QuarantineView],
    seen: set[str],
) -> list[tuple[str, RecordEvent]]:
    """Faults that only the session still knows: its assessment is gone or has forgotten them."""
    evidence = session.status.evidence
    kept: Any = evidence.get("incidents")
    uuids: Any = evidence.get("gpus")
    gpus = [uuid for uuid in uuids if isinstance(uuid, str)] if isinstance(uuids, list) else []
    found = []
    for one in kept if isinstance(kept, list) else ():
        known = isinstance(one, dict) and by_incident.get(str(one.get("id"))) is session
        if not known or str(one.get("id")) in seen:
            continue
        outcome, ended = _ended(session, "", active=True)
        fault = RecordEvent(
            at=str(one.get("firstSeen", "")),
            reason=str(one.get("reason", "")),
            severity=str(one.get("severity", "")),
            node=name,
            session=session.name,
            steps=steps_of(session),
            ended_at=ended,
            outcome=outcome,
        )
        # Which of several GPUs an incident was about is known only where it reports it.
        its = one.get("gpus")
        about = [u for u in its if isinstance(u, str)] if isinstance(its, list) else gpus
        found += [(uuid, fault) for uuid in about[:MOST_GPUS] or [""]]
    return found


def _ended(session: QuarantineView | None, closed_at: str, *, active: bool) -> tuple[str, str]:
    """What became of a fault, and since when the part is back in service."""
    if session is None or session.status.mode == Mode.SHADOW:
        return (FaultOutcome.ACTIVE, "") if active else (FaultOutcome.CLOSED, closed_at)
    phase = session.status.phase
    if phase not in {Phase.RELEASED, Phase.CANCELLED, Phase.NODE_GONE}:
        return FaultOutcome.ACTIVE, ""
    at = timestamps.format_time(history.ended_at(session))
    if phase == Phase.NODE_GONE:
        return FaultOutcome.NODE_GONE, at
    closed = timestamps.parse_time(closed_at)
    mended = closed is not None and closed <= (timestamps.parse_time(at) or 0.0)
    if causes.ended_by_operator(session) and not mended:
        return FaultOutcome.UNDONE, at
    if phase == Phase.CANCELLED:
        return (FaultOutcome.ACTIVE, "") if active else (FaultOutcome.CLOSED, closed_at or at)
    return FaultOutcome.RELEASED, at


def steps_of(session: QuarantineView) -> tuple[str, ...]:
    """The repair steps that were really taken, in order: what nobody was asked for teaches
    nothing.
    """
    attempts = session.status.repair
    return tuple(a.step for a in attempts if a.state == RepairState.PROVEN or a.in_vain)


def _words_on(node: NodeView | None) -> list[OperatorAction]:
    said = node.annotations.get(names.ANNOTATION_REPAIRED, "") if node is not None else ""
    when, _, reason = said.partition(" ")
    at = timestamps.parse_time(when)
    if at is None:
        return []
    why = messages.shortened(" ".join(reason.split()), 256)
    return [OperatorAction(at=timestamps.format_time(at), action=gpu_record.REPAIRED, reason=why)]
