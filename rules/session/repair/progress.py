"""The step under way followed to its proof: asked, held, awaited, proven or failed.

One rule that reads `status.repair[]` and what is seen now, and nothing else: a restart, a crash
between two writes and a change of leader all continue here. Whether the step happened,
`rules.repair.ladder` says.
"""

from typing import Final

from rules.api import messages, timestamps
from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairState
from rules.api.repair_writes import ObjectAddress
from rules.api.writes import Decision, Evicting
from rules.catalog.why_not import Refusal
from rules.drain import drain_plan
from rules.repair import adapter, ladder, objects
from rules.repair.adapter import NewObject, Replacement
from rules.repair.ladder import Step
from rules.repair.objects import ObjectSeen, ReadState
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched
from rules.session.repair import endings, evidence, readiness, request, withdrawal
from rules.session.repair.ladder import under_way
from rules.session.repair.readiness import Outlook
from rules.session.repair.request import Call

HEALS_S: Final = 900.0
"""How long after its proof a step's causes may still hold before the next one: a health status of
a new boot needs the start grace of the agent and a check at everything that was wrong before."""


def follow_step(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision | None:
    """The step that is under way, judged by what is seen; None where there is none."""
    attempt = under_way(status)
    if attempt is None:
        return _healing(case, status)
    proof = ladder.prove(Step(attempt.step), attempt.before, evidence.seen_of(case, attempt))
    asked = attempt.state == RepairState.ASKED
    if proof.proven and (asked or not case.settled):
        return endings.ended_as(case, status, attempt, RepairState.PROVEN, proof.clause)
    lost = st.entries_lost(case.seen.not_kept, "repair")
    if not asked and lost is not None:
        return _unrecorded(case, status, attempt, lost)
    if not asked:
        return go_on(case, status, attempt, halt)
    wanted = case.policy.repair.steps.get(Step(attempt.step))
    timeout_s = wanted.timeout_s if wanted is not None else 3600.0
    if case.now - endings.started_at(case, attempt) >= timeout_s:
        spelled = f"{timeout_s / 60:.0f} min" if timeout_s >= 120 else f"{timeout_s:.0f} s"
        why = f"not proven within {spelled}: {proof.clause}"
        return endings.ended_as(case, status, attempt, RepairState.FAILED, why)
    query, check_s = _followed(attempt), _check_interval_s(case, attempt)
    # Read again at each check that is due, and not at every wake-up.
    seen = request.read_lately(case, query, 0.9 * check_s) if query is not None else None
    if query is not None and seen is None:
        return endings.reading(query)
    gave_up, over = _object_outcome(attempt, seen)
    if gave_up and case.node.boot_id == attempt.before.boot_id:
        # In another boot its word is about the one before: a Job, say, that the reboot ended.
        why = f"{attempt.adapter} gave up: {gave_up}"
        return endings.ended_as(case, status, attempt, RepairState.FAILED, why)
    until = timestamps.utc(endings.started_at(case, attempt) + timeout_s)
    target = attempt.target
    through = f" through {objects.address_of(target).words}" if target is not None else ""
    sentence = (
        f"{attempt.step} asked of {attempt.adapter}{through} at "
        f"{timestamps.utc(endings.started_at(case, attempt))} for "
        f"{case.asked_for}; not proven yet ({proof.clause}), it has until {until}."
    )
    status = st.with_refusal(status, case.now, None)
    status = st.enter(status, Phase.REPAIRING, messages.bounded(sentence), case.now)
    return case.decision(
        "AwaitRepair",
        status,
        because=proof.clause,
        # Nobody is to stay moved off for an object that is over, of another boot too; and once it
        # is through, the proof needs our agent to look again.
        before=withdrawal.restored_labels(case) if over else (),
        evicting=Evicting.WATCH,
        wake_at=min(
            endings.started_at(case, attempt) + timeout_s,
            case.now + (check_s if query is not None else timeout_s),
        ),
    )


_FOLLOWED_S: Final = 5.0
"""How often an object is checked while its step is awaited; one that was asked for a moment ago
more often: what ends at once has mostly refused, and people wait for that."""
_YOUNG: Final = 0.25
"""An object is checked again after this part of the time that its step has taken."""
_SOONEST_S: Final = 1.0


def _check_interval_s(case: Case, attempt: RepairAttempt) -> float:
    """How soon the object of a step that was asked for is checked again."""
    took_s = case.now - (timestamps.parse_time(attempt.asked_at or attempt.started_at) or case.now)
    return min(_FOLLOWED_S, max(_SOONEST_S, _YOUNG * took_s))


def _followed(attempt: RepairAttempt) -> ObjectAddress | None:
    """The object that says when the step is through or given up; None where there is none."""
    action = adapter.recorded(attempt.action)
    if not isinstance(action, NewObject) or attempt.target is None:
        return None
    says = action.done is not None or action.failed is not None
    return objects.address_of(attempt.target) if says else None


def _object_outcome(attempt: RepairAttempt, seen: ObjectSeen | None) -> tuple[str, bool]:
    """Why the one that was asked gave up, a clause, and whether its object does no more."""
    action = adapter.recorded(attempt.action)
    if seen is None or not isinstance(action, NewObject) or attempt.target is None:
        return "", False
    if seen.state is not ReadState.FOUND or not seen.found:
        return "", seen.state is ReadState.ABSENT
    why = objects.given_up(action, objects.address_of(attempt.target).words, seen.found[0])
    through = action.done is not None and objects.holds(action.done, seen.found[0])
    return why, bool(why) or through


def _unrecorded(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, refusal: Refusal
) -> Decision:
    """The API server did not keep the entry as it was sent, so nobody was asked: off with it."""
    status = touched(status, repair=tuple(a for a in status.repair if a is not attempt))
    status = st.with_refusal(status, case.now, refusal, f"Not repaired: {refusal.why}.")
    return case.decision(
        "NotRecorded",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        evicting=Evicting.WATCH,
        wake_at=case.now,
    )


def _healing(case: Case, status: QuarantineStatus) -> Decision | None:
    """A step was proven a moment ago: the health status gets its time before the next one is
    thought of.
    """
    last = status.repair[-1] if status.repair else None
    if last is None or last.state != RepairState.PROVEN or case.phase is not Phase.REPAIRING:
        return None
    until = (timestamps.parse_time(last.ended_at) or case.now) + HEALS_S
    if case.settled or case.now >= until:
        return None
    sentence = (
        f"{last.step} is proven ({last.proof}) and {messages.causes_clause(case.causes)} holds "
        f"still; if it does at {timestamps.utc(until)}, {readiness.awaited(case)}."
    )
    status = st.enter(status, Phase.REPAIRING, messages.bounded(sentence), case.now)
    return case.decision(
        "Healing", status, because="its causes hold still", evicting=Evicting.WATCH, wake_at=until
    )


ASK_S: Final = 600.0
"""How long the API server may refuse to let anybody be asked before the step has failed."""


def go_on(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, halt: Refusal | None
) -> Decision:
    """A step on record of which nobody knows whether it was asked for: ask, wait or give it up."""
    if not endings.is_complete(case, attempt):
        why = "the definition of GPUQuarantine does not keep its record"
        return _given_up(case, status, attempt, why)
    if attempt.before.boot_id != case.node.boot_id and case.node.boot_id:
        # Whoever led before may have asked, and this may be the answer: it is not asked again. Its
        # time begins now: it may have been held for hours, and nobody is known to have been asked.
        began = timestamps.format_time(case.now)
        status = endings.with_entry(status, attempt, state=RepairState.ASKED, started_at=began)
        why = "the node booted again"
        return case.decision(
            "FollowRepair", status, because=why, evicting=Evicting.WATCH, wake_at=case.now
        )
    wanted = case.policy.repair.steps.get(Step(attempt.step))
    if case.settled:
        why = "its causes closed before it was needed"
        return _given_up(case, status, attempt, why)
    asks = readiness.is_wanted(case) and case.drains and wanted is not None
    if not asks or wanted is None or wanted.adapter != attempt.adapter:
        why = "the policy or an operator does not ask for it any more"
        return _given_up(case, status, attempt, why)
    # Whoever led before may have asked and died: the pod that runs for it is no reason to hold the
    # step, and nobody is let back in the middle of it.
    call = _made_call(case, attempt)
    if call is not None and call.needs is not None:
        return endings.reading(call.needs)
    if call is not None and call.verdict.asked:
        return _ask(case, status, attempt)
    waits = readiness.not_now(case, Step(attempt.step), halt, f"{attempt.step} waits", " until")
    if waits is not None and not waits.lists_pods:
        return _held(case, status, attempt, waits)
    call = request.call_for(case, attempt)
    if call.needs is not None:
        return endings.reading(call.needs)
    waits = readiness.object_waits(case, call, f"{attempt.step} waits") or waits
    if waits is not None:
        return _held(case, status, attempt, waits)
    if attempt.state == RepairState.HELD or drain_plan.was_away(
        case.now, case.seen.last_active_at
    ):
        # Time in which it could not be asked for is nobody's failure.
        began = timestamps.format_time(case.now)
        again = endings.with_entry(status, attempt, state=RepairState.PLANNED, started_at=began)
        return _on_record(case, again, "it may go on")
    return _ask(case, status, attempt)


def _made_call(case: Case, attempt: RepairAttempt) -> Call | None:
    """The call that may have been made already; None where it certainly was not."""
    action = adapter.recorded(attempt.action)
    if attempt.state != RepairState.PLANNED or action is None:
        return None
    # What an object is asked through is on record before the call: without it there was none.
    if isinstance(action, NewObject | Replacement) and attempt.target is None:
        return None
    return request.call_for(case, attempt)


def _given_up(case: Case, status: QuarantineStatus, attempt: RepairAttempt, why: str) -> Decision:
    """The step is withdrawn, unless whoever led before asked for it and could not report it any
    more: somebody may be at it, and the node serves nobody until it is over.
    """
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because=why, needs_fresh_node=True)
    call = request.call_for(case, attempt)
    # What an object is asked through is on record before the call: without it there was none.
    if call.needs is not None and attempt.target is not None:
        return endings.reading(call.needs)
    if call.verdict.asked:
        return _ask(case, status, attempt)
    return endings.ended_as(case, status, attempt, RepairState.WITHDRAWN, why)


