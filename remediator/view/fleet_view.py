"""The page of the fleet: nodes, counts, budgets, breaker, pauses, open sessions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from remediator.view import shapes
from remediator.view.people import pause_scope
from remediator.view.session_view import session_row, urgency
from remediator.view.session_words import mark_stays
from remediator.view.state import PageState, mode_of, phase_of
from rules.api.health import HealthStatus
from rules.api.names import LABEL_GPUS, LABEL_GPUS_HEALTHY
from rules.api.nodes import NodeView
from rules.api.timestamps import format_time, parse_time
from rules.fleet.silent_together import silent_together
from rules.session.observation import is_open, pause_over
from rules.session.status import is_true

HEALTHS = ("unhealthy", "unknown", "degraded", "healthy")
"""The gravest first."""
SHORTEST = 2
"""Of a serial number or UUID: a single character would find every GPU."""
MAX_GPUS = 64
"""More GPUs than this are not drawn in one node; the count is still shown."""


def node_rows(state: PageState) -> list[shapes.NodeRow]:
    """Every GPU node, by pool, rack and name."""
    rows = [node_row(node, state) for node in state.snapshot.nodes.values()]
    return sorted(rows, key=lambda row: (row.pool, row.rack, row.name))


def node_row(node: NodeView, state: PageState) -> shapes.NodeRow:
    """One node as the heat map shows it."""
    pool, rack = state.keys.group(node.labels)
    verdict = state.health(node.name)
    session = state.open_session(node.name)
    gpus = _count(node.labels.get(LABEL_GPUS))
    return shapes.NodeRow(
        name=node.name,
        pool=pool,
        rack=rack,
        health=state.health_now(node).word.lower(),
        gpus=gpus,
        gpus_healthy=_count(node.labels.get(LABEL_GPUS_HEALTHY)),
        marks=gpu_marks(verdict.status) if verdict is not None else (),
        unschedulable=node.spec.unschedulable,
        ready=node.ready,
        session=session.name if session else "",
        phase=phase_of(session) if session else "",
        mode=mode_of(session) if session else "",
    )


def gpu_marks(status: HealthStatus) -> tuple[shapes.GpuMark, ...]:
    """The GPUs of a verdict that are not plainly healthy."""
    return tuple(
        shapes.GpuMark(
            index=gpu.index if gpu.index >= 0 else position,
            health=_word(gpu.health),
            uuid=gpu.uuid,
            reason=gpu.reason,
        )
        for position, gpu in enumerate(status.gpus[:MAX_GPUS])
        if gpu.health != "Healthy"
    )


def _word(health: str) -> str:
    word = health.lower()
    return word if word in HEALTHS else "unknown"


def _count(label: str | None) -> int:
    """A label's number; a label is text that anybody may have written."""
    return int(label) if label and label.isascii() and label.isdigit() and len(label) < 6 else 0


def fleet_page(state: PageState, wanted: shapes.FleetFilter) -> shapes.FleetPage:
    """Everything that `/` shows; `wanted` restricts nodes and sessions, not the counts."""
    rows = node_rows(state)
    open_sessions = sorted(
        (
            session_row(s)
            for s in state.snapshot.quarantines.values()
            if is_open(s) or mark_stays(s)
        ),
        key=urgency,
    )
    reasons: dict[str, set[str]] = {}
    for session in open_sessions:
        reasons.setdefault(session.node, set()).add(session.reason)
    for row in rows:
        reasons.setdefault(row.name, set()).update(m.reason for m in row.marks if m.reason)
    found = search(state, wanted.q) if wanted.q.strip() else None

    def fits(row: shapes.NodeRow) -> bool:
        return (
            (found is None or row.name in found)
            and wanted.health in {"", row.health}
            and (not wanted.reason or wanted.reason in reasons[row.name])
            and wanted.rack in {"", row.rack}
            and wanted.phase in {"", row.phase}
            and (not wanted.out or row.unschedulable)
        )

    nodes = tuple(row for row in rows if fits(row))
    shown = {row.name for row in nodes}
    restricted = wanted != shapes.FleetFilter()
    return shapes.FleetPage(
        replica=state.replica(),
        counts=counts(state, rows),
        budgets=tuple(
            shapes.BudgetRow(
                scope=f"{line.key}={line.value}" if line.key else "all selected nodes",
                nodes=line.total,
                unavailable=line.unavailable,
                limit=line.limit,
                room=line.room,
            )
            for line in state.verdict.lines
        ),
        breaker=_breaker(state),
        findings=_findings(state),
        pauses=pauses(state),
        filter=wanted,
        reasons=tuple(sorted(set().union(*reasons.values()) - {""})),
        racks=tuple(sorted({row.rack for row in rows})),
        phases=tuple(sorted({row.phase for row in rows if row.phase})),
        nodes=nodes,
        gone=tuple(name for name in found or () if name not in state.snapshot.nodes),
        sessions=grouped(s for s in open_sessions if not restricted or s.node in shown),
    )


