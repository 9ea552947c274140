"""Rates with their uncertainty: faults per 1,000 GPU-days, what held, how long things were out.

Few events say little, so each number carries a 95 % interval: Byar's approximation of the exact
one for counts (Breslow and Day 1987), Wilson's for shares (1927).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from rules.api.timestamps import parse_time
from rules.ledger.record import FaultOutcome, RecordEvent, RecordReplaced, RecordStatus
from rules.ledger.score import WEEK_S
from rules.repair.ladder import LADDER
from rules.repair.parts import GPU_REPLACED

_Z: Final = 1.959964
"""Of 95 %, both sides."""
PER: Final = 1000.0
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRate:
    """Faults of one group per 1,000 GPU-days."""

    group: str
    faults: int
    gpu_days: float
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many, 0 to 1."""

    what: str
    hits: int
    of: int
    share: float
    low: float
    high: float


def count_interval(count: int) -> tuple[float, float]:
    """The interval of the mean behind a count of rare events."""
    high_of = count + 1
    high = high_of * (1 - 1 / (9 * high_of) + _Z / (3 * math.sqrt(high_of))) ** 3
    if count == 0:
        return 0.0, high
    low = count * (1 - 1 / (9 * count) - _Z / (3 * math.sqrt(count))) ** 3
    return max(0.0, low), high


def share_of(what: str, hits: int, of: int) -> Share:
    """A share with its interval; of nothing it is anything."""
    if of <= 0:
        return Share(what=what, hits=0, of=0, share=0.0, low=0.0, high=1.0)
    share, z2 = hits / of, _Z * _Z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    spread = _Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    low, high = max(0.0, middle - spread), min(1.0, middle + spread)
    return Share(what=what, hits=hits, of=of, share=share, low=low, high=high)


def rates(faults: Mapping[str, int], gpu_days: Mapping[str, float]) -> tuple[FaultRate, ...]:
    """A rate for every group that has GPU-days, the highest first."""
    found = []
    for group, days in gpu_days.items():
        if days <= 0:
            continue
        count = faults.get(group, 0)
        low, high = count_interval(count)
        per = PER / days
        found.append(
            FaultRate(
                group=group,
                faults=count,
                gpu_days=days,
                rate=count * per,
                low=low * per,
                high=high * per,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.rate, one.group)))


def by_successors(
    faults: Iterable[tuple[RecordStatus, RecordEvent]], records: Iterable[RecordStatus]
) -> list[RecordEvent]:
    """The events; of those that ended with another GPU in the place, when that one failed there:
    the one that is gone cannot.
    """
    of = {record.uuid: record.events for record in records if record.uuid}
    return [_by_successor(event, record.replaced, of) for record, event in faults]


def _by_successor(
    event: RecordEvent,
    out: RecordReplaced | None,
    of: Mapping[str, tuple[RecordEvent, ...]],
) -> RecordEvent:
    ended, swapped = parse_time(event.ended_at), event.steps[-1:] == (GPU_REPLACED,)
    if out is None or ended is None or not swapped or out.session != event.session:
        return event
    failed = [
        at
        for one in of.get(out.uuid, ())
        if one.node == out.node and (at := parse_time(one.at)) is not None and at >= ended
    ]
    after = int(min(failed) - ended) if failed else None
    return msgspec.structs.replace(event, came_back_after=after)


def held(events: Iterable[RecordEvent], now: float) -> tuple[Share, ...]:
    """The share of each repair step after which a week went by without a fault.

    A step that was followed by another one for the same fault did not hold; the last one is judged
    when the week is over or the next fault came.
    """
    tried: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for event in events:
        *vain, last = event.steps or ("",)
        tried.update(vain)
        ended = parse_time(event.ended_at)
        if (
            not last
            or ended is None
            or event.outcome not in {FaultOutcome.RELEASED, FaultOutcome.NODE_GONE}
        ):
            continue
        back = event.came_back_after
        if back is not None and back <= WEEK_S:
            tried[last] += 1
        elif now - ended > WEEK_S:
            tried[last] += 1
            good[last] += 1
    return tuple(share_of(step, good[step], tried[step]) for step in sorted(tried, key=_rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """How long nodes stayed well after one repair step (Kaplan and Meier)."""

    what: str
    repairs: int
    curve: tuple[tuple[float, float], ...]
    """Days after the repair, and the share that was still well then; down from (0, 1)."""
    seen_days: float
    """The longest that anybody has watched; of later nothing is known."""

    def after(self, days: float) -> float | None:
        """The share that is well so long after; None where nobody has watched so long."""
        if days > self.seen_days:
            return None
        return next(share for at, share in reversed(self.curve) if at <= days)

    @property
    def half_days(self) -> float | None:
        """When half of them had failed again; None where that never came."""
        return next((at for at, share in self.curve if share <= 0.5), None)


def survival(events: Iterable[RecordEvent], now: float) -> tuple[Survival, ...]:
    """For each step how long its repairs lasted; one that another step followed lasted no time,
    and one that still lasts counts as long as it was watched.
    """
    found: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
    for event in events:
        *vain, last = event.steps or ("",)
        for step in vain:
            found[step].append((0.0, True))
        ended = parse_time(event.ended_at)
        over = event.outcome in {FaultOutcome.RELEASED, FaultOutcome.NODE_GONE}
        if not last or ended is None or not over:
            continue
        back = event.came_back_after
        lasted_s = float(back) if back is not None else max(0.0, now - ended)
        found[last].append((lasted_s / _DAY_S, back is not None))
    return tuple(_survival(step, found[step]) for step in sorted(found, key=_rank))


def _survival(what: str, lasted: list[tuple[float, bool]]) -> Survival:
    left, share = len(lasted), 1.0
    curve = [(0.0, 1.0)]
    for days in sorted({days for days, _ in lasted}):
        here = [failed for at, failed in lasted if at == days]
        if any(here):
            share *= 1 - sum(here) / left
            curve.append((days, share))
        left -= len(here)
    seen = max(days for days, _ in lasted)
    return Survival(what=what, repairs=len(lasted), curve=tuple(curve), seen_days=seen)


def _rank(step: str) -> tuple[int, str]:
    order = {str(known): rank for rank, known in enumerate(LADDER)}
    return order.get(step, len(order)), step


def hours_out(events: Iterable[RecordEvent]) -> tuple[float, ...]:
    """How long each fault with a session kept its node out, in hours, shortest first.

    One session on one node is one absence, whatever it accused.
    """
    longest: defaultdict[str, float] = defaultdict(float)
    for event in events:
        began, ended = parse_time(event.at), parse_time(event.ended_at)
        if event.session and began is not None and ended is not None and ended >= began:
            longest[event.session] = max(longest[event.session], (ended - began) / 3600)
    return tuple(sorted(longest.values()))


def quantile(ordered: tuple[float, ...], share: float) -> float:
    """The smallest value that at least that share does not exceed; 0 of nothing."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
