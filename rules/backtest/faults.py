"""Faults with their begin and end, each taken once, from whoever knows most of it.

Verdicts hold the latest faults of each node, sessions those that took a node, records those of 90
days. A fault that ended with a repair step of its session is that step's: without the step it
stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rules.api.health import IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase, RepairState
from rules.api.timestamps import format_time, parse_time
from rules.backtest.archive import Archive, health_view, record_view
from rules.backtest.real import RealSession, RealStep
from rules.catalog.reason import Level, Severity, severity_rank
from rules.ledger.record import FaultOutcome, RecordEvent
from rules.session.external import SOURCE as EXTERNAL
from rules.session.observation import is_open

_CLOSED_BY_REPAIR: Final = frozenset({"Reset", "Reboot", "Human"})
HEALS_S: Final = 900.0
"""A fault that closes so soon after its step was proven was closed by it (as the session waits).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFault:
    """One fault of one node; `ended` None: it is there still."""

    node: str
    incident: IncidentStatus
    began: float
    ended: float | None
    mended: bool = True
    """Whether something was done about it: it did not go away by itself."""
    step: RealStep | None = None
    """The repair step with which it ended; None: whoever ended it does so under any policy."""

    @property
    def fatal(self) -> bool:
        """Whether work on the node was failing."""
        return self.incident.severity == Severity.FATAL


def faults_of(
    archive: Archive, sessions: list[QuarantineView], real: Iterable[RealSession]
) -> tuple[tuple[PastFault, ...], tuple[RealSession, ...]]:
    """Every fault that somebody wrote down, oldest first, and the sessions that only records of
    them still know.
    """
    found: dict[str, PastFault] = {}
    by_incident = {
        cause.incident: session
        for session in sorted(sessions, key=lambda s: s.metadata.created_at)
        for cause in session.spec.causes
        if cause.incident
    }
    for one in archive.healths:
        for incident in health_view(one).status.incidents:
            session = by_incident.get(incident.id)
            fault = _of_verdict(one.name, incident, session)
            if fault is not None:
                found[incident.id] = fault
    for session in sessions:
        for fault in _of_session(session, by_incident):
            found.setdefault(fault.incident.id, fault)
    written = _recorded(archive, found.values())
    found |= {fault.incident.id: fault for fault, _ in written}
    forgotten = tuple(_forgotten(written, {session.name for session in sessions}))
    steps = _steps_by_incident((*real, *forgotten))
    mended = (_with_step(fault, steps) for fault in found.values())
    return tuple(sorted(mended, key=lambda f: (f.began, f.node, f.incident.id))), forgotten


def _forgotten(
    written: Iterable[tuple[PastFault, RecordEvent]], known: Collection[str]
) -> Iterator[RealSession]:
    """Sessions that history dropped: which steps they took is known, of the times only the
    ends.
    """
    for fault, event in written:
        if not event.steps or event.session in known:
            continue
        held = event.outcome in {FaultOutcome.RELEASED, FaultOutcome.CLOSED}
        steps = tuple(
            RealStep(
                step=step,
                state=RepairState.PROVEN if last and held else RepairState.FAILED,
                asked=fault.began,
                ended=fault.ended if last and held else None,
            )
            for number, step in enumerate(event.steps, start=1)
            for last in [number == len(event.steps)]
        )
        yield RealSession(
            name=event.session,
            node=fault.node,
            mode=str(Mode.ENFORCE),
            opened=fault.began,
            marked=None,
            drained=None,
            ended=fault.ended,
            phase="",
            undone=event.outcome == FaultOutcome.UNDONE,
            drain_s=None,
            incidents=frozenset({fault.incident.id}),
            steps=steps,
            evidence_s=0.0,
        )


def _steps_by_incident(real: Iterable[RealSession]) -> Mapping[str, list[RealStep]]:
    found: dict[str, list[RealStep]] = {}
    for session in real:
        for incident in session.incidents:
            found.setdefault(incident, []).extend(session.steps)
    return found


