"""The next step of a drained node: begun, or why not now, or why there is none.

Called by `rules.session.phases`. The entry is written before anybody is asked.
"""

from __future__ import annotations

from rules.api.quarantine import (
    Phase,
    QuarantineStatus,
    RepairAttempt,
    RepairState,
)
from rules.api.sentences import bounded, causes_clause, let_go_by, some
from rules.api.timestamps import format_time
from rules.api.writes import Decision, Evicting
from rules.catalog.explanations import NO_REPAIR, repair
from rules.catalog.why_not import Refusal, WhyNot
from rules.repair.adapter import on_record
from rules.repair.ladder import Climb, Rung, Step
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.external import taken_back
from rules.session.people.said import said_at
from rules.session.refused import entries_lost
from rules.session.repair.asking import Call, call_for
from rules.session.repair.entry import changed, reading, with_room
from rules.session.repair.evidence import noted_without
from rules.session.repair.facts import before_of
from rules.session.repair.outlook import Outlook, not_now, object_waits
from rules.session.repair.requests import facts_of, request_name
from rules.session.repair.wants import (
    asked_for,
    chosen,
    let_go,
    next_step,
    word_for,
)


def begin_step(
    case: Case, status: QuarantineStatus, halt: Refusal | None
) -> Decision | Outlook | None:
    """The next step of a drained node: begun, or why not now; None where nobody wants one."""
    if not is_wanted(case) or not case.drains:
        return None
    led = led_to(case)
    next_clause = _leads(case, led)
    if led.rung is None:
        refusal = Refusal(reason=WhyNot.NO_STEP_LEFT, why=next_clause, permanent=True)
        return Outlook(then=next_clause, refusal=refusal)
    rung = led.rung
    if not let_go(case.session, case.causes, rung, case.policy):
        refusal = Refusal(reason=WhyNot.APPROVAL, why=next_clause, permanent=True)
        return Outlook(then=next_clause, refusal=refusal, proposes=rung.step)
    waits = not_now(case, rung.step, halt, next_clause)
    if waits is not None and not waits.looks:
        return waits
    return _begun(case, status, rung, next_clause, waits)


def awaited(case: Case) -> str:
    """What a drained node waits for: the step that the ladder leads to, else the repair that its
    causes ask for, whoever does it.
    """
    if is_wanted(case) and case.drains:
        return _leads(case, led_to(case))
    asked = asked_for(case.session, case.causes, case.seen.health, case.policy)
    if asked and NO_REPAIR.issuperset(asked):
        return "waiting for its causes to close, none of them asks for a repair"
    by_hand = some((repair(one) for one in asked if one and one not in NO_REPAIR), limit=2)
    return f"waiting for the repair{f' ({by_hand})' if by_hand else ''}, then the verdict decides"


def _leads(case: Case, led: Climb) -> str:
    rung = led.rung
    if rung is None:
        return f"no repair step is left ({led.clause}), {_who_decides(case)}"
    if let_go(case.session, case.causes, rung, case.policy):
        return f"{rung.step} by {rung.adapter} is next"
    return (
        f"{rung.step} by {rung.adapter} is proposed (attempt {rung.attempt} on this node), a "
        f"person lets it go: kubectl gpuward repair {case.node.name}"
    )


def _who_decides(case: Case) -> str:
    """A person; where all of it rests on what others say on the Node, they may take it back."""
    ends = taken_back(case.causes, case.session.spec.node_uid, case.policy)
    if not ends or len(ends) < len(case.causes):
        return "a person decides"
    return f"a person decides, or it ends with {some(ends, 2)}"


def _begun(
    case: Case,
    status: QuarantineStatus,
    rung: Rung,
    next_clause: str,
    waits: Outlook | None,
) -> Decision | Outlook:
    attempt = RepairAttempt(
        step=rung.step,
        adapter=rung.adapter,
        attempt=rung.attempt,
        started_at=format_time(case.now),
        object=request_name(case.session.name, rung.step, rung.attempt),
        before=before_of(case),
        state=RepairState.PLANNED,
    )
    action = case.policy.repair.action(rung.adapter, rung.step)
    if action is not None:
        attempt = changed(attempt, action=on_record(action, facts_of(case, attempt)))
    # Before the pods are listed: what waits for an object may wait for days.
    call = call_for(case, attempt)
    if call.needs is not None:
        return reading(call.needs)
    return object_waits(case, call, next_clause) or waits or _planned(case, status, attempt, call)


def would_repair(case: Case) -> str:
    """What Shadow says of the ladder, to go on with its sentence; "" where nobody wants it."""
    if not is_wanted(case):
        return ""
    led = led_to(case)
    if led.rung is None:
        return f", then a person would decide ({led.clause})"
    return f", then {led.rung.step} would be asked of {led.rung.adapter}"


def is_wanted(case: Case) -> bool:
    """Whether there is anything for a ladder: what people ask for, people end, or repair."""
    off = case.policy.repair.mode == "Off"
    by_person = bool(chosen(case.session, case.causes))
    return not off and (by_person or any(cause.source != "Human" for cause in case.causes))


def led_to(case: Case) -> Climb:
    """Where the ladder leads now."""
    return next_step(
        case.session,
        case.seen.siblings,
        case.causes,
        case.seen.health,
        case.policy,
        case.now,
        case.learnt,
    )


def _planned(case: Case, status: QuarantineStatus, attempt: RepairAttempt, call: Call) -> Decision:
    """The step on record with what it is asked through; the call follows only after that."""
    attempt = changed(attempt, target=call.target)
    status = touched(status, repair=(*with_room(status.repair), attempt))
    if entries_lost(case.seen.not_kept, "repair") is not None:
        # Only the record is tried again: all that is said of the session stays until it is kept.
        return case.decision(
            "PlanRepair", status, because=attempt.step, evicting=Evicting.LOOK, wake_at=case.now
        )
    status = noted_without(case, status, Step(attempt.step))
    if (asked := word_for(case.session, case.causes, attempt.step)) is not None:
        # The session keeps the word on one step only; its timeline that on each.
        at = said_at(asked.at, case.session, case.now)
        when = case.now if at is None else at
        by = asked.by or st.BY_PERSON
        status = st.noted(status, st.LET_GO, asked.reason, when, by, subject=attempt.step)
    status = st.with_condition(status, st.PROPOSED, case.now)
    sentence = (
        f"{attempt.step} is to be asked of {attempt.adapter} for {causes_clause(case.causes)} "
        f"(attempt {attempt.attempt} on this node{_skipped(case)}){_by_person(case, attempt)}."
    )
    status = st.with_refusal(status, case.now, None)
    status = st.enter(status, Phase.REPAIRING, bounded(sentence), case.now)
    return case.decision(
        "PlanRepair", status, because=attempt.step, evicting=Evicting.LOOK, wake_at=case.now
    )


def _by_person(case: Case, attempt: RepairAttempt) -> str:
    """Who let the step go, and why; "" where the policy alone did. Last in its sentence: what has
    no room there is their words.
    """
    asked = word_for(case.session, case.causes, attempt.step)
    return f"; {let_go_by(asked)}" if asked is not None else ""


def _skipped(case: Case) -> str:
    """What history made the ladder begin above."""
    skipped = [step for step, _ in led_to(case).passed if step in case.learnt.failed]
    return f"; {', '.join(skipped)} did not hold before" if skipped else ""
