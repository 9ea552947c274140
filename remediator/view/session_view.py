"""Sessions as values: rows for tables, and one session whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remediator.view import shapes
from remediator.view.shared_waits import clause_of
from remediator.view.state import PageState, mode_of, phase_of
from rules.api.health import GpuStatus, IncidentStatus
from rules.api.mark import read_note
from rules.api.names import TAINT_QUARANTINE
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Condition, DrainStatus, gravest_reason
from rules.api.timestamps import format_time, parse_time
from rules.catalog.reason import severity_rank
from rules.ledger.record import RecordView, gpu_record_name
from rules.session.causes import open_causes, sight_of, worst
from rules.session.observation import is_open
from rules.session.repair.rungs import LadderRung, rungs
from rules.session.reuse import wanted_at

CORDON_TAINT = "node.kubernetes.io/unschedulable"
"""Kubernetes puts it beside every cordon; the cordon has its own line."""


def session_row(session: QuarantineView) -> shapes.SessionRow:
    """One session as tables show it."""
    status, causes = session.status, session.spec.causes
    drain = status.drain or DrainStatus()
    return shapes.SessionRow(
        name=session.name,
        node=session.spec.node_name,
        phase=phase_of(session),
        mode=mode_of(session),
        open=is_open(session),
        severity=worst(causes),
        level=session.spec.level,
        reason=gravest_reason(causes),
        causes=len(causes),
        opened_at=format_time(wanted_at(session)),
        phase_since=status.phase_since or session.metadata.creation_timestamp,
        message=status.message or "The remediator has not reconciled it yet.",
        conditions=tuple(condition_word(c) for c in status.conditions if c.status == "True"),
        evicted=drain.evicted,
        waits_for=clause_of(session),
    )


def condition_word(condition: Condition) -> str:
    """Its type; what halts a session by its reason, for an opt-out is no pause."""
    halted = condition.type == "Paused" and bool(condition.reason)
    return condition.reason if halted else condition.type


def urgency(row: shapes.SessionRow) -> tuple[bool, int, float, str]:
    """Sort key of open sessions."""
    since = parse_time(row.opened_at) or 0.0
    return "NeedsHuman" not in row.conditions, -severity_rank(row.severity), since, row.name


def session_detail(session: QuarantineView, state: PageState) -> shapes.SessionDetail:
    """One session whole."""
    spec, status = session.spec, session.status
    return shapes.SessionDetail(
        session=session_row(session),
        hold=spec.hold,
        release_asked_by=(spec.release.by or "somebody") if spec.release else "",
        repair_asked=spec.repair,
        causes=spec.causes,
        conditions=status.conditions,
        gpus=_gpus(session, state),
        evidence=evidence_of(session, state),
        drain=_drain(status.drain) if status.drain else None,
        validation=status.validation,
        ladder=_ladder(session, state),
    )


def _ladder(session: QuarantineView, state: PageState) -> tuple[LadderRung, ...]:
    snapshot = state.snapshot
    node = snapshot.nodes.get(session.spec.node_name)
    causes = session.spec.causes
    if node is not None:
        causes = open_causes(session, sight_of(node, snapshot)) or causes
    others = (
        other
        for other in snapshot.quarantines.values()
        if other.spec.node_name == session.spec.node_name and other.name != session.name
    )
    health = state.health(session.spec.node_name)
    records = snapshot.records
    return rungs(session, others, causes, health, snapshot.policy, snapshot.now, records)


def _drain(drain: DrainStatus) -> shapes.DrainShown:
    return shapes.DrainShown(
        evicted=drain.evicted,
        recent=drain.recent,
        waiting=drain.waiting,
        left_by_policy=drain.left_by_policy,
        left_by_failure=drain.left_by_failure,
        blocked=drain.blocked,
        started_at=drain.started_at,
        suspended_seconds=drain.suspended_seconds,
    )


def evidence_of(session: QuarantineView, state: PageState) -> tuple[shapes.IncidentEvidence, ...]:
    """What the session kept at its opening; before that, what the live verdict says."""
    kept = session.status.evidence.get("incidents")
    listed = kept[:8] if isinstance(kept, list) else []
    found = [_kept(one) for one in listed if isinstance(one, Mapping)]
    if found:
        return tuple(found)
    ids = {cause.incident for cause in session.spec.causes if cause.incident}
    verdict = state.health(session.spec.node_name)
    incidents = verdict.status.incidents if verdict else ()
    return tuple(_live(incident) for incident in incidents if incident.id in ids)


def _kept(one: Mapping[str, Any]) -> shapes.IncidentEvidence:
    """Evidence is free-form in the object: whatever is in it is read as text or left out."""
    lines = one.get("evidence")
    return shapes.IncidentEvidence(
        reason=_text(one.get("reason")),
        severity=_text(one.get("severity")),
        first_seen=_text(one.get("firstSeen")),
        recommended_action=_text(one.get("recommendedAction")),
        lines=tuple(_text(line) for line in lines[:5]) if isinstance(lines, list) else (),
    )


def _live(incident: IncidentStatus) -> shapes.IncidentEvidence:
    return shapes.IncidentEvidence(
        reason=incident.reason,
        severity=incident.severity,
        first_seen=incident.first_seen,
        recommended_action=incident.recommended_action,
        lines=incident.evidence,
    )


def _text(value: object) -> str:
    return value[:512] if isinstance(value, str) else ""


def gpu_ids(session: QuarantineView) -> tuple[str, ...]:
    """UUIDs that the session's evidence names."""
    named = session.status.evidence.get("gpus")
    if not isinstance(named, list):
        return ()
    return tuple(_text(one) for one in named[:16] if isinstance(one, str))


def _gpus(session: QuarantineView, state: PageState) -> tuple[shapes.GpuIdentity, ...]:
    verdict = state.known(session.spec.node_name)
    known = {gpu.uuid: gpu for gpu in verdict.status.gpus} if verdict else {}
    return tuple(
        identity(uuid, known.get(uuid), state.snapshot.records) for uuid in gpu_ids(session)
    )


def identity(
    uuid: str, gpu: GpuStatus | None, records: Mapping[str, RecordView]
) -> shapes.GpuIdentity:
    """A GPU by its UUID, with serial and index where a verdict tells them; a record knows the
    serial of one that no verdict shows any more.
    """
    record = records.get(gpu_record_name(uuid))
    kept = record.status.serial if record is not None and not record.doubt else ""
    return shapes.GpuIdentity(
        uuid=uuid, serial=(gpu.serial if gpu else "") or kept, index=gpu.index if gpu else -1
    )


def node_marks(node: NodeView) -> tuple[shapes.NodeMark, ...]:
    """Taints and cordon of the node, and whose they are."""
    note = read_note(node)
    marks = [
        shapes.NodeMark(
            what=f"taint {taint.key}={taint.value}:{taint.effect}",
            owner="gpuward" if taint.key == TAINT_QUARANTINE else "not gpuward",
        )
        for taint in node.spec.taints
        if taint.key != CORDON_TAINT
    ]
    if node.spec.unschedulable:
        owner = "gpuward" if note else "not gpuward"
        if note and note.prior_unschedulable:
            owner = "not gpuward: it was cordoned before, and stays so after a release"
        marks.append(shapes.NodeMark(what="cordoned", owner=owner))
    return tuple(marks)
