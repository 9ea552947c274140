"""A step on record of which nobody knows whether it was asked for: asked, held, or given up.

Called by `rules.session.repair.phase` for the step under way until the call that asks was sent.
"""

from __future__ import annotations

from typing import Final

from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairState
from rules.api.sentences import bounded
from rules.api.timestamps import format_time, utc
from rules.api.writes import Decision, Evicting
from rules.catalog.why_not import Refusal
from rules.drain.clock import was_away
from rules.repair.adapter import NewObject, Replacement, recorded
from rules.repair.ladder import Step
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched
from rules.session.repair.asking import Call, call_for
from rules.session.repair.beginning import is_wanted
from rules.session.repair.clearing import letting_back
from rules.session.repair.entry import changed, ended_as, is_whole, reading, started_at, with_entry
from rules.session.repair.outlook import Outlook, not_now, object_waits, refused

ASK_S: Final = 600.0
"""How long the API server may refuse to let anybody be asked before the step has failed."""


def go_on(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, halt: Refusal | None
) -> Decision:
    """A step on record of which nobody knows whether it was asked for: ask, wait or give it up."""
    if not is_whole(case, attempt):
        why = "the definition of GPUQuarantine does not keep its record"
        return _given_up(case, status, attempt, why)
    if attempt.before.boot_id != case.node.boot_id and case.node.boot_id:
        # Whoever led before may have asked, and this may be the answer: it is not asked again. Its
        # time begins now: it may have been held for hours, and nobody is known to have been asked.
        began = format_time(case.now)
        status = with_entry(status, changed(attempt, state=RepairState.ASKED, started_at=began))
        why = "the node booted anew"
        return case.decision(
            "FollowRepair", status, because=why, evicting=Evicting.WATCH, wake_at=case.now
        )
    wanted = case.policy.repair.steps.get(Step(attempt.step))
    if case.settled:
        why = "its causes closed before it was needed"
        return _given_up(case, status, attempt, why)
    asks = is_wanted(case) and case.drains and wanted is not None
    if not asks or wanted is None or wanted.adapter != attempt.adapter:
        why = "the policy or a person does not ask for it any more"
        return _given_up(case, status, attempt, why)
    # Whoever led before may have asked and died: the pod that runs for it is no reason to hold the
    # step, and nobody is let back in the middle of it.
    call = _made_call(case, attempt)
    if call is not None and call.needs is not None:
        return reading(call.needs)
    if call is not None and call.verdict.asked:
        return _ask(case, status, attempt)
    waits = not_now(case, Step(attempt.step), halt, f"{attempt.step} waits", " until")
    if waits is not None and not waits.looks:
        return _held(case, status, attempt, waits)
    call = call_for(case, attempt)
    if call.needs is not None:
        return reading(call.needs)
    waits = object_waits(case, call, f"{attempt.step} waits") or waits
    if waits is not None:
        return _held(case, status, attempt, waits)
    if attempt.state == RepairState.HELD or was_away(case.now, case.seen.last_active_at):
        # Time in which it could not be asked for is nobody's failure.
        again = changed(attempt, state=RepairState.PLANNED, started_at=format_time(case.now))
        status = with_entry(status, again)
        return case.decision(
            "PlanRepair", status, because="it may go on", evicting=Evicting.LOOK, wake_at=case.now
        )
    return _ask(case, status, attempt)


def _made_call(case: Case, attempt: RepairAttempt) -> Call | None:
    """The call that may have been made already; None where it certainly was not."""
    action = recorded(attempt.action)
    if attempt.state != RepairState.PLANNED or action is None:
        return None
    # What an object is asked through is on record before the call: without it there was none.
    if isinstance(action, NewObject | Replacement) and attempt.target is None:
        return None
    return call_for(case, attempt)


def _given_up(case: Case, status: QuarantineStatus, attempt: RepairAttempt, why: str) -> Decision:
    """The step is withdrawn, unless whoever led before asked for it and could not say so any more:
    somebody may be at it, and the node serves nobody until it is over.
    """
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because=why, needs_fresh_node=True)
    call = call_for(case, attempt)
    # What an object is asked through is on record before the call: without it there was none.
    if call.needs is not None and attempt.target is not None:
        return reading(call.needs)
    if call.verdict.asked:
        return _ask(case, status, attempt)
    return ended_as(case, status, attempt, RepairState.WITHDRAWN, why)


