"""The next step of a drained node: begun, or what it waits for, or why there is none.

Everything that may forbid a step is read again, before it is recorded and again before it is
asked for. The entry is written before anybody is asked.
"""

from dataclasses import dataclass
from typing import Final

from msgspec import structs

from rules.api import messages, timestamps
from rules.api.quarantine import (
    Phase,
    QuarantineStatus,
    RepairAttempt,
    RepairState,
)
from rules.api.writes import Decision, Evicting
from rules.catalog import explanations
from rules.catalog.why_not import Refusal, WhyNot
from rules.repair import adapter
from rules.repair.ladder import LadderPosition, Rung, Step
from rules.session import external, halts
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.repair import endings, evidence, ladder, request
from rules.session.repair.request import Call

LISTS_FRESH_S: Final = 30.0
"""What ends or disturbs work rests on lists of pods no older than this."""
OWN_ENDS_S: Final = 120.0
"""How long after the end of a step or a test the pod of its Job may take to go before it is called
in the way: the grace of kubelet and Job controller, twice."""


def blocking_pods(case: Case, *, lost: bool = False) -> Refusal | None:
    """Pods that a list shows on the node, and that have to go first.

    Those of our own Jobs end by themselves: what is left of a step or test that ended a moment ago
    is waited for with a close look (`is_certain`), and on a node that is `lost`, that is with a
    silent kubelet after a step in vain, nobody could ever say that they ended.
    """
    plan = case.seen.plan
    if plan is None:
        return None
    ending = frozenset(plan.own_jobs if lost or _ended_lately(case) else ())
    using = [name for name in plan.using_gpus if name not in ending]
    if using:
        why = f"{', '.join(using[:3])} still uses a GPU of it"
        return Refusal(reason=WhyNot.POD_USES_GPU, why=why)
    if plan.arrived:
        why = f"{', '.join(plan.arrived[:3])} came past the scheduler"
        return Refusal(reason=WhyNot.POD_ARRIVED, why=why)
    return None


def is_certain(case: Case, *, lost: bool = False) -> bool:
    """Whether two fresh lists, `drain.settle` apart, show no such pod."""
    plan, settle_s = case.seen.plan, case.policy.drain.settle_s
    if plan is None or plan.listed_at is None:
        return False
    since = plan.others_clear_since if lost else plan.clear_since
    return (
        since is not None
        and plan.listed_at - since >= settle_s
        and case.now - plan.listed_at <= LISTS_FRESH_S
    )


def emptied_clause(case: Case) -> str:
    """What has to be seen before the node is certainly empty."""
    own = case.seen.plan.own_jobs if case.seen.plan is not None else ()
    return f"{own[0]} has ended" if own else "two lists show it empty"


def _ended_lately(case: Case) -> bool:
    repaired = [attempt.ended_at for attempt in case.status.repair]
    tested = [test.ended_at for test in case.status.validation]
    last = max((timestamps.parse_time(at) or 0.0 for at in (*repaired, *tested)), default=0.0)
    return case.now - last <= OWN_ENDS_S


EVIDENCE_CHECK_S: Final = 5.0
"""How often a step that waits for evidence looks again."""
_HARSH: Final = frozenset({Step.POWER_CYCLE, Step.REPLACE_NODE})
"""Steps that a node which did not come back from an earlier one may still get."""
NOT_DRAINED: Final = frozenset({Phase.MARKED, Phase.DRAINING})
"""Phases in which a session wants a turn to drain, so that its permit speaks of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a drained node waits for, when no step can begin now."""

    then: str
    """What is next, a clause for the sentence."""
    refusal: Refusal | None = None
    """What blocks it; None where nothing does."""
    proposes: str = ""
    """The step that an operator has to approve; "" where nobody is asked."""
    lists_pods: bool = False
    """The node is to be listed until it is certain that nothing uses a GPU there."""
    hand_over: bool = False
    wake_at: float | None = None


