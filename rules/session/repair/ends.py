"""What ends takes its requests along: the entry is closed, and nobody is asked any more."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairState
from rules.api.repair.writes import SetRepairCondition, WriteRepairObject
from rules.api.sentences import bounded
from rules.api.timestamps import format_time
from rules.api.writes import Decision, Evicting
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy.policy import Policy
from rules.repair.ladder import Step
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.observation import NodeObservation
from rules.session.repair.asking import TakenBack, take_back
from rules.session.repair.requests import action_of, taking_back
from rules.session.repair.wants import under_way

_AGAIN_S = 10.0


def closed_repair(case: Case, status: QuarantineStatus, phase: Phase) -> QuarantineStatus:
    """`status` whose step under way is over with the session, proven where the node went with it."""
    attempt = under_way(status)
    if attempt is None:
        return status
    replaced = phase is Phase.NODE_GONE and attempt.step == Step.REPLACE_NODE
    # Of an older release's entry nobody wrote down when it was asked for.
    since = attempt.started_at if attempt.state == RepairState.ASKED else ""
    ended = msgspec.structs.replace(
        attempt,
        asked_at=attempt.asked_at or since,
        ended_at=format_time(case.now),
        state=RepairState.PROVEN if replaced else RepairState.WITHDRAWN,
        proof="the Node is gone or another one" if replaced else "the session ended first",
    )
    repair = tuple(ended if a.object == attempt.object else a for a in status.repair)
    return touched(status, repair=repair)


def last_requests(case: Case, phase: Phase) -> Decision | TakenBack:
    """What is to be taken back before the session's end is written, or what is read first."""
    if case.shadow:
        return TakenBack()
    off = off_objects(case, _standing(case, case.status), case.status, ends=True)
    if isinstance(off, Decision) or phase is Phase.NODE_GONE:
        return off
    return replace(off, writes=(*taking_back(case, ends=True), *off.writes))


def off_objects(
    case: Case,
    attempts: tuple[RepairAttempt, ...],
    status: QuarantineStatus,
    *,
    ends: bool = False,
) -> Decision | TakenBack:
    """What takes these requests off their objects, or a decision that has to come first."""
    taken = take_back(case, attempts, ends=ends)
    if taken.needs is not None:
        because = f"a request is to come off {taken.needs.address.words}"
        return Decision(step="ReadObject", because=because, needs_object=taken.needs)
    if not taken.waits:
        return taken
    refusal = Refusal(reason=WhyNot.REPAIR_REFUSED, why=f"a request still stands: {taken.waits}")
    status = st.with_refusal(status, case.now, refusal, f"Not ended: {refusal.why}.")
    status = touched(status, message=bounded(f"Not ended yet: {refusal.why}."))
    return case.decision(
        "TakeBack",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        evicting=Evicting.WATCH,
        wake_at=case.now + _AGAIN_S,
    )


def with_left(status: QuarantineStatus, taken: TakenBack, now: float) -> QuarantineStatus:
    """`status` that says which requests stand although nobody wants them any more."""
    if not taken.left:
        return status
    message = f"a request may still stand on {taken.left}, take it off by hand"
    return st.noted(status, "RequestLeft", message, now)


def of_deleted(
    seen: NodeObservation, now: float, policy: Policy
) -> Decision | tuple[SetRepairCondition | WriteRepairObject, ...]:
    """What sessions that somebody deleted left on objects of others: nobody follows it late."""
    writes: list[SetRepairCondition | WriteRepairObject] = []
    for gone in seen.deleted:
        case = Case(session=gone, seen=seen, now=now, policy=policy)
        taken = take_back(case, _standing(case, gone.status), ends=True)
        if taken.needs is not None:
            because = f"a request is to come off {taken.needs.address.words}"
            return Decision(step="ReadObject", because=because, needs_object=taken.needs)
        writes += taken.writes
    return tuple(writes)


def _standing(case: Case, status: QuarantineStatus) -> tuple[RepairAttempt, ...]:
    """Requests that may stand while the session is open."""
    running = under_way(status)
    return tuple(a for a in status.repair if a is running or _with_session(case, a))


def _with_session(case: Case, attempt: RepairAttempt) -> bool:
    action = action_of(case.policy, attempt)
    return action is not None and action.withdraw.at == "Session"
