"""What sessions say over time: per week, by reason, time to drain, repeat offenders. Pure."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from remediator.view.session_view import gpu_ids, identity, session_row
from remediator.view.shapes import Bar, DrainTimes, HistoryPage, Repeated
from remediator.view.state import PageState
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Phase, gravest_reason
from rules.api.timestamps import parse_time
from rules.session.observation import is_open
from rules.session.status import is_true

_WEEKS: Final = 12
_TOP: Final = 20
_LATEST: Final = 100
_REPEATED: Final = 2
_DAY: Final = datetime.timedelta(days=1)


def history_page(state: PageState) -> HistoryPage:
    """Everything that `/history` shows."""
    sessions = sorted(
        state.snapshot.quarantines.values(), key=lambda s: (s.metadata.created_at, s.name)
    )
    ended = [session_row(session) for session in sessions if not is_open(session)]
    ended.sort(key=lambda row: (-(parse_time(row.phase_since) or 0.0), row.name))
    by_node: defaultdict[str, list[QuarantineView]] = defaultdict(list)
    by_gpu: defaultdict[str, list[QuarantineView]] = defaultdict(list)
    for session in sessions:
        by_node[session.spec.node_name].append(session)
        for uuid in gpu_ids(session):
            by_gpu[uuid].append(session)
    return HistoryPage(
        replica=state.replica,
        sessions=len(sessions),
        ended=len(ended),
        weeks=weeks(sessions, state.now),
        reasons=tuple(Bar(name=r, sessions=n) for r, n in _reasons(sessions)[:_TOP]),
        drain_times=drain_times(sessions),
        nodes=_most_repeated(_repeated(node, its) for node, its in by_node.items()),
        gpus=_most_repeated(
            _repeated(uuid, its, identity(uuid, reversed(its), state).serial)
            for uuid, its in by_gpu.items()
            if len(its) >= _REPEATED
        ),
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


def drain_times(sessions: Iterable[QuarantineView]) -> DrainTimes:
    """How long finished drains took."""
    took = sorted(s for s in map(drain_seconds, sessions) if s is not None)
    return DrainTimes(
        drains=len(took),
        median_seconds=_quantile(took, 0.5),
        p90_seconds=_quantile(took, 0.9),
        longest_seconds=int(took[-1]) if took else 0,
    )


def drain_seconds(session: QuarantineView) -> float | None:
    """From the first drain pass to Quarantined; None while it runs or where there was no drain."""
    begun = parse_time(session.status.drain.started_at) if session.status.drain else None
    for entry in session.status.timeline:
        ended = parse_time(entry.at) if entry.step == Phase.QUARANTINED else None
        if begun is not None and ended is not None and ended >= begun:
            return ended - begun
    return None


def _quantile(ordered: list[float], share: float) -> int:
    """The smallest value that at least that share does not exceed."""
    rank = int(-(-len(ordered) * share // 1))
    return int(ordered[max(0, rank - 1)]) if ordered else 0


def _repeated(name: str, its: Sequence[QuarantineView], serial: str = "") -> Repeated:
    return Repeated(
        name=name,
        serial=serial,
        nodes=tuple(dict.fromkeys(session.spec.node_name for session in its)),
        sessions=len(its),
        last_opened=its[-1].metadata.creation_timestamp,
        reasons=tuple(reason for reason, _ in _reasons(its)[:4]),
        replace=any(is_open(s) and is_true(s.status, "Replace") for s in its),
    )


def _most_repeated(found: Iterable[Repeated]) -> tuple[Repeated, ...]:
    several = (one for one in found if one.sessions >= _REPEATED)
    return tuple(sorted(several, key=lambda o: (not o.replace, -o.sessions, o.name))[:_TOP])


def _reasons(sessions: Iterable[QuarantineView]) -> list[tuple[str, int]]:
    """Reasons with how many of the sessions they opened, the most frequent first."""
    found = Counter(gravest_reason(session.spec.causes) or "none given" for session in sessions)
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))