def _ask(case: Case, status: QuarantineStatus, attempt: RepairAttempt) -> Decision:
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because="a repair is due", needs_fresh_node=True)
    call = call_for(case, attempt)
    if call.needs is not None:
        return reading(call.needs)
    if call.target is not None and attempt.target is None:
        # On record before anybody is asked through it.
        found = with_entry(status, changed(attempt, target=call.target))
        why = "the object is known"
        return case.decision(
            "PlanRepair", found, because=why, evicting=Evicting.LOOK, wake_at=case.now
        )
    if (waits := object_waits(case, call, f"{attempt.step} waits")) is not None:
        return _held(case, status, attempt, waits)
    said = case.refusal(call.write) if call.write is not None else None
    cannot = refused(call.verdict.cannot) if call.verdict.cannot else said
    overdue = case.now - started_at(case, attempt) > ASK_S
    if overdue and not call.verdict.asked:
        why = cannot.why if cannot is not None else "the API server took no request"
        ended = f"nobody could be asked: {why}"
        return ended_as(case, status, attempt, RepairState.FAILED, ended)
    if cannot is not None and cannot is not said:
        return _cannot(case, status, attempt, cannot, call.again_s)
    if said is None and call.clears is not None:
        return _clear(case, status, attempt, call)
    if said is None:
        # Its time begins with the call: what kept it from being asked was nobody's failure. A call
        # of whoever led before may have been followed by now.
        began = attempt.started_at if call.write is None else format_time(case.now)
        asked = changed(attempt, state=RepairState.ASKED, started_at=began, asked_at=began)
        status = with_entry(status, asked)
        message = f"{attempt.step} asked of {attempt.adapter}"
        status = st.noted(status, "RepairAsked", message, case.now)
        status = touched(status, message=f"{message} at {utc(case.now)}; its proof is awaited.")
    return case.decision(
        "AskRepair",
        status,
        because=attempt.step,
        before=(call.write,) if call.write is not None else (),
        evicting=Evicting.WATCH if said is None else Evicting.LOOK,
        wake_at=case.now + 1.0,
    )


def _clear(case: Case, status: QuarantineStatus, attempt: RepairAttempt, call: Call) -> Decision:
    """Others are moved off the GPUs; whose labels change is on record before they do."""
    if attempt.cleared != call.clears:
        status = with_entry(status, changed(attempt, cleared=call.clears))
        why = "who has to go is known"
        return case.decision(
            "PlanRepair", status, because=why, evicting=Evicting.LOOK, wake_at=case.now
        )
    return case.decision(
        "ClearGPUs",
        status,
        because=attempt.step,
        before=(call.write,) if call.write is not None else (),
        # Looked at anew before the call: others are on the move.
        evicting=Evicting.WATCH,
        wake_at=case.now + 1.0,
    )


def _cannot(
    case: Case,
    status: QuarantineStatus,
    attempt: RepairAttempt,
    refusal: Refusal,
    again_s: float,
) -> Decision:
    """The step cannot be asked for: said, tried again, and failed when its time is over."""
    status = st.with_refusal(status, case.now, refusal, f"Not repaired: {refusal.why}.")
    until = utc(started_at(case, attempt) + ASK_S)
    sentence = (
        f"{attempt.step} cannot be asked of {attempt.adapter}: {refusal.why}; it is tried again "
        f"until {until} and counts as failed then."
    )
    status = st.enter(status, Phase.REPAIRING, bounded(sentence), case.now)
    return case.decision(
        "CannotAsk",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        evicting=Evicting.LOOK,
        wake_at=case.now + again_s,
    )


def _held(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, waits: Outlook
) -> Decision:
    if waits.refusal is not None and attempt.state != RepairState.HELD:
        status = with_entry(status, changed(attempt, state=RepairState.HELD))
    clause = waits.refusal.why if waits.refusal is not None else ""
    status = st.with_refusal(status, case.now, waits.refusal, f"Not repaired: {clause}.")
    sentence = bounded(f"Drained for {case.asked_for}; {waits.then}.")
    status = st.enter(status, Phase.REPAIRING, sentence, case.now)
    return case.decision(
        "HoldRepair",
        status,
        because=clause or waits.then,
        blocked_by=waits.refusal.reason if waits.refusal is not None else None,
        # What holds it may last: whoever was moved off comes back meanwhile.
        before=letting_back(case) if waits.refusal is not None else (),
        evicting=Evicting.LOOK if waits.looks else Evicting.WATCH,
        hand_over=waits.hand_over,
        wake_at=waits.wake_at,
    )
