"""Repairing: the step under way followed to its proof, and the next one begun when all allows it.

One rule that reads `status.repair[]` and what is seen now, and nothing else: a restart, a crash
between two writes and a change of leader all continue here. The entry is written before anybody
is asked; whether the step happened, `rules.repair.proof` says. Called by `rules.session.phases`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairState
from rules.api.repair.writes import ObjectQuery
from rules.api.sentences import bounded, causes_clause
from rules.api.timestamps import clock, format_time, parse_time
from rules.api.writes import Decision, Evicting
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain.clock import was_away
from rules.repair.ladder import Climb, Step
from rules.repair.proof import prove
from rules.repair.target import address_of
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched
from rules.session.repair.asking import FOLLOWED_S, Call, call_for, follow_call
from rules.session.repair.ends import requests_off, with_left
from rules.session.repair.evidence import noted_without
from rules.session.repair.facts import before_of, seen_of
from rules.session.repair.outlook import Outlook, not_now
from rules.session.repair.requests import request_name
from rules.session.repair.wants import lessons, let_go, next_step, under_way

PROPOSED: Final = "RepairProposed"
"""Condition: a person is asked to let a step go; its reason is the step."""
ASK_S: Final = 600.0
"""How long the API server may refuse to let anybody be asked before the step has failed."""
MAX_ATTEMPTS: Final = 16
"""Entries of `status.repair`; the CRD allows as many."""
HEALS_S: Final = 900.0
"""How long after its proof a step's causes may still hold before the next one: a verdict of a new
boot needs the start grace of the agent and a look at everything that was wrong before."""


def follow_step(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision | None:
    """The step that is under way, judged by what is seen; None where there is none."""
    attempt = under_way(status)
    if attempt is None:
        return _healing(case, status)
    proof = prove(Step(attempt.step), attempt.before, seen_of(case, _started(case, attempt)))
    asked = attempt.state == RepairState.ASKED
    if proof.proven and (asked or not case.settled):
        return _ended(case, status, attempt, RepairState.PROVEN, proof.clause)
    if not asked:
        return _plan_on(case, status, attempt, halt)
    if case.now - _started(case, attempt) >= (timeout_s := _timeout_s(case, attempt)):
        why = f"not proven within {timeout_s / 60:.0f} min: {proof.clause}"
        return _ended(case, status, attempt, RepairState.FAILED, why)
    followed = follow_call(case, attempt)
    if followed.needs is not None:
        return _reading(followed.needs)
    if followed.gave_up:
        why = f"{attempt.adapter} gave up: {followed.gave_up}"
        return _ended(case, status, attempt, RepairState.FAILED, why)
    until = clock(_started(case, attempt) + timeout_s)
    sentence = (
        f"{attempt.step} asked of {attempt.adapter}{_through(attempt)} at "
        f"{clock(_started(case, attempt))} for "
        f"{causes_clause(case.causes)}; not proven yet ({proof.clause}), it has until {until}."
    )
    status = st.with_refusal(status, case.now, None)
    status = st.enter(status, Phase.REPAIRING, bounded(sentence), case.now)
    return case.decision(
        "AwaitRepair",
        status,
        because=proof.clause,
        before=followed.writes,
        evicting=Evicting.WATCH,
        wake_at=min(
            _started(case, attempt) + timeout_s,
            case.now + (FOLLOWED_S if followed.looks else timeout_s),
        ),
    )


def begin_step(
    case: Case, status: QuarantineStatus, halt: Refusal | None
) -> Decision | Outlook | None:
    """The next step of a drained node: begun, or why not now; None where nobody wants one."""
    if not _wanted(case) or not case.drains:
        return None
    led = led_to(case)
    if led.rung is None:
        clause = f"no repair step is left ({led.clause}), a person decides"
        refusal = Refusal(reason=WhyNot.NO_STEP_LEFT, why=clause, permanent=True)
        return Outlook(then=clause, refusal=refusal)
    rung = led.rung
    if not let_go(case.session, rung, case.policy):
        why = (
            f"{rung.step} by {rung.adapter} is proposed (attempt {rung.attempt} on this node), a "
            f"person lets it go: kubectl gpuward repair {case.node.name}"
        )
        refusal = Refusal(reason=WhyNot.APPROVAL, why=why, permanent=True)
        return Outlook(then=why, refusal=refusal, proposes=rung.step)
    next_clause = f"{rung.step} by {rung.adapter} is next"
    waits = not_now(case, rung.step, halt, next_clause)
    if waits is not None and not waits.looks:
        return waits
    attempt = RepairAttempt(
        step=rung.step,
        adapter=rung.adapter,
        attempt=rung.attempt,
        started_at=format_time(case.now),
        object=request_name(case.session.name, rung.step, rung.attempt),
        before=before_of(case),
        state=RepairState.PLANNED,
    )
    # Before the pods are listed: what waits for an object may wait for days.
    call = call_for(case, attempt)
    if call.needs is not None:
        return _reading(call.needs)
    return _object_waits(case, call, next_clause) or waits or _planned(case, status, attempt, call)


def would_repair(case: Case) -> str:
    """What Shadow says of the ladder, to go on with its sentence; "" where nobody wants it."""
    if not _wanted(case):
        return ""
    led = led_to(case)
    if led.rung is None:
        return f", then a person would decide ({led.clause})"
    return f", then {led.rung.step} would be asked of {led.rung.adapter}"


def _wanted(case: Case) -> bool:
    """Whether there is anything for a ladder: what people ask for, people end, or repair."""
    off = case.policy.repair.mode == "Off"
    chosen = case.session.spec.repair is not None
    return not off and (chosen or any(cause.source != "Human" for cause in case.causes))


def led_to(case: Case) -> Climb:
    """Where the ladder leads now."""
    return next_step(
        case.session,
        case.seen.siblings,
        case.causes,
        case.seen.health,
        case.policy,
        case.now,
        case.seen.records,
    )


def _object_waits(case: Case, call: Call, next_clause: str) -> Outlook | None:
    """What the object says against the step as long as it lasts; None where it says nothing."""
    why = call.verdict.waits
    if not why:
        return None
    again_at = case.now + call.again_s
    return Outlook(then=f"{next_clause}: {why}", refusal=_refused(why), wake_at=again_at)


def _planned(case: Case, status: QuarantineStatus, attempt: RepairAttempt, call: Call) -> Decision:
    """The step on record with what it is asked through; the call follows only after that."""
    attempt = _changed(attempt, target=call.target)
    status = noted_without(case, status, Step(attempt.step))
    status = touched(status, repair=(*_with_room(status.repair), attempt))
    status = st.with_condition(status, PROPOSED, case.now)
    sentence = (
        f"{attempt.step} is to be asked of {attempt.adapter} for {causes_clause(case.causes)} "
        f"(attempt {attempt.attempt} on this node{_skipped(case)})."
    )
    status = st.with_refusal(status, case.now, None)
    status = st.enter(status, Phase.REPAIRING, bounded(sentence), case.now)
    return case.decision(
        "PlanRepair", status, because=attempt.step, evicting=Evicting.LOOK, wake_at=case.now
    )


def _with_room(attempts: tuple[RepairAttempt, ...]) -> tuple[RepairAttempt, ...]:
    """`attempts` with a place for one more: of those that count for nothing the oldest goes."""
    spare = next((each for each in attempts if not each.counts), None)
    if len(attempts) < MAX_ATTEMPTS or spare is None:
        return attempts
    return tuple(each for each in attempts if each is not spare)


def _skipped(case: Case) -> str:
    """What history made the ladder begin above."""
    failed = lessons(case.session, case.seen.health, case.seen.records, case.now).failed
    skipped = [step for step, _ in led_to(case).passed if step in failed]
    return f"; {', '.join(skipped)} did not hold before" if skipped else ""


def _plan_on(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, halt: Refusal | None
) -> Decision:
    """A step on record of which nobody knows whether it was asked for: ask, wait or give it up."""
    if attempt.before.boot_id != case.node.boot_id and case.node.boot_id:
        # Whoever led before may have asked, and this may be the answer: it is not asked again. Its
        # time begins now: it may have been held for hours, and nobody is known to have been asked.
        began = format_time(case.now)
        status = _with(status, _changed(attempt, state=RepairState.ASKED, started_at=began))
        why = "the node booted anew"
        return case.decision(
            "FollowRepair", status, because=why, evicting=Evicting.WATCH, wake_at=case.now
        )
    wanted = case.policy.repair.steps.get(Step(attempt.step))
    if case.settled:
        why = "its causes closed before it was needed"
        return _ended(case, status, attempt, RepairState.WITHDRAWN, why)
    asks = _wanted(case) and case.drains and wanted is not None
    if not asks or wanted is None or wanted.adapter != attempt.adapter:
        why = "the policy or a person does not ask for it any more"
        return _ended(case, status, attempt, RepairState.WITHDRAWN, why)
    waits = not_now(case, Step(attempt.step), halt, f"{attempt.step} waits")
    if waits is not None and not waits.looks:
        return _held(case, status, attempt, waits)
    call = call_for(case, attempt)
    if call.needs is not None:
        return _reading(call.needs)
    waits = _object_waits(case, call, f"{attempt.step} waits") or waits
    if waits is not None:
        return _held(case, status, attempt, waits)
    if attempt.state == RepairState.HELD or was_away(case.now, case.seen.last_active_at):
        # Time in which it could not be asked for is nobody's failure.
        again = _changed(attempt, state=RepairState.PLANNED, started_at=format_time(case.now))
        status = _with(status, again)
        return case.decision(
            "PlanRepair", status, because="it may go on", evicting=Evicting.LOOK, wake_at=case.now
        )
    return _ask(case, status, attempt)


def _ask(case: Case, status: QuarantineStatus, attempt: RepairAttempt) -> Decision:
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because="a repair is due", needs_fresh_node=True)
    call = call_for(case, attempt)
    if call.needs is not None:
        return _reading(call.needs)
    if call.target is not None and attempt.target is None:
        # On record before anybody is asked through it.
        found = _with(status, _changed(attempt, target=call.target))
        why = "the object is known"
        return case.decision(
            "PlanRepair", found, because=why, evicting=Evicting.LOOK, wake_at=case.now
        )
    if (waits := _object_waits(case, call, f"{attempt.step} waits")) is not None:
        return _held(case, status, attempt, waits)
    said = case.refusal(call.write) if call.write is not None else None
    cannot = _refused(call.verdict.cannot) if call.verdict.cannot else said
    overdue = case.now - _started(case, attempt) > ASK_S
    if overdue and not call.verdict.asked:
        why = cannot.why if cannot is not None else "the API server took no request"
        ended = f"nobody could be asked: {why}"
        return _ended(case, status, attempt, RepairState.FAILED, ended)
    if cannot is not None and cannot is not said:
        return _cannot(case, status, attempt, cannot, call.again_s)
    if said is None:
        # Its time begins with the call: what kept it from being asked was nobody's failure. A call
        # of whoever led before may have been followed by now.
        began = attempt.started_at if call.write is None else format_time(case.now)
        asked = _changed(attempt, state=RepairState.ASKED, started_at=began, asked_at=began)
        status = _with(status, asked)
        message = f"{attempt.step} asked of {attempt.adapter}"
        status = st.noted(status, "RepairAsked", message, case.now)
        status = touched(status, message=f"{message} at {clock(case.now)}; its proof is awaited.")
    return case.decision(
        "AskRepair",
        status,
        because=attempt.step,
        before=(call.write,) if call.write is not None else (),
        evicting=Evicting.WATCH if said is None else Evicting.LOOK,
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
    until = clock(_started(case, attempt) + ASK_S)
    sentence = (
        f"{attempt.step} cannot be asked of {attempt.adapter}: {refusal.why}; it is tried again and "
        f"has failed at {until}."
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


def _refused(why: str) -> Refusal:
    return Refusal(reason=WhyNot.REPAIR_REFUSED, why=why, permanent=True)


def _reading(query: ObjectQuery) -> Decision:
    because = f"the repair rests on {query.address.words}"
    return Decision(step="ReadObject", because=because, needs_object=query)


def _held(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, waits: Outlook
) -> Decision:
    if waits.refusal is not None and attempt.state != RepairState.HELD:
        status = _with(status, _changed(attempt, state=RepairState.HELD))
    clause = waits.refusal.why if waits.refusal is not None else ""
    status = st.with_refusal(status, case.now, waits.refusal, f"Not repaired: {clause}.")
    sentence = bounded(f"Drained for {causes_clause(case.causes)}; {waits.then}.")
    status = st.enter(status, Phase.REPAIRING, sentence, case.now)
    return case.decision(
        "HoldRepair",
        status,
        because=clause or waits.then,
        blocked_by=waits.refusal.reason if waits.refusal is not None else None,
        evicting=Evicting.LOOK if waits.looks else Evicting.WATCH,
        hand_over=waits.hand_over,
        wake_at=waits.wake_at,
    )


def _ended(
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
    ended = _changed(attempt, state=state, ended_at=format_time(case.now), proof=proof[:512])
    status = _with(status, ended)
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


def _healing(case: Case, status: QuarantineStatus) -> Decision | None:
    """A step was proven a moment ago: the verdict gets its time before the next one is thought of."""
    last = status.repair[-1] if status.repair else None
    if last is None or last.state != RepairState.PROVEN or case.phase is not Phase.REPAIRING:
        return None
    until = (parse_time(last.ended_at) or case.now) + HEALS_S
    if case.settled or case.now >= until:
        return None
    sentence = (
        f"{last.step} is proven ({last.proof}) and {causes_clause(case.causes)} holds still; the "
        f"next step follows at {clock(until)} if it stays."
    )
    status = st.enter(status, Phase.REPAIRING, bounded(sentence), case.now)
    return case.decision(
        "Healing", status, because="its causes hold still", evicting=Evicting.WATCH, wake_at=until
    )


def _through(attempt: RepairAttempt) -> str:
    return f" through {address_of(attempt.target).words}" if attempt.target is not None else ""


def _changed(attempt: RepairAttempt, **changes: object) -> RepairAttempt:
    return msgspec.structs.replace(attempt, **changes)


def _with(status: QuarantineStatus, attempt: RepairAttempt) -> QuarantineStatus:
    """`status` with the entry of the same request replaced."""
    repair = tuple(attempt if a.object == attempt.object else a for a in status.repair)
    return touched(status, repair=repair)


def _started(case: Case, attempt: RepairAttempt) -> float:
    return parse_time(attempt.started_at) or case.now


def _timeout_s(case: Case, attempt: RepairAttempt) -> float:
    wanted = case.policy.repair.steps.get(Step(attempt.step))
    return wanted.timeout_s if wanted is not None else 3600.0
