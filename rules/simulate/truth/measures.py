"""What is told of a fleet's faults in a few numbers, and how far two fleets are apart.

The same for a recorded trace and for what the generator makes. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rules.simulate.truth.classes import OTHER, TRACE_CLASSES
from rules.simulate.truth.outage import Outage

RECURS_DAYS: Final = 7.0
TOP: Final = 0.05
"""Share of nodes whose share of faults is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """One fleet over one span."""

    faults: int
    rates: Mapping[str, float]
    """Per class, per 1,000 node-days."""
    hours_p10: float
    hours_p50: float
    hours_p90: float
    down_p50: float
    down_p95: float
    down_max: float
    top_share: float
    """Share of faults on the top 5 % of nodes."""
    recurrence: float
    """Share of returns that another fault follows within 7 days."""


def measure(found: Sequence[Outage], nodes: int, days: float) -> Measures:
    """Measure the faults that began within `days`; `nodes` counts those that never failed, too."""
    faults = [one for one in found if one.start < days]
    classes = Counter(class_of(one) for one in faults)
    per = nodes * days / 1000.0
    hours = sorted(one.hours for one in faults)
    down = _down_at_once(faults, days)
    return Measures(
        faults=len(faults),
        rates={name: classes[name] / per for name in sorted(TRACE_CLASSES)},
        hours_p10=quantile(hours, 0.10),
        hours_p50=quantile(hours, 0.50),
        hours_p90=quantile(hours, 0.90),
        down_p50=_of_time(down, 0.50),
        down_p95=_of_time(down, 0.95),
        down_max=float(max(down, default=0)),
        top_share=_top_share(faults, nodes),
        recurrence=_recurrence(faults, days),
    )


def class_of(one: Outage) -> str:
    """The class as the generator knows it."""
    return one.klass if one.klass in TRACE_CLASSES else OTHER


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted values lie; 0.0 of none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _down_at_once(faults: Iterable[Outage], days: float) -> dict[int, float]:
    """Days during which so many nodes were out at once."""
    stays: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in sorted(faults, key=lambda one: one.start):
        mine = stays[one.node]
        if mine and one.start <= mine[-1][1]:
            mine[-1] = (mine[-1][0], max(mine[-1][1], one.end))
        else:
            mine.append((one.start, one.end))
    turns = sorted(
        (min(at, days), step)
        for mine in stays.values()
        for start, end in mine
        for at, step in ((start, 1), (end, -1))
    )
    lasted: defaultdict[int, float] = defaultdict(float)
    count, since = 0, 0.0
    for at, step in turns:
        if at > since:
            lasted[count] += at - since
            since = at
        count += step
    if days > since:
        lasted[count] += days - since
    return dict(lasted)


def _of_time(lasted: Mapping[int, float], share: float) -> float:
    total, passed = sum(lasted.values()), 0.0
    for count in sorted(lasted):
        passed += lasted[count]
        if passed >= share * total:
            return float(count)
    return 0.0


def _top_share(faults: Sequence[Outage], nodes: int) -> float:
    if not faults:
        return 0.0
    counts = Counter(one.node for one in faults)
    worst = counts.most_common(max(1, round(nodes * TOP)))
    return sum(count for _, count in worst) / len(faults)


def _recurrence(faults: Sequence[Outage], days: float) -> float:
    starts: defaultdict[str, list[float]] = defaultdict(list)
    for one in sorted(faults, key=lambda one: one.start):
        starts[one.node].append(one.start)
    watched = [one for one in faults if one.end + RECURS_DAYS <= days]
    if not watched:
        return 0.0
    again = 0
    for one in watched:
        mine = starts[one.node]
        own = mine.index(one.start)
        again += any(at <= one.end + RECURS_DAYS for at in mine[own + 1 : own + 2])
    return again / len(watched)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """One number of the trace beside what the generator makes of it over its seeds."""

    what: str
    trace: float
    middle: float
    """Over the seeds: the mean of a class's rate (few faults make the median lumpy), else the
    median."""
    lowest: float
    highest: float
    allowed: float
    """Relative, or in points where `points`."""
    points: bool = False
    faults: int | None = None
    """How many faults of the trace the number rests on, where that is few."""

    @property
    def apart(self) -> float:
        """How far: relative to the trace, or the plain difference where it is a share."""
        if self.points:
            return self.middle - self.trace
        if not self.trace:
            return 1.0 if self.middle else 0.0
        return (self.middle - self.trace) / self.trace

    @property
    def within(self) -> bool:
        """Whether it is as near as it has to be."""
        return abs(self.apart) <= self.allowed + 1e-9

    @property
    def covered(self) -> bool:
        """Whether a fleet of that size may look like the trace by chance alone."""
        return self.lowest <= self.trace <= self.highest


def distances(
    trace: Measures, made: Sequence[Measures], nodes: int, days: float
) -> list[Distance]:
    """Every number that is compared, the classes first."""
    found = [
        _distance(
            f"{name} per 1,000 node-days",
            rate,
            [one.rates[name] for one in made],
            0.10,
            mean=True,
            faults=round(rate * nodes * days / 1000.0),
        )
        for name, rate in trace.rates.items()
    ]

    def add(what: str, read: Callable[[Measures], float], allowed: float, **how: bool) -> None:
        found.append(_distance(what, read(trace), [read(one) for one in made], allowed, **how))

    add("hours out, p10", lambda m: m.hours_p10, 0.25)
    add("hours out, p50", lambda m: m.hours_p50, 0.25)
    add("hours out, p90", lambda m: m.hours_p90, 0.25)
    add("nodes down at once, p50", lambda m: m.down_p50, 0.25)
    add("nodes down at once, p95", lambda m: m.down_p95, 0.25)
    add("nodes down at once, most", lambda m: m.down_max, 0.25)
    add("share of faults on the top 5 % of nodes", lambda m: m.top_share, 0.05, points=True)
    add("another fault within 7 days", lambda m: m.recurrence, 0.05, points=True)
    return found


def _distance(
    what: str,
    trace: float,
    made: Sequence[float],
    allowed: float,
    *,
    points: bool = False,
    mean: bool = False,
    faults: int | None = None,
) -> Distance:
    ordered = sorted(made)
    middle = sum(ordered) / len(ordered) if mean else _median(ordered)
    return Distance(
        what=what,
        trace=trace,
        middle=middle,
        lowest=ordered[0],
        highest=ordered[-1],
        allowed=allowed,
        points=points,
        faults=faults,
    )


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