def not_now(
    case: Case, step: Step, halt: Refusal | None, next_clause: str, joint: str = ", once"
) -> Outlook | None:
    """What forbids the step now, read again; None where nothing does. `joint` is how what comes
    first follows `next_clause`: `ResetGPU by X is next, once ...`, `ResetGPU waits until ...`.
    """

    def waits(refusal: Refusal, *, hand_over: bool = False) -> Outlook:
        then = f"{next_clause}: {refusal.why}"
        return Outlook(then=then, refusal=refusal, hand_over=hand_over)

    def no(reason: WhyNot, why: str) -> Outlook:
        return waits(Refusal(reason=reason, why=why))

    if (held := halt or halts.hold_of(case)) is not None:
        return waits(held)
    if (lost_record := st.entries_lost(case.seen.not_kept, "repair")) is not None:
        return waits(lost_record)
    # A node that did not come back from an earlier step is past being checked. A step that
    # nobody could be asked for says nothing about the node.
    lost = step in _HARSH and any(attempt.in_vain for attempt in case.status.repair)
    if halts.unreachable(case) and not lost:
        return no(WhyNot.NODE_UNREACHABLE, "the node's kubelet is silent")
    if case.seen.stale and not lost:
        return no(WhyNot.HEALTH_STATUS_STALE, case.seen.stale)
    silent = lost and halts.unreachable(case)
    if (pods := blocking_pods(case, lost=silent)) is not None:
        return waits(pods)
    permit = case.seen.permit
    if permit.refusal is not None:
        return waits(permit.refusal, hand_over=permit.hand_over)
    if not permit.repair:
        # The fleet is judged in a moment, and the node woken.
        return Outlook(then=next_clause, wake_at=case.now + 1.0)
    if not is_certain(case, lost=silent):
        then = f"{next_clause}{joint} {emptied_clause(case)}"
        return Outlook(then=then, lists_pods=True, wake_at=case.now + LISTS_FRESH_S)
    if (until := evidence.awaited_until(case, step)) is not None:
        kept = f"its agent has kept evidence, or without at {timestamps.utc(until)}"
        then = f"{next_clause}{joint} {kept}"
        return Outlook(then=then, lists_pods=True, wake_at=min(until, case.now + EVIDENCE_CHECK_S))
    return None


def object_waits(case: Case, call: Call, next_clause: str) -> Outlook | None:
    """What the object says against the step as long as it lasts; None where it says nothing."""
    why = call.verdict.waits
    if not why:
        return None
    again_at = case.now + call.again_s
    return Outlook(then=f"{next_clause}: {why}", refusal=refused(why), wake_at=again_at)


def refused(why: str) -> Refusal:
    """What the other side of a request says against it, as long as it lasts."""
    return Refusal(reason=WhyNot.REPAIR_REFUSED, why=why, permanent=True)


def begin_step(
    case: Case, status: QuarantineStatus, halt: Refusal | None
) -> Decision | Outlook | None:
    """The next step of a drained node: begun, or why not now; None where nobody wants one."""
    if not is_wanted(case) or not case.drains:
        return None
    position = ladder_position(case)
    next_clause = _leads(case, position)
    if position.rung is None:
        refusal = Refusal(reason=WhyNot.NO_STEP_LEFT, why=next_clause, permanent=True)
        return Outlook(then=next_clause, refusal=refusal)
    rung = position.rung
    if not ladder.approved(case.session, case.causes, rung, case.policy):
        refusal = Refusal(reason=WhyNot.APPROVAL, why=next_clause, permanent=True)
        return Outlook(then=next_clause, refusal=refusal, proposes=rung.step)
    waits = not_now(case, rung.step, halt, next_clause)
    if waits is not None and not waits.lists_pods:
        return waits
    return _begun(case, status, rung, next_clause, waits)


def awaited(case: Case) -> str:
    """What a drained node waits for: the step that the ladder leads to, else the repair that its
    causes ask for, whoever does it.
    """
    if is_wanted(case) and case.drains:
        return _leads(case, ladder_position(case))
    asked = ladder.asked_for(case.session, case.causes, case.seen.health, case.policy)
    if asked and explanations.NO_REPAIR.issuperset(asked):
        return "waiting for its causes to close, none of them asks for a repair"
    by_hand = messages.name_list(
        (explanations.repair(one) for one in asked if one and one not in explanations.NO_REPAIR),
        limit=2,
    )
    how = f" ({by_hand})" if by_hand else ""
    return f"waiting for the repair{how}, then the health status decides"


