"""The entry of one repair step in `status.repair`: changed, and ended with what asked for it.

Called by the other modules of this room only.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.api.quarantine import QuarantineStatus, RepairAttempt, RepairState
from rules.api.repair.writes import ObjectQuery
from rules.api.sentences import bounded
from rules.api.timestamps import format_time, parse_time
from rules.api.writes import Decision, Evicting
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.repair.ends import requests_off, with_left

MAX_ATTEMPTS: Final = 16
"""Entries of `status.repair`; the CRD allows as many."""


def changed(attempt: RepairAttempt, **changes: object) -> RepairAttempt:
    """The entry with these fields changed."""
    return msgspec.structs.replace(attempt, **changes)


def with_entry(status: QuarantineStatus, attempt: RepairAttempt) -> QuarantineStatus:
    """`status` with the entry of the same request replaced."""
    repair = tuple(attempt if a.object == attempt.object else a for a in status.repair)
    return touched(status, repair=repair)


def is_whole(case: Case, attempt: RepairAttempt) -> bool:
    """Whether the entry has what every entry is written with; an older definition of GPUQuarantine
    drops fields.
    """
    before = attempt.before
    written = (attempt.adapter, attempt.object, attempt.started_at, attempt.state, before.node_uid)
    return all(written) and bool(before.boot_id or not case.node.boot_id)


def started_at(case: Case, attempt: RepairAttempt) -> float:
    """When the time of the step began, in seconds since the epoch."""
    return parse_time(attempt.started_at) or case.now


def with_room(attempts: tuple[RepairAttempt, ...]) -> tuple[RepairAttempt, ...]:
    """`attempts` with a place for one more: of those that count for nothing the oldest goes."""
    spare = next((each for each in attempts if not each.counts), None)
    if len(attempts) < MAX_ATTEMPTS or spare is None:
        return attempts
    return tuple(each for each in attempts if each is not spare)


def reading(query: ObjectQuery) -> Decision:
    """The decision that reads this first."""
    because = f"the repair rests on {query.address.words}"
    return Decision(step="ReadObject", because=because, needs_object=query)


def ended_as(
    case: Case,
    status: QuarantineStatus,
    attempt: RepairAttempt,
    state: RepairState,
    proof: str,
) -> Decision:
    """The step is over; what asked for it comes off before that is written."""
    off = requests_off(case, attempt, status)
    if isinstance(off, Decision):
        return off
    ended = changed(attempt, state=state, ended_at=format_time(case.now), proof=proof[:512])
    status = with_entry(status, ended)
    status = st.with_refusal(status, case.now, None)
    said = f"{attempt.step} by {attempt.adapter}: {proof}"
    status = with_left(st.noted(status, f"Repair{state}", said, case.now), off, case.now)
    words = {RepairState.PROVEN: "Proven", RepairState.FAILED: "Failed"}.get(state, "Given up")
    status = touched(status, message=bounded(f"{words}: {said}."))
    return case.decision(
        f"Repair{state}",
        status,
        because=proof,
        before=off.writes,
        evicting=Evicting.WATCH,
        wake_at=case.now,
    )
