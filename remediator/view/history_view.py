"""What sessions say over time: per week, by reason, time to drain, repeat offenders. Pure."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable

from remediator.view.session_view import gpu_ids, identity, session_row
from remediator.view.shapes import (
    DrainTimes,
    GpuOffender,
    HistoryPage,
    NodeOffender,
    ReasonCount,
    Week,
)
from remediator.view.state import PageState, seconds_between
from rules.api.health import GpuStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase, gravest_reason
from rules.api.timestamps import parse_time
from rules.session.observation import is_open
from rules.session.status import is_true

WEEKS = 12
TOP = 20
LATEST = 100
_REPEATED = 2
_DAY = datetime.timedelta(days=1)


def history_page(state: PageState) -> HistoryPage:
    """Everything that `/history` shows."""
    sessions = sorted(
        state.snapshot.quarantines.values(), key=lambda s: (s.metadata.created_at, s.name)
    )
    ended = [session_row(session) for session in sessions if not is_open(session)]
    ended.sort(key=lambda row: (-(parse_time(row.phase_since) or 0.0), row.name))
    return HistoryPage(
        replica=state.replica(),
        sessions=len(sessions),
        ended=len(ended),
        weeks=weeks(sessions, state.now),
        reasons=reasons(sessions),
        drain_times=drain_times(sessions),
        nodes=node_offenders(sessions),
        gpus=gpu_offenders(sessions, state),
        latest=tuple(ended[:LATEST]),
    )


def weeks(sessions: Iterable[QuarantineView], now: float) -> tuple[Week, ...]:
    """Sessions opened in each of the last twelve weeks, the present one last."""
    today = datetime.datetime.fromtimestamp(now, datetime.UTC).date()
    monday = today - _DAY * today.weekday()
    opened = Counter(
        _monday(session.metadata.created_at) for session in sessions if session.metadata.created_at
    )
    starts = [monday - 7 * _DAY * back for back in reversed(range(WEEKS))]
    return tuple(Week(start=start.isoformat(), sessions=opened[start]) for start in starts)


def _monday(at: float) -> datetime.date:
    day = datetime.datetime.fromtimestamp(at, datetime.UTC).date()
    return day - _DAY * day.weekday()


def reasons(sessions: Iterable[QuarantineView]) -> tuple[ReasonCount, ...]:
    """Reasons by how many sessions they opened."""
    found = Counter(_reason(session) for session in sessions)
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ReasonCount(reason=reason, sessions=n) for reason, n in ranked[:TOP])


def _reason(session: QuarantineView) -> str:
    return gravest_reason(session.spec.causes) or "none given"


def drain_seconds(session: QuarantineView) -> float | None:
    """From the first drain pass to Quarantined; None while it runs or where there was no drain."""
    drain = session.status.drain
    if drain is None or not drain.started_at:
        return None
    for entry in session.status.timeline:
        took = seconds_between(drain.started_at, entry.at)
        if entry.step == Phase.QUARANTINED and took is not None and took >= 0:
            return took
    return None


def drain_times(sessions: Iterable[QuarantineView]) -> DrainTimes:
    """How long finished drains took."""
    took = sorted(s for s in map(drain_seconds, sessions) if s is not None)
    return DrainTimes(
        drains=len(took),
        median_seconds=_quantile(took, 0.5),
        p90_seconds=_quantile(took, 0.9),
        longest_seconds=int(took[-1]) if took else 0,
    )


def _quantile(ordered: list[float], share: float) -> int:
    """The smallest value that at least that share does not exceed."""
    if not ordered:
        return 0
    rank = -(-len(ordered) * share // 1)
    return int(ordered[max(0, int(rank) - 1)])


def node_offenders(sessions: Iterable[QuarantineView]) -> tuple[NodeOffender, ...]:
    """Nodes with more than one session, the worst first."""
    by_node: dict[str, list[QuarantineView]] = {}
    for session in sessions:
        by_node.setdefault(session.spec.node_name, []).append(session)
    found = [
        NodeOffender(
            node=node,
            sessions=len(its),
            last_opened=its[-1].metadata.creation_timestamp,
            reasons=_reasons(its),
            replace=any(is_open(s) and is_true(s.status, "Replace") for s in its),
        )
        for node, its in by_node.items()
        if len(its) >= _REPEATED
    ]
    return tuple(sorted(found, key=lambda o: (not o.replace, -o.sessions, o.node))[:TOP])


def gpu_offenders(sessions: Iterable[QuarantineView], state: PageState) -> tuple[GpuOffender, ...]:
    """GPUs that several sessions name, wherever they were plugged in."""
    by_gpu: dict[str, list[QuarantineView]] = {}
    for session in sessions:
        for uuid in gpu_ids(session):
            by_gpu.setdefault(uuid, []).append(session)
    repeated = {uuid: its for uuid, its in by_gpu.items() if len(its) >= _REPEATED}
    ranked = sorted(repeated.items(), key=lambda item: (-len(item[1]), item[0]))[:TOP]
    return tuple(
        GpuOffender(
            gpu=identity(uuid, _gpu(uuid, its, state), state.snapshot.records),
            nodes=tuple(dict.fromkeys(session.spec.node_name for session in its)),
            sessions=len(its),
            last_opened=its[-1].metadata.creation_timestamp,
            reasons=_reasons(its),
        )
        for uuid, its in ranked
    )


def _gpu(uuid: str, sessions: list[QuarantineView], state: PageState) -> GpuStatus | None:
    for session in reversed(sessions):
        verdict = state.known(session.spec.node_name)
        for gpu in verdict.status.gpus if verdict else ():
            if gpu.uuid == uuid:
                return gpu
    return None


def _reasons(sessions: list[QuarantineView]) -> tuple[str, ...]:
    """Their reasons, the most frequent first, at most four."""
    ranked = Counter(map(_reason, sessions)).most_common(4)
    return tuple(reason for reason, _ in ranked)