def _leads(case: Case, position: LadderPosition) -> str:
    rung = position.rung
    if rung is None:
        return f"no repair step is left ({position.clause}), {_who_decides(case)}"
    if ladder.approved(case.session, case.causes, rung, case.policy):
        return f"{rung.step} by {rung.adapter} is next"
    return (
        f"{rung.step} by {rung.adapter} is proposed (attempt {rung.attempt} on this node), a "
        f"operator lets it go: kubectl gpuward approve {case.node.name}"
    )


def _who_decides(case: Case) -> str:
    """An operator; where all of it rests on what others say on the Node, they may take it back."""
    ends = external.closing_clauses(case.causes, case.session.spec.node_uid, case.policy)
    if not ends or len(ends) < len(case.causes):
        return "an operator decides"
    return f"an operator decides, or it ends with {messages.name_list(ends, 2)}"


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
        started_at=timestamps.format_time(case.now),
        object=request.request_name(case.session.name, rung.step, rung.attempt),
        before=evidence.before_of(case),
        state=RepairState.PLANNED,
    )
    action = case.policy.repair.action(rung.adapter, rung.step)
    if action is not None:
        record = adapter.on_record(action, request.facts_of(case, attempt))
        attempt = structs.replace(attempt, action=record)
    # Before the pods are listed: what waits for an object may wait for days.
    call = request.call_for(case, attempt)
    if call.needs is not None:
        return endings.reading(call.needs)
    return object_waits(case, call, next_clause) or waits or _planned(case, status, attempt, call)


def would_repair(case: Case) -> str:
    """What Shadow says of the ladder, to go on with its sentence; "" where nobody wants it."""
    if not is_wanted(case):
        return ""
    position = ladder_position(case)
    if position.rung is None:
        return f", then wait for an operator ({position.clause})"
    return f", then request {position.rung.step} from {position.rung.adapter}"


def is_wanted(case: Case) -> bool:
    """Whether there is anything for a ladder: what people ask for, people end, or repair."""
    off = case.policy.repair.mode == "Off"
    by_operator = bool(ladder.chosen(case.session, case.causes))
    return not off and (by_operator or any(cause.source != "Human" for cause in case.causes))


def ladder_position(case: Case) -> LadderPosition:
    """Where the ladder leads now."""
    return ladder.next_step(
        case.session,
        case.seen.siblings,
        case.causes,
        case.seen.health,
        case.policy,
        case.now,
    )


def _planned(case: Case, status: QuarantineStatus, attempt: RepairAttempt, call: Call) -> Decision:
    """The step on record with what it is asked through; the call follows only after that."""
    attempt = structs.replace(attempt, target=call.target)
    status = touched(status, repair=(*endings.with_room(status.repair), attempt))
    status = evidence.noted_without(case, status, Step(attempt.step))
    by_operator = ""
    if (asked := ladder.approval_for(case.session, case.causes, attempt.step)) is not None:
        # Last, so that only the operator's reason may be cut.
        by_operator = f" {messages.sentence(messages.approved_by(asked))}"
        # The session keeps the word on one step only; its timeline that on each.
        at = ladder.requested_at(asked.at, case.session, case.now)
        when = case.now if at is None else at
        by = asked.by or st.BY_OPERATOR
        status = st.noted(status, st.APPROVED, asked.reason, when, by, subject=attempt.step)
    status = st.with_condition(status, st.PROPOSED, case.now)
    sentence = (
        f"{attempt.step} is requested from {attempt.adapter} for "
        f"{messages.causes_clause(case.causes)} "
        f"(attempt {attempt.attempt} on this node).{by_operator}"
    )
    status = st.with_refusal(status, case.now, None)
    status = st.enter(status, Phase.REPAIRING, messages.bounded(sentence), case.now)
    return case.decision(
        "PlanRepair", status, because=attempt.step, evicting=Evicting.LOOK, wake_at=case.now
    )
