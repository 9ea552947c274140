"""Records as people see them: lemons, one GPU's past, and rates over the fleet. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from remediator.view.grouping import UNNAMED, GroupKeys
from remediator.view.shapes import Shown
from rules.api.names import LABEL_DRIVER, LABEL_GPUS, LABEL_PRODUCT
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Mode
from rules.api.timestamps import parse_time
from rules.ledger.rates import (
    FaultRate,
    Share,
    Survival,
    by_successors,
    held,
    hours_out,
    quantile,
    rates,
    share_of,
    survival,
)
from rules.ledger.record import NODE_SCOPE, FaultOutcome, RecordEvent, RecordView
from rules.ledger.score import DAY_S
from rules.ledger.update import KEPT_S
from rules.ledger.verdict import judge_record
from rules.session.causes import ended_by_person, has_human
from rules.session.observation import is_open
from rules.text.counted import count

TOP: Final = 50
_MOST_POINTS: Final = 60
"""Of one survival curve."""


class RecordRow(Shown, frozen=True, kw_only=True):
    """One record as tables show it."""

    name: str
    scope: str
    uuid: str
    serial: str
    product: str
    node: str
    slot: str
    faults: int
    sessions: int
    came_back: int
    last_reason: str
    last_at: str
    score: int
    """Chance in percent that a fault comes back within 7 days, as of now."""
    lemon: bool
    lemon_since: str
    message: str


class RateRow(Shown, frozen=True, kw_only=True):
    """Faults of one group per 1,000 GPU-days, with the 95 % interval."""

    group: str
    faults: int
    gpu_days: int
    rate: float
    low: float
    high: float


class ShareRow(Shown, frozen=True, kw_only=True):
    """So many of so many in percent, with the 95 % interval."""

    what: str
    hits: int
    of: int
    percent: int
    low: int
    high: int


class SurvivalRow(Shown, frozen=True, kw_only=True):
    """How long nodes stayed well after one repair step; null where nobody has watched so long."""

    what: str
    repairs: int
    day1: int | None
    """Percent that were well after a day,"""
    day7: int | None
    """after a week,"""
    day28: int | None
    """and after four."""
    half_days: float | None
    """After so many days half had failed again; null where that never came."""
    curve: tuple[tuple[float, int], ...]
    """Days and percent, stepping down."""


class OutRow(Shown, frozen=True, kw_only=True):
    """Hours out of service."""

    absences: int
    median: float
    p90: float
    total: float


class OldGroup(Shown, frozen=True, kw_only=True):
    """Faults of a driver or product that no node has now, so that they are in no rate of one."""

    kind: str
    group: str
    faults: int

    @property
    def clause(self) -> str:
        """`8 faults with driver 590.44.01, which no node has now`."""
        return (
            f"{count(self.faults, 'fault')} with {self.kind} {self.group}, which no node has now"
        )


_YOUNG_DAYS: Final = 7
"""From fewer days a rate says nothing."""


class StatsShown(Shown, frozen=True, kw_only=True):
    """The answer to `/api/records`: lemons first, then rates over `days`."""

    days: int
    records: tuple[RecordRow, ...]
    lemons: int
    elsewhere: int
    """Faults on nodes that are gone: in no rate."""
    old_groups: tuple[OldGroup, ...]
    """The most faults first: a driver that was rolled back is told of here."""
    total: RateRow
    by_product: tuple[RateRow, ...]
    by_driver: tuple[RateRow, ...]
    by_rack: tuple[RateRow, ...]
    by_reason: tuple[RateRow, ...]
    out: OutRow
    steps: tuple[ShareRow, ...]
    survival: tuple[SurvivalRow, ...]
    undone: ShareRow
    """Drains by detectors that a person ended while the fault was still said to be there."""

    @property
    def young(self) -> bool:
        """Whether what is on record is too short for a rate to say anything."""
        return self.days < _YOUNG_DAYS

    @property
    def over(self) -> str:
        """The time that the counts are of: `601 GPU-days (at most 70 days)`."""
        if not self.days:
            return "less than a day"
        return f"{self.total.gpu_days:,} GPU-days (at most {count(self.days, 'day')})"


def record_row(record: RecordView, now: float) -> RecordRow:
    """One record, its score as of now."""
    status = record.status
    last = status.events[-1] if status.events else RecordEvent(at="")
    verdict = judge_record(status, now)
    return RecordRow(
        name=record.name,
        scope=status.scope,
        uuid=status.uuid,
        serial=status.serial,
        product=status.product,
        node=status.node,
        slot=status.places[-1].slot if status.places else "",
        faults=status.counters.faults,
        sessions=status.counters.sessions,
        came_back=status.counters.came_back,
        last_reason=last.reason,
        last_at=last.last_at or last.at,
        score=verdict.score,
        lemon=verdict.lemon,
        lemon_since=status.lemon_since,
        message=verdict.message,
    )


def record_rows(records: Iterable[RecordView], now: float) -> list[RecordRow]:
    """Lemons first, then the likeliest to fail again."""
    rows = [record_row(record, now) for record in records if not record.doubt]
    return sorted(rows, key=lambda row: (not row.lemon, -row.score, -row.faults, row.name))


def stats(
    records: Iterable[RecordView],
    nodes: Iterable[NodeView],
    sessions: Iterable[QuarantineView],
    now: float,
    keys: GroupKeys | None = None,
) -> StatsShown:
    """Rates over the time that records are kept, or less where the fleet is younger.

    GPU-days are those of the nodes there are now, each since it joined or its first fault on
    record; of drivers, what runs now. Faults on nodes that are gone have no days to compare with.
    """
    known = [record for record in records if not record.doubt]
    there = {node.name: node for node in nodes}
    racks = keys or GroupKeys()
    since = now - KEPT_S
    everything = [
        (record, event)
        for record in known
        for event in record.status.events
        if event.outcome != FaultOutcome.UNDONE and (parse_time(event.at) or 0.0) >= since
    ]
    faults = [(record, event) for record, event in everything if event.node in there]
    began = _began(there.values(), (event for _, event in faults), since)
    days = {name: _gpus(there[name]) * max(0.0, now - at) / DAY_S for name, at in began.items()}
    total = sum(days.values())
    product = _by(there, days, lambda n: n.labels.get(LABEL_PRODUCT, UNNAMED))
    driver = _by(there, days, lambda n: n.labels.get(LABEL_DRIVER, UNNAMED))
    rack = _by(there, days, lambda n: racks.group(n.labels)[1])
    events = [event for _, event in faults]
    rows = record_rows(known, now)
    by_product = Counter(_product(r, e, there) for r, e in faults)
    by_driver = Counter(_driver(e) for e in events)
    reasons = Counter(event.reason for event in events)
    told = by_successors(
        ((record.status, event) for record, event in everything), (r.status for r in known)
    )
    out = hours_out(told)
    return StatsShown(
        days=round((now - min(began.values(), default=now)) / DAY_S),
        elsewhere=len(everything) - len(faults),
        old_groups=(*_old("driver", by_driver, driver), *_old("product", by_product, product)),
        records=tuple(rows[:TOP]),
        lemons=sum(row.lemon for row in rows),
        total=_rate_row(rates({"all": len(events)}, {"all": max(total, 1e-9)})[0]),
        by_product=_rate_rows(by_product, product),
        by_driver=_rate_rows(by_driver, driver),
        by_rack=_rate_rows(Counter(_rack(e, there, racks) for e in events), rack),
        by_reason=_rate_rows(reasons, dict.fromkeys(reasons, total)),
        out=OutRow(
            absences=len(out),
            median=round(quantile(out, 0.5), 3),
            p90=round(quantile(out, 0.9), 3),
            total=round(sum(out), 3),
        ),
        steps=tuple(_share_row(step) for step in held(told, now)),
        survival=tuple(_survival_row(one) for one in survival(told, now)),
        undone=_share_row(_undone(sessions)),
    )


def _began(
    nodes: Iterable[NodeView], events: Iterable[RecordEvent], since: float
) -> dict[str, float]:
    """Since when each node counts: a Node object may be younger than its machine's faults."""
    first: dict[str, float] = {}
    for event in events:
        at = parse_time(event.at) or since
        first[event.node] = min(at, first.get(event.node, at))
    return {
        n.name: max(since, min(n.metadata.created_at, first.get(n.name, math.inf))) for n in nodes
    }