def grouped(rows: Iterable[shapes.SessionRow]) -> tuple[shapes.SessionGroup, ...]:
    """Sessions that say the same as one row, in the order of the first of each."""
    found: dict[tuple[object, ...], list[shapes.SessionRow]] = {}
    for row in rows:
        # What waits for the fleet differs in its dates; what it waits for is the same.
        said = row.waits_for or row.message
        key = (row.phase, row.mode, row.severity, row.reason, row.causes, row.conditions, said)
        found.setdefault(key, []).append(row)
    return tuple(
        shapes.SessionGroup(
            session=min(its, key=lambda row: parse_time(row.phase_since) or 0.0),
            nodes=tuple(row.node for row in its),
            newest_since=max((row.phase_since for row in its), key=lambda at: parse_time(at) or 0),
        )
        for its in found.values()
    )


def search(state: PageState, text: str) -> dict[str, str]:
    """Nodes that the text may mean, each with the session that it names or "".

    By a part of the name of a node or session, or of the serial number or UUID of a GPU, as far as
    a verdict or a record is at hand.
    """
    asked = text.strip().lower()
    found = {name: "" for name in sorted(state.snapshot.nodes) if asked in name.lower()}
    for name, session in sorted(state.snapshot.quarantines.items()):
        if asked in name.lower():
            found.setdefault(session.spec.node_name, name)
    if len(asked) < SHORTEST:
        return found
    for name, health in sorted({**state.read, **state.snapshot.healths}.items()):
        if any(asked in f"{gpu.uuid} {gpu.serial}".lower() for gpu in health.status.gpus):
            found.setdefault(name, "")
    for _, record in sorted(state.snapshot.records.items()):
        status = record.status
        if status.node and asked in f"{status.uuid} {status.serial}".lower():
            found.setdefault(status.node, "")
    return found


def _findings(state: PageState) -> tuple[str, ...]:
    """Why many are Unknown at once, what the breaker found in sessions, then what verdicts have in
    common besides.
    """
    found = state.verdict.findings
    told = {finding.reason for finding in found}
    silent = silent_together(state.snapshot.agents.values())
    return (
        *([silent] if silent else ()),
        *(finding.message for finding in found),
        *(cause.message for cause in state.common if cause.reason not in told),
    )


def counts(state: PageState, rows: list[shapes.NodeRow]) -> shapes.Counts:
    """The fleet in numbers."""
    words = Counter(row.health for row in rows)
    opened = [s for s in state.snapshot.quarantines.values() if is_open(s)]
    seen = [row for row in rows if row.health != "unknown"]
    return shapes.Counts(
        nodes=len(rows),
        healthy=words["healthy"],
        degraded=words["degraded"],
        unhealthy=words["unhealthy"],
        unknown=words["unknown"],
        unschedulable=sum(row.unschedulable for row in rows),
        gpus=sum(row.gpus for row in rows),
        gpus_seen=sum(row.gpus for row in seen),
        gpus_healthy=sum(row.gpus_healthy for row in seen),
        open_sessions=len(opened),
        need_human=sum(
            is_true(s.status, "NeedsHuman")
            for s in state.snapshot.quarantines.values()
            if is_open(s) or mark_stays(s)
        ),
    )


def _breaker(state: PageState) -> shapes.BreakerState:
    said = state.verdict.breaker.refusal
    return shapes.BreakerState(
        open=said is not None,
        reason=said.reason if said is not None else "",
        message=said.why if said is not None else "",
        until=format_time(said.until) if said is not None and said.until else "",
    )


def pauses(state: PageState) -> tuple[shapes.PauseRow, ...]:
    """The pauses in force."""
    return tuple(
        shapes.PauseRow(
            name=pause.metadata.name,
            scope=pause_scope(pause),
            reason=pause.spec.reason,
            by=pause.spec.by,
            until=pause.spec.until,
        )
        for _, pause in sorted(state.snapshot.pauses.items())
        if not pause_over(pause, state.now)
    )