def _ask(case: Case, status: QuarantineStatus, attempt: RepairAttempt) -> Decision:
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because="a repair is due", needs_fresh_node=True)
    call = request.call_for(case, attempt)
    if call.needs is not None:
        return endings.reading(call.needs)
    if call.target is not None and attempt.target is None:
        # On record before anybody is asked through it.
        found = endings.with_entry(status, attempt, target=call.target)
        return _on_record(case, found, "the object is known")
    if (waits := readiness.object_waits(case, call, f"{attempt.step} waits")) is not None:
        return _held(case, status, attempt, waits)
    said = case.refusal(call.write) if call.write is not None else None
    cannot = readiness.refused(call.verdict.cannot) if call.verdict.cannot else said
    overdue = case.now - endings.started_at(case, attempt) > ASK_S
    if overdue and not call.verdict.asked:
        why = cannot.why if cannot is not None else "the API server took no request"
        ended = f"nobody could be asked: {why}"
        return endings.ended_as(case, status, attempt, RepairState.FAILED, ended)
    if cannot is not None and cannot is not said:
        return _cannot(case, status, attempt, cannot, call.again_s)
    if said is None and call.clears is not None:
        return _clear(case, status, attempt, call)
    if said is None:
        # Its time begins with the call: what kept it from being asked was nobody's failure. A call
        # of whoever led before may have been followed by now.
        began = attempt.started_at if call.write is None else timestamps.format_time(case.now)
        asked = RepairState.ASKED
        status = endings.with_entry(status, attempt, state=asked, started_at=began, asked_at=began)
        message = f"{attempt.step} asked of {attempt.adapter}"
        status = st.noted(status, "RepairAsked", message, case.now)
        status = touched(
            status, message=f"{message} at {timestamps.utc(case.now)}; its proof is awaited."
        )
    return case.decision(
        "AskRepair",
        status,
        because=attempt.step,
        before=(call.write,) if call.write is not None else (),
        evicting=Evicting.WATCH if said is None else Evicting.LOOK,
        wake_at=case.now + 1.0,
    )


