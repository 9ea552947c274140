"""The fleet as values: nodes by pool and rack, counts, budgets, breaker, pauses. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from remediator.view import shapes
from remediator.view.people import pause_scope
from remediator.view.session_words import mark_stays
from remediator.view.state import PageState, mode_of, phase_of
from rules.api.health import HealthStatus
from rules.api.names import LABEL_GPUS, LABEL_GPUS_HEALTHY
from rules.api.nodes import NodeView
from rules.api.timestamps import format_time
from rules.fleet.silent_together import silent_together
from rules.session.observation import is_open, pause_over
from rules.session.status import is_true

HEALTHS = ("unhealthy", "unknown", "degraded", "healthy")
"""The gravest first."""
DAY_H = 24
MAX_GPUS = 64
"""More squares than this are not drawn in one node; the count is still shown."""


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


def summary(state: PageState, rows: Iterable[shapes.NodeRow]) -> shapes.FleetSummary:
    """Everything about the fleet but its nodes."""
    rows = list(rows)
    return shapes.FleetSummary(
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
        pools=_pools(rows),
        last_day=last_day(state),
    )


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


def last_day(state: PageState) -> tuple[int, ...]:
    """Sessions opened in each of the last 24 hours, the oldest hour first."""
    hours = [0] * DAY_H
    for session in state.snapshot.quarantines.values():
        ago_h = int((state.now - session.metadata.created_at) // 3600)
        if 0 <= ago_h < DAY_H:
            hours[DAY_H - 1 - ago_h] += 1
    return tuple(hours)


def _breaker(state: PageState) -> shapes.BreakerState:
    said = state.verdict.breaker.refusal
    return shapes.BreakerState(
        open=said is not None,
        reason=said.reason if said is not None else "",
        message=said.why if said is not None else "",
        until=format_time(said.until) if said is not None and said.until else "",
    )


def _pools(rows: list[shapes.NodeRow]) -> tuple[shapes.PoolRow, ...]:
    by_pool: dict[str, list[shapes.NodeRow]] = {}
    for row in rows:
        by_pool.setdefault(row.pool, []).append(row)
    return tuple(
        shapes.PoolRow(
            name=name,
            racks=len({row.rack for row in its}),
            nodes=len(its),
            healthy=sum(row.health == "healthy" for row in its),
            open_sessions=sum(bool(row.session) for row in its),
        )
        for name, its in sorted(by_pool.items())
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