def _gpus(node: NodeView) -> int:
    text = node.labels.get(LABEL_GPUS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0


def _by(
    nodes: Mapping[str, NodeView], days: Mapping[str, float], group: object
) -> dict[str, float]:
    assert callable(group)
    found: defaultdict[str, float] = defaultdict(float)
    for name, node in nodes.items():
        if days[name] > 0:
            found[group(node)] += days[name]
    return dict(found)


def _product(record: RecordView, event: RecordEvent, nodes: Mapping[str, NodeView]) -> str:
    node = nodes.get(event.node)
    if node is not None:
        return node.labels.get(LABEL_PRODUCT, UNNAMED)
    return record.status.product.replace(" ", "-") or UNNAMED


def _old(kind: str, faults: Counter[str], days: Mapping[str, float]) -> tuple[OldGroup, ...]:
    there = {group for group, gpu_days in days.items() if gpu_days > 0}
    gone = [(group, number) for group, number in faults.most_common() if group not in there]
    return tuple(OldGroup(kind=kind, group=g, faults=n) for g, n in gone[:TOP] if g != UNNAMED)


def _driver(event: RecordEvent) -> str:
    return event.driver or UNNAMED


def _rack(event: RecordEvent, nodes: Mapping[str, NodeView], keys: GroupKeys) -> str:
    node = nodes.get(event.node)
    return keys.group(node.labels)[1] if node is not None else UNNAMED


def _undone(sessions: Iterable[QuarantineView]) -> Share:
    """Of the ended sessions that took a node for a detector, those that a person ended."""
    taken = [
        s
        for s in sessions
        if not is_open(s)
        and not has_human(s)
        and s.status.mode == Mode.ENFORCE
        and any(entry.step == "Marked" for entry in s.status.timeline)
    ]
    return share_of("undone by a person", sum(map(ended_by_person, taken)), len(taken))


def _rate_rows(faults: Mapping[str, int], days: Mapping[str, float]) -> tuple[RateRow, ...]:
    return tuple(_rate_row(rate) for rate in rates(faults, days)[:TOP])


def _rate_row(rate: FaultRate) -> RateRow:
    return RateRow(
        group=rate.group,
        faults=rate.faults,
        gpu_days=round(rate.gpu_days),
        rate=round(rate.rate, 3),
        low=round(rate.low, 3),
        high=round(rate.high, 3),
    )


def _share_row(share: Share) -> ShareRow:
    return ShareRow(
        what=share.what,
        hits=share.hits,
        of=share.of,
        percent=round(100 * share.share),
        low=round(100 * share.low),
        high=round(100 * share.high),
    )


def _survival_row(one: Survival) -> SurvivalRow:
    def percent(days: float) -> int | None:
        share = one.after(days)
        return None if share is None else round(100 * share)

    half = one.half_days
    return SurvivalRow(
        what=one.what,
        repairs=one.repairs,
        day1=percent(1),
        day7=percent(7),
        day28=percent(28),
        half_days=None if half is None else round(half, 1),
        curve=(
            *((round(at, 2), round(100 * share)) for at, share in one.curve[:_MOST_POINTS]),
            (round(one.seen_days, 2), round(100 * one.curve[-1][1])),
        ),
    )


def called(row: RecordRow) -> str:
    """`GPU-... in gpu-7`, or `node gpu-7` where the fault follows the node."""
    if is_node(row):
        return f"node {row.node}"
    return f"{row.uuid}{f' in {row.node}' if row.node else ''}"


def is_node(row: RecordRow) -> bool:
    """Whether the record is of a node and not of a GPU."""
    return row.scope == NODE_SCOPE
