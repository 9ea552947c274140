"""What happened, read from the records: faults with their begin and end, and what people did.

Verdicts hold the latest faults of each node, sessions those that took a node, records those of 90
days; each fault is taken once, from whoever knows most of it. What nobody wrote down is not made
up: `Past.lacks` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rules.api.health import IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase, QuarantineSpec
from rules.api.timestamps import format_time, parse_time
from rules.backtest.archive import (
    Archive,
    ExportedNode,
    health_view,
    record_view,
    session_view,
)
from rules.catalog.reason import Level, Severity
from rules.ledger.record import FaultOutcome
from rules.session.causes import ended_by_person, has_human, severity_rank
from rules.session.observation import is_open

_NO_PODS: Final = (
    "pods of the past are not recorded: a drain takes as long as the real one of that node then, "
    "else it is assumed instant, and gangs do not wait for each other"
)
_CLOSED_BY_REPAIR: Final = frozenset({"Reset", "Reboot", "Human"})
GPUS: Final = 8
"""Of a node that does not say how many it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFault:
    """One fault of one node; `ended` None: it is there still."""

    node: str
    incident: IncidentStatus
    began: float
    ended: float | None
    mended: bool = True
    """Whether something was done about it: it did not go away by itself."""

    @property
    def fatal(self) -> bool:
        """Whether work on the node was failing."""
        return self.incident.severity == Severity.FATAL


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonAct:
    """What a person did at a time: asked for a node, released one, or undid its mark."""

    at: float
    node: str
    asks: QuarantineSpec | None = None
    name: str = ""
    ends: str = ""
    """`Released` or `Cancelled`."""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSession:
    """A session that really was."""

    name: str
    node: str
    mode: str
    opened: float
    marked: float | None
    drained: float | None
    ended: float | None
    phase: str
    undone: bool
    drain_s: float | None
    """How long its drain took; None where there was none or nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Everything that is known of the time before the export."""

    began: float
    ended: float
    nodes: tuple[ExportedNode, ...]
    faults: tuple[PastFault, ...]
    acts: tuple[PersonAct, ...]
    sessions: tuple[RealSession, ...]
    reboots: tuple[tuple[float, str], ...] = ()
    versions: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Driver, agent and rules version by node."""
    lacks: tuple[str, ...] = ()

    def gpus(self, node: str) -> int:
        """How many GPUs a node has."""
        return self._gpus().get(node, GPUS)

    def _gpus(self) -> dict[str, int]:
        label = "gpuward.io/gpus"
        found = {n.name: n.labels.get(label, "") for n in self.nodes}
        return {name: int(text) for name, text in found.items() if text.isdigit()}


def past_of(archive: Archive) -> Past:
    """Read the records."""
    sessions = [session_view(one) for one in archive.sessions]
    ended = parse_time(archive.meta.at)
    lacks = list(archive.meta.lacks)
    faults = _faults(archive, sessions)
    acts = _acts(sessions)
    real = tuple(_real(session) for session in sessions)
    times = [f.began for f in faults] + [a.at for a in acts] + [r.opened for r in real]
    nodes = {node.name: node for node in archive.nodes}
    gone = sorted({f.node for f in faults} - nodes.keys())
    for name in gone:
        nodes[name] = ExportedNode(name=name, conditions={"Ready": "True"})
    if gone:
        lacks.append(f"{len(gone)} nodes are gone: their labels, racks and GPUs are not known")
    if any(session.status.repair for session in sessions):
        lacks.append("repairs are not replayed: a fault ends when it ended, whatever is done")
    others = sum(
        any(cause.source not in {"Detector", "Human"} for cause in session.spec.causes)
        for session in sessions
    )
    if others:
        lacks.append(
            f"{others} sessions rest on what others said on the node or on a test, which is not "
            "recorded"
        )
    lacks += [
        _NO_PODS,
        "nodes are selected and grouped by their labels of the export",
        "cordons, outages and pauses of others are as they were at the export",
        "a fault that a drain would have spared or brought on is not guessed",
    ]
    if ended is None:
        ended = max(times, default=0.0)
        lacks.append("the export does not say when it was made")
    return Past(
        began=min(times, default=ended),
        ended=ended,
        nodes=tuple(nodes[name] for name in sorted(nodes)),
        faults=faults,
        acts=acts,
        sessions=real,
        reboots=_reboots(sessions),
        versions=_versions(archive),
        lacks=tuple(dict.fromkeys(lacks)),
    )


def _faults(archive: Archive, sessions: list[QuarantineView]) -> tuple[PastFault, ...]:
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
    _add_recorded(archive, found)
    return tuple(sorted(found.values(), key=lambda f: (f.began, f.node, f.incident.id)))


def _of_verdict(
    node: str, incident: IncidentStatus, session: QuarantineView | None
) -> PastFault | None:
    began = parse_time(incident.first_seen)
    if began is None or severity_rank(incident.severity) < Severity.DEGRADED.rank:
        return None
    ended = None
    if not incident.active:
        ended = parse_time(incident.closed_at) or _closed_in(session) or began
    mended = incident.closed_by.partition("(")[0] in _CLOSED_BY_REPAIR or not incident.closed_by
    return PastFault(node=node, incident=incident, began=began, ended=ended, mended=mended)


def _of_session(
    session: QuarantineView, by_incident: dict[str, QuarantineView]
) -> Iterable[PastFault]:
    """Faults that only the session still knows."""
    kept: Any = session.status.evidence.get("incidents")
    for one in kept if isinstance(kept, list) else ():
        if not isinstance(one, dict) or by_incident.get(str(one.get("id"))) is not session:
            continue
        began = parse_time(str(one.get("firstSeen", "")))
        if began is None:
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
        ended = _closed_in(session)
        yield PastFault(node=session.spec.node_name, incident=incident, began=began, ended=ended)


def _closed_in(session: QuarantineView | None) -> float | None:
    """When a session's causes were closed, by its own timeline."""
    if session is None:
        return None
    healed = [e.at for e in session.status.timeline if e.step == Phase.VALIDATING]
    if healed:
        return parse_time(healed[-1])
    return None if is_open(session) else parse_time(session.status.phase_since)


