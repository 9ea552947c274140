"""The pages of the fleet: nodes, counts, budgets, breaker, pauses and open sessions; and what
sessions and records show over time: per week, by reason, repeat offenders. Pure.
"""

import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from remediator.view import operators, session_view, shapes
from remediator.view.shapes import Bar, HistoryPage
from remediator.view.state import PageState
from rules.api import gpu_record, names, quarantine, timestamps
from rules.api.health import HealthStatus
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Phase
from rules.catalog import reason
from rules.fleet import node_health
from rules.session import exclusions, observation

_WEEKS: Final = 12
_TOP: Final = 20
_LATEST: Final = 100
_DAY: Final = datetime.timedelta(days=1)
MAX_GPUS = 64
"""More GPUs than this are not drawn in one node; the count is still shown."""
_HEALTHS = ("unhealthy", "unknown", "degraded", "healthy")
_PHASES = tuple(Phase)
_SHORTEST = 2
"""Of a serial number or UUID: a single character would find every GPU."""


def fleet_page(state: PageState, wanted: shapes.FleetFilter) -> shapes.FleetPage:
    """Everything that `/` shows; `wanted` restricts nodes and sessions, not the counts."""
    snapshot = state.snapshot
    rows = sorted(
        (node_row(node, state) for node in snapshot.nodes.values()),
        key=lambda row: (row.pool, row.rack, row.name),
    )
    sessions = [
        session_view.session_row(s)
        for s in snapshot.quarantines.values()
        if observation.is_open(s) or operators.taint_stays(s)
    ]
    reasons: defaultdict[str, set[str]] = defaultdict(set)
    for session in sessions:
        reasons[session.node].add(session.reason)
    for row in rows:
        reasons[row.name] |= {gpu.reason for gpu in row.unhealthy_gpus if gpu.reason}
    found = search(state, wanted.q) if wanted.q.strip() else None
    nodes = tuple(
        row
        for row in rows
        if (found is None or row.name in found)
        and wanted.health in {"", row.health}
        and (not wanted.reason or wanted.reason in reasons[row.name])
        and wanted.rack in {"", row.rack}
        and wanted.phase in {"", row.phase}
        and (not wanted.out or row.unschedulable)
    )
    if is_filtered(wanted):
        shown = {row.name for row in nodes}
        sessions = [session for session in sessions if session.node in shown]
    breaker = state.assessment.breaker.refusal
    return shapes.FleetPage(
        replica=state.replica,
        counts=_counts(state, rows),
        budgets=tuple(
            shapes.BudgetRow(
                scope=f"{line.key}={line.value}" if line.key else "all selected nodes",
                nodes=line.total,
                unavailable=line.unavailable,
                limit=line.limit,
                room=line.room,
            )
            for line in state.assessment.lines
        ),
        policies=_policies(state),
        breaker=breaker.why if breaker is not None else "",
        breaker_until=timestamps.format_time(breaker.until) if breaker and breaker.until else "",
        findings=_findings(state),
        pauses=tuple(
            shapes.PauseRow(
                name=pause.metadata.name,
                scope=operators.pause_scope(pause),
                reason=pause.spec.reason,
                by=pause.spec.by,
                until=pause.spec.until,
            )
            for _, pause in sorted(snapshot.pauses.items())
            if not exclusions.pause_over(pause, state.now)
        ),
        filter=wanted,
        reasons=tuple(sorted(set().union(*reasons.values()) - {""})),
        racks=tuple(sorted({row.rack for row in rows})),
        phases=tuple(sorted({row.phase for row in rows if row.phase})),
        nodes=nodes,
        gone=tuple(name for name in found or () if name not in snapshot.nodes),
        sessions=_sorted_groups(sessions, {row.name: row.rack for row in rows}, wanted.sort),
    )


def is_filtered(wanted: shapes.FleetFilter) -> bool:
    """Whether the filter restricts anything; an order alone does not."""
    return msgspec.structs.replace(wanted, sort="") != shapes.FleetFilter()


