"""Lemon or not: a verdict with hysteresis on one record, and what its repairs have taught.

A lemon is never a cause: nothing is taken out of service for it. It says how a fault that comes
anyway is repaired (`rules.session.repair.wants`) and what a person should know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from rules.api.timestamps import parse_time
from rules.ledger.record import FaultOutcome, RecordEvent, RecordStatus, RecordWord
from rules.ledger.score import DAY_S, WEEK_S, Evidence, chance_of_return, is_memory

FAULTS: Final = 5
"""So many faults within `SHORT_S` make a lemon. A fault that keeps coming back for a week or two
is one bad repair and not yet a bad part."""
SPREAD_FAULTS: Final = 4
"""So do so many within `WINDOW_S` where the last came `SPAN_S` or more after the first. Chosen on
4,000 simulated node-years played whole, 1 % of the nodes at 20 to 100 times the hazard (`simulate
--study lemons`): five find 68 % of such nodes and nobody else, four find 80 % and wrong 1 of 33,
three find 93 % and wrong 3 of 40."""
SHORT_S: Final = 28 * DAY_S
"""Also the window of Meta's lemon nodes (RSC clusters, 2024)."""
WINDOW_S: Final = 90 * DAY_S
SPAN_S: Final = 45 * DAY_S
RETURNS: Final = 2
"""After so many returns within a week of a repair, in `SHORT_S`, its steps have taught something:
30 % return once, chance is 2.9 %."""
QUIET_S: Final = 45 * DAY_S
CLEARS_BELOW: Final = 6
"""Hysteresis: a lemon is none any more when the chance of a return is below twice that of
independent faults, in percent, and so long a time was quiet."""
FATAL: Final = "Fatal"
_REPAIRED: Final = "repaired"
_WORDS: Final = {"keep", _REPAIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class LemonVerdict:
    """The verdict on one record now."""

    score: int
    """Chance of a return within 7 days, in percent."""
    lemon: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """What the repairs of the parts that a session accuses have taught."""

    lemons: tuple[str, ...] = ()
    """Those that fail again and again, by name."""
    failed: frozenset[str] = frozenset()
    """Steps after which the fault was back within a week, and that have not held since."""


def counting(status: RecordStatus) -> list[RecordEvent]:
    """The events that count: Fatal ones and those with a session; not what a person undid, nor
    what was before a person's word that held. What was only reported makes no lemon: heat would.

    A new driver or new rules judge anew: of what was before them only Fatal faults count, since a
    release may count differently (one multiplied a counter 170 times).
    """
    words = [
        at
        for said in status.said
        if said.word in _WORDS and (at := parse_time(said.at)) and not in_vain(said, status)
    ]
    since = max(words, default=0.0)
    baseline = parse_time(status.baseline_at) or 0.0
    return [
        event
        for event in status.events
        if event.outcome != FaultOutcome.UNDONE
        and (event.severity == FATAL or event.session)
        and (at := parse_time(event.last_at or event.at)) is not None
        and at > since
        and (at >= baseline or event.severity == FATAL)
    ]


def in_vain(said: RecordWord, status: RecordStatus) -> bool:
    """Whether a person said that it was repaired and the same fault was back within a week, of
    this very part, as another one has another record. What was before counts then.

    A word that it may be kept stands: it is about what was, and promises nothing.
    """
    word = parse_time(said.at)
    if said.word != _REPAIRED or word is None:
        return False
    seen = {
        (event.reason, at)
        for event in status.events
        if event.outcome != FaultOutcome.UNDONE
        for text in (event.at, event.last_at)
        if (at := parse_time(text)) is not None
    }
    before = {reason for reason, at in seen if at <= word}
    return any(reason in before and 0 < at - word <= WEEK_S for reason, at in seen)


def judge_record(status: RecordStatus, now: float) -> LemonVerdict:
    """Score and verdict of a record at `now`; `status.lemon` is the verdict before."""
    events = counting(status)
    score = _score(events, now)
    lemon = _is_lemon(events, _moments(events), now, was=status.lemon)
    return LemonVerdict(score=score, lemon=lemon, message=_sentence(status, events, score, now))


def _is_lemon(events: list[RecordEvent], moments: list[float], now: float, *, was: bool) -> bool:
    """`moments` are those of the events, `was` is the verdict before."""
    if _is_bad(moments, now):
        return True
    if not was or not events:
        return False
    quiet = now - max(_last(event, now) for event in events) > QUIET_S
    return not (quiet and _score(events, now) < CLEARS_BELOW)


def _score(events: list[RecordEvent], now: float) -> int:
    return round(100 * chance_of_return(_evidence(events, now)))


def _evidence(events: list[RecordEvent], now: float) -> Evidence:
    if not events:
        return Evidence(faults=0, repair_s=None, quiet_s=0.0)
    last = events[-1]
    began, ended = parse_time(last.at), parse_time(last.ended_at)
    took = ended - began if began is not None and ended is not None else None
    return Evidence(
        faults=len(_moments(events)),
        repair_s=max(0.0, took) if took is not None else None,
        quiet_s=now - ended if ended is not None else 0.0,
        memory=is_memory(last.reason),
    )


def _moments(events: Iterable[RecordEvent]) -> list[float]:
    """When each fault began: what one session found at once is one."""
    first: dict[str, float] = {}
    for event in events:
        at = parse_time(event.at) or 0.0
        key = event.session or event.at
        first[key] = min(at, first.get(key, at))
    return sorted(first.values())


def _is_bad(moments: list[float], now: float) -> bool:
    lately = [at for at in moments if now - at <= WINDOW_S]
    if sum(now - at <= SHORT_S for at in lately) >= FAULTS:
        return True
    return len(lately) >= SPREAD_FAULTS and lately[-1] - lately[0] >= SPAN_S


def _ever_bad(moments: list[float]) -> bool:
    """Whether these faults alone made a lemon when one of them came."""
    return any(_is_bad(moments[: i + 1], at) for i, at in enumerate(moments))


def is_relapsing(events: Iterable[RecordEvent], now: float) -> bool:
    """Whether the last repairs did not hold: enough to try another one, not to call it a lemon."""
    recent = (e for e in events if now - (parse_time(e.at) or 0.0) <= SHORT_S)
    return sum(map(_returned, recent)) >= RETURNS


def _returned(event: RecordEvent) -> bool:
    return event.came_back_after is not None and event.came_back_after <= WEEK_S


def _last(event: RecordEvent, now: float) -> float:
    """When the fault was last there; now while it is."""
    if event.outcome == FaultOutcome.ACTIVE:
        return now
    return parse_time(event.ended_at) or parse_time(event.last_at or event.at) or 0.0


def _sentence(status: RecordStatus, events: list[RecordEvent], score: int, now: float) -> str:
    if not events:
        return f"{status.called}: nothing on record counts against it."
    recent = [e for e in events if now - (parse_time(e.at) or 0.0) <= WINDOW_S]
    reasons = [reason for reason, _ in Counter(e.reason for e in recent or events).most_common(3)]
    back, faults = sum(map(_returned, recent)), len(_moments(recent))
    returned = f", back within a week after {back} of them" if back else ""
    out = status.gone_for
    return (
        f"{status.called}: {faults} {'fault' if faults == 1 else 'faults'} in 90 days "
        f"({', '.join(reasons)}){returned}; "
        f"{out.clause if out is not None else f'{score} % chance of a return within 7 days'}."
    )[:1024]


def lessons_of(records: Iterable[RecordStatus], node: str, now: float) -> Lessons:
    """What is known of the parts that a session on `node` accuses; lemons teach, and what
    relapses.

    Faults and repairs teach only where they were: that a GPU was elsewhere before is the word of
    whoever publishes its UUID there, and nobody's word may cost another node its gentler repairs.
    """
    lemons: list[str] = []
    failed: set[str] = set()
    for record in records:
        events = tuple(event for event in record.events if event.node == node)
        here = counting(msgspec.structs.replace(record, events=events))
        moments = _moments(here)
        lemon = _is_lemon(here, moments, now, was=record.lemon and _ever_bad(moments))
        if lemon:
            lemons.append(record.called)
        if lemon or is_relapsing(here, now):
            failed |= failed_steps(here, now)
    return Lessons(lemons=tuple(lemons), failed=frozenset(failed))


def failed_steps(events: Iterable[RecordEvent], now: float) -> frozenset[str]:
    """Steps that did not hold the last time they were tried.

    Of several steps for one fault only the last brought it back to service; the others failed. The
    last one failed when the fault was back within a week, and held when a week went by without.
    """
    failed: set[str] = set()
    for event in events:
        *vain, last = event.steps or ("",)
        failed |= set(vain)
        if not last:
            continue
        ended = parse_time(event.ended_at)
        if _returned(event):
            failed.add(last)
        elif event.outcome == FaultOutcome.RELEASED and ended is not None and now - ended > WEEK_S:
            failed.discard(last)
    return frozenset(failed)