def _add_recorded(archive: Archive, found: dict[str, PastFault]) -> None:
    """Faults of the last 90 days that verdicts and sessions have forgotten."""
    known = {(f.node, f.incident.reason, round(f.began)) for f in found.values()}
    for one in archive.records:
        status = record_view(one).status
        for event in status.events:
            began = parse_time(event.at)
            if began is None or (event.node, event.reason, round(began)) in known:
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
            found[incident.id] = PastFault(
                node=event.node, incident=incident, began=began, ended=ended
            )


def _acts(sessions: list[QuarantineView]) -> tuple[PersonAct, ...]:
    acts = []
    for session in sessions:
        node = session.spec.node_name
        if has_human(session):
            people = tuple(c for c in session.spec.causes if c.source == "Human")
            spec = msgspec.structs.replace(
                session.spec, causes=people, release=None, node_uid="", boot_id="", repair=None
            )
            opened = session.metadata.created_at
            acts.append(PersonAct(at=opened, node=node, asks=spec, name=session.name))
        if is_open(session) or not ended_by_person(session):
            continue
        at = parse_time(session.status.phase_since)
        asked = session.spec.release
        if at is not None:
            acts.append(
                PersonAct(
                    at=at,
                    node=node,
                    ends=str(session.status.phase),
                    by=asked.by if asked is not None else "",
                )
            )
    return tuple(sorted(acts, key=lambda act: (act.at, act.node)))


def _real(session: QuarantineView) -> RealSession:
    first: dict[str, float] = {}
    for entry in session.status.timeline:
        at = parse_time(entry.at)
        if at is not None:
            first.setdefault(entry.step, at)
    ended = None if is_open(session) else parse_time(session.status.phase_since)
    draining, drained = first.get(Phase.DRAINING), first.get(Phase.QUARANTINED)
    took = drained - draining if draining is not None and drained is not None else None
    return RealSession(
        name=session.name,
        node=session.spec.node_name,
        mode=session.status.mode or str(Mode.SHADOW),
        opened=session.metadata.created_at,
        marked=first.get(Phase.MARKED),
        drained=drained,
        ended=ended,
        phase=session.status.phase,
        undone=not is_open(session) and ended_by_person(session) and not has_human(session),
        drain_s=took,
    )


def _versions(archive: Archive) -> dict[str, tuple[str, str, str]]:
    found = {}
    for one in archive.healths:
        status = health_view(one).status
        found[one.name] = (status.driver_version, status.agent_version, status.rules_version)
    return found


def _reboots(sessions: list[QuarantineView]) -> tuple[tuple[float, str], ...]:
    return tuple(
        sorted(
            (at, session.spec.node_name)
            for session in sessions
            for entry in session.status.timeline
            if entry.step == "NewBoot" and (at := parse_time(entry.at)) is not None
        )
    )
