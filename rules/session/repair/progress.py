"""Follow a running repair step to its end: request, wait, hold, proof or failure.

The rule reads only `status.repair[]` and the current observation, so that it continues after a
restart, a crash between two writes and a change of leader. `rules.repair.ladder` decides whether
the step happened.
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
from rules.session import causes
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched
from rules.session.repair import endings, evidence, readiness, request, withdrawal
from rules.session.repair.ladder import approval_for, under_way
from rules.session.repair.readiness import Outlook
from rules.session.repair.request import Call

HEALS_S: Final = 900.0
"""How long after its proof a step's causes may stay active before the next step: a health status
of a new boot needs the start grace of the agent and a check of every earlier fault."""


def follow_step(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision | None:
    """Return the decision about the running step; None if there is none."""
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
        # After a reboot the object reports on the boot before: a Job, say, that the reboot ended.
        why = f"{attempt.adapter} gave up: {gave_up}"
        return endings.ended_as(case, status, attempt, RepairState.FAILED, why)
    until = endings.started_at(case, attempt) + timeout_s
    target = attempt.target
    through = f" through {objects.address_of(target).text}" if target is not None else ""
    sentence = (
        f"{attempt.step} requested from {attempt.adapter}{through} for {case.asked_for}; not "
        f"proven yet ({proof.clause})."
    )
    status = st.with_refusal(status, case.now, None)
    text = messages.bounded(sentence)
    status = st.enter(status, Phase.REPAIRING, text, case.now, until=until)
    return case.decision(
        "AwaitRepair",
        status,
        because=proof.clause,
        # Once the object is done, the pods that were moved off return, the agent among them: the
        # proof needs it.
        before=withdrawal.restored_labels(case) if over else (),
        evicting=Evicting.WATCH,
        wake_at=min(until, case.now + (check_s if query is not None else timeout_s)),
    )


_FOLLOWED_S: Final = 5.0
"""How often the object of a running step is read. A new one is read more often: an object that
ends at once has usually failed."""
_YOUNG: Final = 0.25
"""An object is read again after this part of the time that its step has taken."""
_SOONEST_S: Final = 1.0


def _check_interval_s(case: Case, attempt: RepairAttempt) -> float:
    """Return in how many seconds to read the object of a running step again."""
    took_s = case.now - (timestamps.parse_time(attempt.asked_at or attempt.started_at) or case.now)
    return min(_FOLLOWED_S, max(_SOONEST_S, _YOUNG * took_s))


def _followed(attempt: RepairAttempt) -> ObjectAddress | None:
    """Return the object that reports the end of the step; None without one."""
    action = adapter.recorded(attempt.action)
    if not isinstance(action, NewObject) or attempt.target is None:
        return None
    reports = action.done is not None or action.failed is not None
    return objects.address_of(attempt.target) if reports else None


def _object_outcome(attempt: RepairAttempt, seen: ObjectSeen | None) -> tuple[str, bool]:
    """Return why the object reports failure, as a clause, and whether it is finished."""
    action = adapter.recorded(attempt.action)
    if seen is None or not isinstance(action, NewObject) or attempt.target is None:
        return "", False
    if seen.state is not ReadState.FOUND or not seen.found:
        return "", seen.state is ReadState.ABSENT
    why = objects.given_up(action, objects.address_of(attempt.target).text, seen.found[0])
    through = action.done is not None and objects.holds(action.done, seen.found[0])
    return why, bool(why) or through


def _unrecorded(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, refusal: Refusal
) -> Decision:
    """Return the decision that drops an entry that the API server did not store completely."""
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
    """Return the decision to wait for the causes to close after a proven step; None otherwise."""
    last = status.repair[-1] if status.repair else None
    if last is None or last.state != RepairState.PROVEN or case.phase is not Phase.REPAIRING:
        return None
    until = (timestamps.parse_time(last.ended_at) or case.now) + HEALS_S
    if case.settled or case.now >= until:
        return None
    sentence = (
        f"{last.step} is proven ({last.proof}), but still active: "
        f"{messages.causes_clause(case.causes)}; if they do not close, {readiness.awaited(case)}."
    )
    text = messages.bounded(sentence)
    status = st.enter(status, Phase.REPAIRING, text, case.now, until=until)
    return case.decision(
        "Healing",
        status,
        because="its causes are still active",
        evicting=Evicting.WATCH,
        wake_at=until,
    )


ASK_S: Final = 600.0
"""How long the API server may refuse the request before the step fails."""


def go_on(
    case: Case, status: QuarantineStatus, attempt: RepairAttempt, halt: Refusal | None
) -> Decision:
    """Return the decision about a recorded step that may not be requested yet."""
    if not endings.is_complete(case, attempt):
        why = "the GPUQuarantine CRD drops its record"
        return _given_up(case, status, attempt, why)
    if attempt.before.boot_id != case.node.boot_id and case.node.boot_id:
        # The earlier leader may have requested this boot, so there is no second request. The
        # timeout begins now: the step may have been on hold for hours.
        began = timestamps.format_time(case.now)
        status = endings.with_entry(status, attempt, state=RepairState.ASKED, started_at=began)
        why = "the node rebooted"
        return case.decision(
            "FollowRepair", status, because=why, evicting=Evicting.WATCH, wake_at=case.now
        )
    wanted = case.policy.repair.steps.get(Step(attempt.step))
    if case.settled:
        why = "its causes closed before it was needed"
        return _given_up(case, status, attempt, why)
    asks = readiness.is_wanted(case) and case.drains and wanted is not None
    if causes.requested_domain(case.session):
        asks = asks and approval_for(case.session, case.causes, attempt.step) is not None
    if not asks or wanted is None or wanted.adapter != attempt.adapter:
        why = "the policy or the operator no longer requests it"
        return _given_up(case, status, attempt, why)
    # The earlier leader may have sent the request and died: its pod does not hold the step, and
    # other pods do not return during it.
    call = _made_call(case, attempt)
    if call is not None and call.needs is not None:
        return endings.reading(call.needs)
    if call is not None and call.assessment.asked:
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
        # Time without a possible request does not count against the timeout.
        began = timestamps.format_time(case.now)
        again = endings.with_entry(status, attempt, state=RepairState.PLANNED, started_at=began)
        return _on_record(case, again, "it may go on")
    return _ask(case, status, attempt)


def _made_call(case: Case, attempt: RepairAttempt) -> Call | None:
    """Return the request that may have been sent already; None if it certainly was not."""
    action = adapter.recorded(attempt.action)
    if attempt.state != RepairState.PLANNED or action is None:
        return None
    # The target is recorded before the request: without it there was none.
    if isinstance(action, NewObject | Replacement) and attempt.target is None:
        return None
    return request.call_for(case, attempt)


def _given_up(case: Case, status: QuarantineStatus, attempt: RepairAttempt, why: str) -> Decision:
    """Return the decision that withdraws the step, or follows it if the earlier leader requested
    it.
    """
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because=why, needs_fresh_node=True)
    call = request.call_for(case, attempt)
    # The target is recorded before the request: without it there was none.
    if call.needs is not None and attempt.target is not None:
        return endings.reading(call.needs)
    if call.assessment.asked:
        return _ask(case, status, attempt)
    return endings.ended_as(case, status, attempt, RepairState.WITHDRAWN, why)


def _ask(case: Case, status: QuarantineStatus, attempt: RepairAttempt) -> Decision:
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because="a repair is due", needs_fresh_node=True)
    call = request.call_for(case, attempt)
    if call.needs is not None:
        return endings.reading(call.needs)
    if call.target is not None and attempt.target is None:
        # Recorded before the request.
        found = endings.with_entry(status, attempt, target=call.target)
        return _on_record(case, found, "the object is known")
    if (waits := readiness.object_waits(case, call, f"{attempt.step} waits")) is not None:
        return _held(case, status, attempt, waits)
    answer = case.refusal(call.write) if call.write is not None else None
    cannot = readiness.refused(call.assessment.cannot) if call.assessment.cannot else answer
    overdue = case.now - endings.started_at(case, attempt) > ASK_S
    if overdue and not call.assessment.asked:
        why = "the API server did not accept the request"
        if cannot is not None:
            why = cannot.why
        elif call.leaving:
            why = f"gpuward waited for {call.leaving}"
        ended = f"the request could not be sent: {why}"
        return endings.ended_as(case, status, attempt, RepairState.FAILED, ended)
    if cannot is not None and cannot is not answer:
        return _cannot(case, status, attempt, cannot, call.again_s)
    if answer is None and call.clears is not None:
        return _clear(case, status, attempt, call)
    if call.leaving:
        return _leaving(case, status, attempt, call)
    if answer is None:
        # The timeout begins with the request, but not again for one of the earlier leader.
        began = attempt.started_at if call.write is None else timestamps.format_time(case.now)
        asked = RepairState.ASKED
        status = endings.with_entry(status, attempt, state=asked, started_at=began, asked_at=began)
        message = f"{attempt.step} requested from {attempt.adapter}"
        status = st.noted(status, "RepairAsked", message, case.now)
        status = st.with_message(status, f"{message}; gpuward waits for proof of it.")
    return case.decision(
        "AskRepair",
        status,
        because=attempt.step,
        before=(call.write,) if call.write is not None else (),
        evicting=Evicting.WATCH if answer is None else Evicting.CONFIRM_IDLE,
        wake_at=case.now + 1.0,
    )


def _on_record(case: Case, status: QuarantineStatus, why: str) -> Decision:
    """Return the decision that records the step before it continues."""
    return case.decision(
        "PlanRepair", status, because=why, evicting=Evicting.CONFIRM_IDLE, wake_at=case.now
    )


def _clear(case: Case, status: QuarantineStatus, attempt: RepairAttempt, call: Call) -> Decision:
    """Return the decision that moves pods off the GPUs; the changed labels are recorded first."""
    if attempt.cleared != call.clears:
        status = endings.with_entry(status, attempt, cleared=call.clears)
        return _on_record(case, status, "the labels to change are known")
    return case.decision(
        "ClearGPUs",
        status,
        because=attempt.step,
        before=(call.write,) if call.write is not None else (),
        # Checked again before the request: pods are still moving.
        evicting=Evicting.WATCH,
        wake_at=case.now + 1.0,
    )


def _leaving(case: Case, status: QuarantineStatus, attempt: RepairAttempt, call: Call) -> Decision:
    """Return the decision to list pods until those with ResourceClaims have terminated."""
    sentence = f"Drained for {case.asked_for}; {attempt.step} waits for {call.leaving}."
    status = st.enter(status, Phase.REPAIRING, messages.bounded(sentence), case.now)
    return case.decision(
        "ClearGPUs",
        status,
        because=f"waiting for {call.leaving}",
        evicting=Evicting.CONFIRM_IDLE,
        wake_at=case.now + 1.0,
    )


def _cannot(
    case: Case,
    status: QuarantineStatus,
    attempt: RepairAttempt,
    refusal: Refusal,
    again_s: float,
) -> Decision:
    """Return the decision for a request that cannot be made: report, retry, fail in the end."""
    status = st.with_refusal(status, case.now, refusal, f"Not repaired: {refusal.why}.")
    sentence = (
        f"{attempt.step} cannot be requested from {attempt.adapter}: {refusal.why}; gpuward "
        f"retries for {timestamps.span(ASK_S)}, then the step fails."
    )
    text, until = messages.bounded(sentence), endings.started_at(case, attempt) + ASK_S
    status = st.enter(status, Phase.REPAIRING, text, case.now, until=until)
    return case.decision(
        "CannotAsk",
        status,
        because=refusal.why,
        blocked_by=refusal.reason,
        evicting=Evicting.CONFIRM_IDLE,
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
    status = st.enter(status, Phase.REPAIRING, sentence, case.now, until=waits.until)
    return case.decision(
        "HoldRepair",
        status,
        because=clause or waits.then,
        blocked_by=waits.refusal.reason if waits.refusal is not None else None,
        # A hold may last: pods that were moved off return meanwhile.
        before=withdrawal.restored_labels(case) if waits.refusal is not None else (),
        evicting=Evicting.CONFIRM_IDLE if waits.lists_pods else Evicting.WATCH,
        hand_over=waits.hand_over,
        wake_at=waits.wake_at,
    )