def node_row(node: NodeView, state: PageState) -> shapes.NodeRow:
    """One node as the map shows it."""
    pool, rack = state.keys.group(node.labels)
    watched = state.snapshot.healths.get(node.name)
    session = state.open_session(node.name)
    row = session_view.session_row(session) if session is not None else None
    return shapes.NodeRow(
        name=node.name,
        pool=pool,
        rack=rack,
        health=state.health_now(node).value.lower(),
        gpus=_count(node.labels.get(names.LABEL_GPUS)),
        gpus_healthy=_count(node.labels.get(names.LABEL_GPUS_HEALTHY)),
        unhealthy_gpus=_gpu_states(watched.status, session) if watched is not None else (),
        unschedulable=node.spec.unschedulable,
        ready=node.ready,
        phase=row.phase if row is not None else "",
        mode=row.mode if row is not None else "",
    )


def _gpu_states(
    status: HealthStatus, session: QuarantineView | None
) -> tuple[shapes.GpuSquare, ...]:
    isolated = {each.uuid for each in session.status.devices} if session is not None else set()
    return tuple(
        shapes.GpuSquare(
            index=gpu.index if gpu.index >= 0 else position,
            health=gpu.health.lower() if gpu.health.lower() in _HEALTHS else "unknown",
            reason=gpu.reason,
            isolated=gpu.uuid in isolated,
        )
        for position, gpu in enumerate(status.gpus[:MAX_GPUS])
        if gpu.health != "Healthy"
    )


def _count(label: str | None) -> int:
    """A label's number; a label is text that anybody may have written."""
    return int(label) if label and label.isascii() and label.isdigit() and len(label) < 6 else 0


def search(state: PageState, text: str) -> dict[str, str]:
    """Nodes that the text may mean, each with the session that it names or "".

    By a part of the name of a node or session, or of the serial number or UUID of a GPU, as far as
    a health object or a record is at hand.
    """
    asked, snapshot = text.strip().lower(), state.snapshot
    found = {name: "" for name in sorted(snapshot.nodes) if asked in name.lower()}
    for name, session in sorted(snapshot.quarantines.items()):
        if asked in name.lower():
            found.setdefault(session.spec.node_name, name)
    if len(asked) < _SHORTEST:
        return found
    gpus = [
        (name, f"{gpu.uuid} {gpu.serial}")
        for name, health in sorted({**state.read, **snapshot.healths}.items())
        for gpu in health.status.gpus
    ]
    records = sorted(snapshot.records.items())
    gpus += [(r.status.node, f"{r.status.uuid} {r.status.serial}") for _, r in records]
    for node, named in gpus:
        if node and asked in named.lower():
            found.setdefault(node, "")
    return found


def _sorted_groups(
    sessions: Iterable[shapes.SessionRow], rack_of: Mapping[str, str], sort: str
) -> tuple[shapes.SessionGroup, ...]:
    """Sessions that differ only in node and age as one row each. Sorted by rack, the nodes of a
    group share their rack, too.
    """
    orders: dict[str, Callable[[shapes.SessionRow], Any]] = {
        "node": lambda row: row.node,
        "rack": lambda row: rack_of.get(row.node, ""),
        "phase": lambda row: _PHASES.index(row.phase) if row.phase in _PHASES else len(_PHASES),
        "reason": lambda row: row.reason,
        "age": lambda row: timestamps.parse_time(row.phase_since) or 0.0,
    }
    rows = sorted(sessions, key=_urgency)
    if sort in orders:
        rows.sort(key=orders[sort])
    found: defaultdict[tuple[object, ...], list[shapes.SessionRow]] = defaultdict(list)
    for row in rows:
        # The message without the node's name, which differs.
        message = row.waits_for or row.message.replace(row.node, "")
        key = (row.phase, row.mode, row.severity, row.reason, row.causes, row.conditions, message)
        found[(*key, rack_of.get(row.node, "") if sort == "rack" else "")].append(row)
    groups = []
    for its in found.values():
        by_age = sorted(its, key=lambda row: timestamps.parse_time(row.phase_since) or 0.0)
        groups.append(
            shapes.SessionGroup(
                session=by_age[0],
                nodes=tuple(row.node for row in its),
                newest_since=by_age[-1].phase_since,
                racks=tuple(sorted({rack_of.get(row.node, "") for row in its} - {""})),
            )
        )
    return tuple(groups)


def _urgency(row: shapes.SessionRow) -> tuple[bool, int, float, str]:
    """Those that need operator action first, then the most severe, then the oldest."""
    since = timestamps.parse_time(row.opened_at) or 0.0
    return not row.needs, -reason.severity_rank(row.severity), since, row.name


