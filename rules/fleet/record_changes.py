"""Collect the faults of a node and its GPUs from health status and sessions, for their records.

`rules.fleet.record_update` updates the records. The leader calls this whenever a session or the
health status of the node changed. Records are written up to a minute later.
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
from rules.session import causes, first_evidence, history

MOST_GPUS: Final = 64
"""The most records that one health status may open: as many as the GPUs that it may list."""
MOST_RECORDS_OF_NODE: Final = 64
"""The most GPU records of one node. A hostile health status could name new GPUs each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One record in its new state; `known` is the current one, None if there is none."""

    name: str
    node: str
    status: RecordStatus
    known: RecordView | None = None

    def write(self, version: str = "") -> CreateRecord | WriteRecord:
        """Return the next write: a record is created first, then its status is written."""
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
    """Return the records of one node that have to change."""
    found = _found(name, health, list(sessions), records)
    changes = []
    for record, (identity, faults) in sorted(found.items()):
        known = records.get(record)
        if known is not None and known.doubt:
            # A record with unreadable parts is not overwritten.
            continue
        before = known.status if known is not None else None
        actions: list[OperatorAction] = []
        if before is None or before.node in {"", name}:
            # The annotation is about the GPUs in the node, not about removed ones.
            actions = _actions_on(node) if identity.node == name else []
        after = record_update.updated(before, identity, faults, actions, now)
        if after is not None and after != before:
            changes.append(RecordChange(name=record, node=name, status=after, known=known))
    return tuple(changes)


def aged(records: Iterable[RecordView], now: float) -> tuple[RecordChange | DeleteObject, ...]:
    """Return the changes by time alone: faults leave the window, and old records are deleted."""
    due: list[RecordChange | DeleteObject] = []
    for record in records:
        if record.doubt:
            continue
        if record_update.outlived_record(record, now):
            node, uid = record.status.node, record.metadata.uid
            due.append(DeleteObject(plural="gpurecords", name=record.name, uid=uid, node=node))
            continue
        after = record_update.with_message(record.status, now)
        if after != record.status:
            node = record.status.node
            due.append(RecordChange(name=record.name, node=node, status=after, known=record))
    return tuple(due)


def room_for_records(name: str, records: Iterable[RecordView]) -> int:
    """Return how many GPU records this node may still open. All GPUs that were ever in it count,
    since two nodes could name each other's GPUs.
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
    """Return the identity and the known faults of each record, by its name."""
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
    complete = published and len(gpus) >= status.expected_gpus.count
    listed = {
        gpu.uuid: gpu for s in sessions for gpu in first_evidence.kept_inventory(s.status.evidence)
    }
    own = [
        uuid
        for uuid in faults
        if not uuid
        or uuid in gpus
        or _may_report(name, uuid, records, complete=complete and uuid not in listed)
    ]
    for uuid in own[:MOST_GPUS]:
        identity = _identity(name, uuid, gpus.get(uuid), status)
        if uuid in listed and not identity.serial:
            identity = dataclasses.replace(identity, serial=listed[uuid].serial)
        record = gpu_record.gpu_record_name(uuid) if uuid else gpu_record.node_record_name(name)
        found[record] = identity, faults[uuid]
    return found


def _may_report(
    name: str, uuid: str, records: Mapping[str, RecordView], *, complete: bool
) -> bool:
    """Return whether a node may report a fault of a GPU that its health status does not list.

    An incident may have any UUID. If the status lists all expected GPUs (`complete`), an unlisted
    UUID may be another node's GPU and opens no record. A GPU with a record on another node is
    ignored, except to finish a fault that this node recorded.
    """
    known = records.get(gpu_record.gpu_record_name(uuid))
    if known is None:
        return not complete
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
        # The place of a GPU that the health status does not list is unknown.
        node=name if gpu is not None else "",
        slot=gpu.pci if gpu is not None else "",
        driver=status.driver_version[:64],
    )


def _sessions_by_incident(sessions: list[QuarantineView]) -> dict[str, QuarantineView]:
    """Return the session of each incident; the latest if several have it."""
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
    """Return the faults that only the session has, because the health status dropped them."""
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
        # An incident without GPUs counts for all GPUs of the session.
        its = one.get("gpus")
        about = [u for u in its if isinstance(u, str)] if isinstance(its, list) else gpus
        found += [(uuid, fault) for uuid in about[:MOST_GPUS] or [""]]
    return found


def _ended(session: QuarantineView | None, closed_at: str, *, active: bool) -> tuple[str, str]:
    """Return the outcome of a fault, and since when the part is back in service."""
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
    """Return the repair steps that were executed, in order."""
    attempts = session.status.repair
    return tuple(a.step for a in attempts if a.state == RepairState.PROVEN or a.in_vain)


def _actions_on(node: NodeView | None) -> list[OperatorAction]:
    text = node.annotations.get(names.ANNOTATION_REPAIRED, "") if node is not None else ""
    when, _, reason = text.partition(" ")
    at = timestamps.parse_time(when)
    if at is None:
        return []
    why = messages.shortened(" ".join(reason.split()), 256)
    return [OperatorAction(at=timestamps.format_time(at), action=gpu_record.REPAIRED, reason=why)]
