"""Whether a GPU or node on record is a repeat offender. Pure.

A repeat offender (Meta's paper calls such a node a lemon) is never a cause: nothing is taken out
of service for it. The record, the page and `kubectl gpuward why` show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rules.api.gpu_record import DAY_S, FaultOutcome, RecordEvent, RecordStatus, RecordWord
from rules.api.timestamps import parse_time

REPEAT_FAULTS: Final = 5
REPEAT_DAYS: Final = 90
"""So many faults in so many days make a repeat offender. In the trace of 400 eight-GPU servers
(SIGCOMM 2025, InfiniteHBD) 30 % of the faults come back within a week, so a shorter series is one
bad repair; a record is kept for 90 days."""
WEEK_S: Final = 7 * DAY_S
FATAL: Final = "Fatal"
REPAIRED: Final = "repaired"


def counted(status: RecordStatus) -> list[RecordEvent]:
    """The events that count: Fatal ones and those with a session; not what a person undid, nor
    what was before a person said that it was repaired, unless the same fault came back within a
    week. What was only reported does not count: heat would.
    """
    since = max(
        (parse_time(said.at) or 0.0 for said in status.said if not in_vain(said, status)),
        default=0.0,
    )
    return [
        event
        for event in status.events
        if event.outcome != FaultOutcome.UNDONE
        and (event.severity == FATAL or event.session)
        and (at := parse_time(event.last_at or event.at)) is not None
        and at > since
    ]


def in_vain(said: RecordWord, status: RecordStatus) -> bool:
    """Whether a person said that it was repaired and the same fault was back within a week, of
    this very part: another one has another record.
    """
    word = parse_time(said.at)
    if said.word != REPAIRED or word is None:
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


def is_repeat_offender(status: RecordStatus, now: float) -> bool:
    """Whether it had `REPEAT_FAULTS` faults in `REPEAT_DAYS`."""
    return _is_repeated(_within(counted(status), REPEAT_DAYS, now))


def faults_said(status: RecordStatus, now: float) -> str:
    """`GPU-1: repeat offender: 6 faults in 90 days (GPULost), back within a week after 2.`"""
    recent = _within(counted(status), REPEAT_DAYS, now)
    out = status.gone_for
    gone = f"; {out.clause}" if out is not None else ""
    if not recent:
        return f"{status.called}: no fault in {REPEAT_DAYS} days counts against it{gone}."[:1024]
    reasons = [reason for reason, _ in Counter(event.reason for event in recent).most_common(3)]
    faults, back = _faults(recent), sum(map(_returned, recent))
    returned = f", back within a week after {back} of them" if back else ""
    repeat = "repeat offender: " if _is_repeated(recent) else ""
    return (
        f"{status.called}: {repeat}{faults} {'fault' if faults == 1 else 'faults'} "
        f"in {REPEAT_DAYS} days ({', '.join(reasons)}){returned}{gone}."
    )[:1024]


def _within(events: Iterable[RecordEvent], days: float, now: float) -> list[RecordEvent]:
    return [event for event in events if now - (parse_time(event.at) or 0.0) <= days * DAY_S]


def _is_repeated(events: Iterable[RecordEvent]) -> bool:
    return _faults(events) >= REPEAT_FAULTS


def _faults(events: Iterable[RecordEvent]) -> int:
    """How many faults they are: what one session found at once is one."""
    return len({event.session or event.at for event in events})


def _returned(event: RecordEvent) -> bool:
    return event.came_back_after is not None and event.came_back_after <= WEEK_S