def _with_step(fault: PastFault, steps: Mapping[str, list[RealStep]]) -> PastFault:
    """The fault with the step that ended it: the last one that was asked for before, and
    proven.
    """
    ended = fault.ended
    by_person = fault.incident.closed_by.partition("(")[0] == "Human"
    if ended is None or not fault.mended or by_person:
        return fault
    its = [
        step
        for step in steps.get(fault.incident.id, ())
        if step.asked is not None
        and step.asked <= ended
        and (step.ended is None or ended <= step.ended + HEALS_S)
        and step.state in {RepairState.PROVEN, RepairState.ASKED}
    ]
    return replace(fault, step=its[-1]) if its else fault


def _of_verdict(
    node: str, incident: IncidentStatus, session: QuarantineView | None
) -> PastFault | None:
    began = parse_time(incident.first_seen)
    if began is None or severity_rank(incident.severity) < Severity.DEGRADED.rank:
        return None
    ended = None
    if not incident.active:
        ended = parse_time(incident.closed_at) or closed_in(session) or began
    mended = incident.closed_by.partition("(")[0] in _CLOSED_BY_REPAIR or not incident.closed_by
    return PastFault(node=node, incident=incident, began=began, ended=ended, mended=mended)


def _of_session(
    session: QuarantineView, by_incident: Mapping[str, QuarantineView]
) -> Iterator[PastFault]:
    """Faults that only the session still knows; what others said is no agent's word."""
    kept: Any = session.status.evidence.get("incidents")
    others = {c.incident for c in session.spec.causes if c.source == EXTERNAL}
    for one in kept if isinstance(kept, list) else ():
        if not isinstance(one, dict) or by_incident.get(str(one.get("id"))) is not session:
            continue
        began = parse_time(str(one.get("firstSeen", "")))
        if began is None or one.get("id") in others:
            continue
        gpus = one.get("gpus")
        incident = IncidentStatus(
            id=str(one.get("id")),
            reason=str(one.get("reason", "")),
            severity=str(one.get("severity", "")),
            level=session.spec.level,
            recommended_action=str(one.get("recommendedAction", "")),
            gpus=tuple(str(uuid) for uuid in gpus) if isinstance(gpus, list) else (),
            active=True,
            first_seen=format_time(began),
        )
        ended = closed_in(session)
        yield PastFault(node=session.spec.node_name, incident=incident, began=began, ended=ended)


def closed_in(session: QuarantineView | None) -> float | None:
    """When a session's causes were closed, by its own timeline."""
    if session is None:
        return None
    healed = [e.at for e in session.status.timeline if e.step == Phase.VALIDATING]
    if healed:
        return parse_time(healed[-1])
    return None if is_open(session) else parse_time(session.status.phase_since)


def _recorded(archive: Archive, known: Iterable[PastFault]) -> list[tuple[PastFault, RecordEvent]]:
    """Faults of the last 90 days that verdicts and sessions have forgotten, with their event."""
    there = {(f.node, f.incident.reason, round(f.began)) for f in known}
    found = []
    for one in archive.records:
        status = record_view(one).status
        for event in status.events:
            began = parse_time(event.at)
            if began is None or (event.node, event.reason, round(began)) in there:
                continue
            ident = f"record-{one.name}-{round(began)}-{event.reason}"
            incident = IncidentStatus(
                id=ident[:64],
                reason=event.reason,
                severity=event.severity,
                level=str(Level.DRAIN if event.session else Level.REPORT),
                gpus=(status.uuid,) if status.uuid else (),
                active=True,
                first_seen=event.at,
            )
            ended = parse_time(event.ended_at)
            if ended is None and event.outcome != FaultOutcome.ACTIVE:
                ended = began
            fault = PastFault(node=event.node, incident=incident, began=began, ended=ended)
            found.append((fault, event))
    return found