def _policies(state: PageState) -> tuple[shapes.PolicyRow, ...]:
    """The policies of a file with pools, then the overlaps of pools."""
    snapshot = state.snapshot
    named = {one.name: one for one in snapshot.policy.policies}
    if len(named) == 1:
        return ()
    in_force = [snapshot.policy_of(node) for node in snapshot.nodes.values()]
    named |= {one.name: one for one in in_force}
    nodes = Counter(one.name for one in in_force)
    return tuple(
        shapes.PolicyRow(name=name, mode=str(one.mode), nodes=nodes[name])
        for name, one in named.items()
    )


def _findings(state: PageState) -> tuple[str, ...]:
    """Why many are Unknown at once, what the breaker found in sessions, then what sick nodes have
    in common besides.
    """
    found = state.assessment.breaker.findings
    reasons = {finding.reason for finding in found}
    silent = node_health.silent_together(state.snapshot.agents.values())
    return (
        *([silent] if silent else ()),
        *(finding.message for finding in found),
        *(cause.message for cause in state.common if cause.reason not in reasons),
    )


def _counts(state: PageState, rows: list[shapes.NodeRow]) -> shapes.Counts:
    counts = Counter(row.health for row in rows)
    seen = [row for row in rows if row.health != "unknown"]
    sessions = state.snapshot.quarantines.values()
    out = [
        session_view.session_row(s)
        for s in sessions
        if observation.is_open(s) or operators.taint_stays(s)
    ]
    return shapes.Counts(
        nodes=len(rows),
        healthy=counts["healthy"],
        degraded=counts["degraded"],
        unhealthy=counts["unhealthy"],
        unknown=counts["unknown"],
        unschedulable=sum(row.unschedulable for row in rows),
        gpus=sum(row.gpus for row in rows),
        gpus_seen=sum(row.gpus for row in seen),
        gpus_healthy=sum(row.gpus_healthy for row in seen),
        open_sessions=sum(row.open for row in out),
        need_human=sum(bool(row.needs) for row in out),
    )


def history_page(state: PageState) -> HistoryPage:
    """Everything that `/history` shows."""
    sessions = sorted(
        state.snapshot.quarantines.values(), key=lambda s: (s.metadata.created_at, s.name)
    )
    ended = [
        session_view.session_row(session)
        for session in sessions
        if not observation.is_open(session)
    ]
    ended.sort(key=lambda row: (-(timestamps.parse_time(row.phase_since) or 0.0), row.name))
    return HistoryPage(
        replica=state.replica,
        sessions=len(sessions),
        ended=len(ended),
        weeks=weeks(sessions, state.now),
        reasons=tuple(Bar(name=r, sessions=n) for r, n in _reasons(sessions)[:_TOP]),
        offenders=tuple(_offenders(state)),
        latest=tuple(ended[:_LATEST]),
    )


def weeks(sessions: Iterable[QuarantineView], now: float) -> tuple[Bar, ...]:
    """Sessions opened in each of the last twelve weeks, the present one last."""
    opened = Counter(_monday(s.metadata.created_at) for s in sessions if s.metadata.created_at)
    starts = [_monday(now) - 7 * _DAY * back for back in reversed(range(_WEEKS))]
    return tuple(Bar(name=start.isoformat(), sessions=opened[start]) for start in starts)


def _monday(at: float) -> datetime.date:
    day = datetime.datetime.fromtimestamp(at, datetime.UTC).date()
    return day - _DAY * day.weekday()


def _offenders(state: PageState) -> Iterator[shapes.RepeatOffender]:
    for _, record in sorted(state.snapshot.records.items()):
        status = record.status
        if not record.doubt and gpu_record.is_repeat_offender(status, state.now):
            yield shapes.RepeatOffender(
                name=status.called,
                serial=status.serial,
                node=status.node,
                faults=gpu_record.fault_summary(status, state.now),
            )


def _reasons(sessions: Iterable[QuarantineView]) -> list[tuple[str, int]]:
    """Reasons with how many of the sessions they opened, the most frequent first."""
    found = Counter(
        quarantine.most_severe_reason(session.spec.causes) or "none given" for session in sessions
    )
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))
