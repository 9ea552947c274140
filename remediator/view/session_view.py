"""Sessions as values: rows for tables, and one session whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from remediator.view import shapes
from remediator.view.explanation import explain
from remediator.view.people import must_of
from remediator.view.state import PageState
from rules.api.gpu_record import gpu_record_name
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Condition, DrainStatus, Mode, Phase, gravest_reason
from rules.api.timestamps import format_time
from rules.catalog.why_not import FLEET_WIDE
from rules.session.causes import CauseSight, open_causes, sight_of, worst
from rules.session.history import wanted_at
from rules.session.observation import is_open
from rules.session.repair.ladder import LadderRung, rungs
from rules.session.status import condition

_MOST_INCIDENTS: Final = 8
_MOST_LINES: Final = 5
_MOST_GPUS: Final = 16
_MOST_CHARS: Final = 512


def session_row(session: QuarantineView) -> shapes.SessionRow:
    """One session as tables show it. One without status has not begun and touches nothing yet."""
    status, causes = session.status, session.spec.causes
    drain = status.drain or DrainStatus()
    return shapes.SessionRow(
        name=session.name,
        node=session.spec.node_name,
        phase=status.phase or Phase.PENDING,
        mode=status.mode or Mode.SHADOW,
        open=is_open(session),
        severity=worst(causes),
        level=session.spec.level,
        reason=gravest_reason(causes),
        causes=len(causes),
        opened_at=format_time(wanted_at(session)),
        phase_since=status.phase_since or session.metadata.creation_timestamp,
        message=status.message or "The remediator has not reconciled it yet.",
        conditions=tuple(_condition(c) for c in status.conditions if c.status == "True"),
        evicted=drain.evicted,
        waits_for=_waits_for(session),
        needs=must_of(session),
    )


def _waits_for(session: QuarantineView) -> str:
    """What the fleet rules wait for, the same for many sessions; "" where it waits for its own."""
    blocked = condition(session.status, "Blocked")
    if blocked is None or blocked.status != "True" or not is_open(session):
        return ""
    return blocked.message if blocked.reason in FLEET_WIDE else ""


def _condition(one: Condition) -> str:
    """Its type; what halts a session by its reason, for an opt-out is no pause."""
    return one.reason if one.type == "Paused" and one.reason else one.type


def session_detail(session: QuarantineView, state: PageState) -> shapes.SessionDetail:
    """One session whole."""
    spec, status = session.spec, session.status
    return shapes.SessionDetail(
        session=session_row(session),
        explanation=explain(session, _sight(session, state)),
        hold=spec.hold,
        release_asked_by=(spec.release.by or "somebody") if spec.release else "",
        repair_asked=spec.repair,
        causes=spec.causes,
        conditions=status.conditions,
        gpus=tuple(_identity(uuid, session, state) for uuid in _gpu_ids(session)),
        evidence=_evidence(session, state),
        drain=status.drain,
        validation=status.validation,
        ladder=_ladder(session, state),
    )


def _sight(session: QuarantineView, state: PageState) -> CauseSight:
    """What says which of its causes hold; of a node that is gone, only the policy."""
    snapshot = state.snapshot
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None:
        return CauseSight(node=None, health=None, stale="", policy=snapshot.policy, now=state.now)
    return sight_of(node, snapshot)


def _ladder(session: QuarantineView, state: PageState) -> tuple[LadderRung, ...]:
    snapshot, name = state.snapshot, session.spec.node_name
    causes = open_causes(session, _sight(session, state)) or session.spec.causes
    others = [other for other in state.by_node.get(name, ()) if other.name != session.name]
    health = snapshot.healths.get(name)
    return rungs(session, others, causes, health, snapshot.policy, snapshot.now)


def _evidence(session: QuarantineView, state: PageState) -> tuple[shapes.IncidentEvidence, ...]:
    """What the session kept at its opening; before that, what the health object says now."""
    kept = session.status.evidence.get("incidents")
    listed = kept[:_MOST_INCIDENTS] if isinstance(kept, list) else []
    if found := [_kept(one) for one in listed if isinstance(one, Mapping)]:
        return tuple(found)
    ids = {cause.incident for cause in session.spec.causes if cause.incident}
    health = state.snapshot.healths.get(session.spec.node_name)
    return tuple(
        shapes.IncidentEvidence(
            reason=incident.reason,
            severity=incident.severity,
            first_seen=incident.first_seen,
            recommended_action=incident.recommended_action,
            lines=incident.evidence,
        )
        for incident in (health.status.incidents if health is not None else ())
        if incident.id in ids
    )


def _kept(one: Mapping[str, Any]) -> shapes.IncidentEvidence:
    """Evidence is free-form in the object: whatever is in it is read as text or left out."""
    lines = one.get("evidence")
    return shapes.IncidentEvidence(
        reason=_text_of(one.get("reason")),
        severity=_text_of(one.get("severity")),
        first_seen=_text_of(one.get("firstSeen")),
        recommended_action=_text_of(one.get("recommendedAction")),
        lines=tuple(map(_text_of, lines[:_MOST_LINES])) if isinstance(lines, list) else (),
    )


def _text_of(value: object) -> str:
    """A text of free-form evidence, bounded; "" for what is none."""
    return value[:_MOST_CHARS] if isinstance(value, str) else ""


def _gpu_ids(session: QuarantineView) -> tuple[str, ...]:
    """UUIDs that the session's evidence names."""
    named = session.status.evidence.get("gpus")
    listed = named[:_MOST_GPUS] if isinstance(named, list) else []
    return tuple(_text_of(one) for one in listed if isinstance(one, str))


def _identity(uuid: str, session: QuarantineView, state: PageState) -> shapes.GpuIdentity:
    """A GPU that the session names, by the health object of its node; a record knows the serial
    number of one that is not listed there any more.
    """
    health = state.known(session.spec.node_name)
    for gpu in health.status.gpus if health is not None else ():
        if gpu.uuid == uuid and gpu.serial:
            return shapes.GpuIdentity(uuid=uuid, serial=gpu.serial, index=gpu.index)
    record = state.snapshot.records.get(gpu_record_name(uuid))
    serial = record.status.serial if record is not None and not record.doubt else ""
    return shapes.GpuIdentity(uuid=uuid, serial=serial, index=-1)