def _on_record(case: Case, status: QuarantineStatus, why: str) -> Decision:
    """What the next decision goes on from is written first."""
    return case.decision(
        "PlanRepair", status, because=why, evicting=Evicting.LOOK, wake_at=case.now
    )


def _clear(case: Case, status: QuarantineStatus, attempt: RepairAttempt, call: Call) -> Decision:
    """Others are moved off the GPUs; whose labels change is on record before they do."""
    if attempt.cleared != call.clears:
        status = endings.with_entry(status, attempt, cleared=call.clears)
        return _on_record(case, status, "who has to go is known")
    return case.decision(
        "ClearGPUs",
        status,
        because=attempt.step,
        before=(call.write,) if call.write is not None else (),
        # Checked again before the call: others are on the move.
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
    until = timestamps.utc(endings.started_at(case, attempt) + ASK_S)
    sentence = (
        f"{attempt.step} cannot be asked of {attempt.adapter}: {refusal.why}; it is tried again "
        f"until {until} and counts as failed then."
    )
    status = st.enter(status, Phase.REPAIRING, messages.bounded(sentence), case.now)
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
        status = endings.with_entry(status, attempt, state=RepairState.HELD)
    clause = waits.refusal.why if waits.refusal is not None else ""
    status = st.with_refusal(status, case.now, waits.refusal, f"Not repaired: {clause}.")
    sentence = messages.bounded(f"Drained for {case.asked_for}; {waits.then}.")
    status = st.enter(status, Phase.REPAIRING, sentence, case.now)
    return case.decision(
        "HoldRepair",
        status,
        because=clause or waits.then,
        blocked_by=waits.refusal.reason if waits.refusal is not None else None,
        # What holds it may last: whoever was moved off comes back meanwhile.
        before=withdrawal.restored_labels(case) if waits.refusal is not None else (),
        evicting=Evicting.LOOK if waits.lists_pods else Evicting.WATCH,
        hand_over=waits.hand_over,
        wake_at=waits.wake_at,
    )
