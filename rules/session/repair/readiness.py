"""The next repair step of a drained node: begin it, or report what it waits for.

Everything that may forbid a step is checked before it is recorded and again before it is
requested. The entry is written before the request.
"""

from dataclasses import dataclass
from typing import Final

from msgspec import structs

from rules.api import messages, timestamps
from rules.api.quarantine import Phase, QuarantineStatus, RepairAttempt, RepairState
from rules.api.writes import Decision, Evicting
from rules.catalog import explanations
from rules.catalog.reason import DrainScope
from rules.catalog.why_not import Refusal, WhyNot
from rules.repair import adapter
from rules.repair.ladder import ENDS_BOOT, LadderPosition, Rung, Step
from rules.session import drain_scope, external, halts
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.repair import endings, evidence, ladder, request
from rules.session.repair.request import Call

LISTS_FRESH_S: Final = 30.0
"""Maximum age of the pod lists that a step or a test relies on."""
OWN_ENDS_S: Final = 120.0
"""How long the pod of a finished step or test may take to terminate before it counts as a blocker:
twice the grace periods of kubelet and Job controller."""


def blocking_pods(case: Case, *, lost: bool = False) -> Refusal | None:
    """Return the refusal for listed pods that have to leave the node first; None without.

    Pods of gpuward's own Jobs terminate by themselves (`is_certain` waits for them). On a `lost`
    node, with a silent kubelet after a failed step, their end could never be observed.
    """
    plan = case.seen.plan
    if plan is None:
        return None
    ending = frozenset(plan.own_jobs if lost or _ended_lately(case) else ())
    using = [name for name in plan.using_gpus if name not in ending]
    if using:
        why = f"{', '.join(using[:3])} still uses one of its GPUs"
        return Refusal(reason=WhyNot.POD_USES_GPU, why=why)
    if plan.arrived:
        why = f"{', '.join(plan.arrived[:3])} bypassed the scheduler"
        return Refusal(reason=WhyNot.POD_ARRIVED, why=why)
    return None


def is_certain(case: Case, *, lost: bool = False) -> bool:
    """Return whether a fresh list shows no such pod, and none was known for `drain.settle`."""
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
    """Return what has to be observed before the node counts as empty, as a clause."""
    own = case.seen.plan.own_jobs if case.seen.plan is not None else ()
    return f"{own[0]} has ended" if own else "a new pod list shows it empty"


def _ended_lately(case: Case) -> bool:
    repaired = [attempt.ended_at for attempt in case.status.repair]
    tested = [test.ended_at for test in case.status.validation]
    last = max((timestamps.parse_time(at) or 0.0 for at in (*repaired, *tested)), default=0.0)
    return case.now - last <= OWN_ENDS_S


EVIDENCE_CHECK_S: Final = 5.0
"""How often a step that waits for evidence checks for it."""
_HARSH: Final = frozenset({Step.POWER_CYCLE, Step.REPLACE_NODE})
"""Steps that are allowed for a node that did not return from an earlier step."""
NOT_DRAINED: Final = frozenset({Phase.MARKED, Phase.DRAINING})
"""Phases in which a session waits for its turn to drain; its permit is about the drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a drained node waits for if no step can begin now."""

    then: str
    """What is next, as a clause."""
    refusal: Refusal | None = None
    """What blocks it; None if nothing does."""
    proposes: str = ""
    """The step that an operator has to approve; "" if none."""
    lists_pods: bool = False
    """Pods are listed until it is certain that none uses a GPU on the node."""
    hand_over: bool = False
    wake_at: float | None = None
    until: float | None = None
    """When the step begins at the latest; None if it waits for something without a time limit."""
    widens_to: DrainScope | None = None
    """The step can begin once these pods have left, too."""


def not_now(
    case: Case, step: Step, halt: Refusal | None, next_clause: str, joint: str = ", once"
) -> Outlook | None:
    """Return what forbids the step now; None if nothing does.

    `joint` links a condition to `next_clause`: `ResetGPU by X is next, once ...`, `ResetGPU waits
    until ...`.
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
    # A node that did not return from an earlier step cannot be checked. A step that was never
    # requested does not count.
    lost = step in _HARSH and any(attempt.in_vain for attempt in case.status.repair)
    if halts.unreachable(case) and not lost:
        return no(WhyNot.NODE_UNREACHABLE, "the kubelet stopped posting node status")
    # A node without an agent can prove a new boot or a new Node, and no reset.
    without_agent = case.without_agent and step in ENDS_BOOT
    if case.seen.stale and not lost and not without_agent:
        return no(WhyNot.HEALTH_STATUS_STALE, case.seen.stale)
    silent = lost and halts.unreachable(case)
    if (pods := blocking_pods(case, lost=silent)) is not None:
        return waits(pods)
    permit = case.seen.permit
    if permit.refusal is not None:
        return waits(permit.refusal, hand_over=permit.hand_over)
    if not permit.repair:
        # The fleet rules assess the session in a moment and trigger a reconcile.
        return Outlook(then=next_clause, wake_at=case.now + 1.0)
    if not is_certain(case, lost=silent):
        then = f"{next_clause}{joint} {emptied_clause(case)}"
        return Outlook(then=then, lists_pods=True, wake_at=case.now + LISTS_FRESH_S)
    if (until := evidence.awaited_until(case, step)) is not None:
        then = f"{next_clause}{joint} its agent has saved evidence"
        wake_at = min(until, case.now + EVIDENCE_CHECK_S)
        return Outlook(then=then, lists_pods=True, wake_at=wake_at, until=until)
    return None


def object_waits(case: Case, call: Call, next_clause: str) -> Outlook | None:
    """Return the object's objection to the step; None without one."""
    why = call.assessment.waits
    if not why:
        return None
    again_at = case.now + call.again_s
    return Outlook(then=f"{next_clause}: {why}", refusal=refused(why), wake_at=again_at)


def refused(why: str) -> Refusal:
    """Return the refusal for an objection of the target of a request."""
    return Refusal(reason=WhyNot.REPAIR_REFUSED, why=why, permanent=True)


def begin_step(
    case: Case, status: QuarantineStatus, halt: Refusal | None
) -> Decision | Outlook | None:
    """Return the decision that begins the next step, or why it waits; None if none is wanted."""
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
    drained = drain_scope.recorded(case.status.drain)
    needed = drain_scope.needed_by(rung.step, case.policy.repair.action(rung.adapter, rung.step))
    if drained is not None and needed > drained.scope:
        return Outlook(then=next_clause, widens_to=needed)
    return _begun(case, status, rung, next_clause, waits)


def awaited(case: Case) -> str:
    """Return what a drained node waits for: the next step of the ladder, else the repair that its
    causes recommend, as a clause.
    """
    if is_wanted(case) and case.drains:
        return _leads(case, ladder_position(case))
    asked = ladder.asked_for(case.session, case.causes, case.seen.health, case.policy)
    if asked and explanations.NO_REPAIR.issuperset(asked):
        return "waiting for its causes to close, none of them requires a repair"
    by_hand = messages.name_list(
        (explanations.repair(one) for one in asked if one and one not in explanations.NO_REPAIR),
        limit=2,
    )
    how = f" ({by_hand})" if by_hand else ""
    return f"waiting for the repair{how}, then for its causes to close"


def _leads(case: Case, position: LadderPosition) -> str:
    rung = position.rung
    if rung is None:
        return f"no repair step is left ({position.clause}), {_who_decides(case)}"
    if ladder.approved(case.session, case.causes, rung, case.policy):
        return f"{rung.step} by {rung.adapter} is next"
    return (
        f"{rung.step} by {rung.adapter} is proposed (attempt {rung.attempt} on this node), "
        f"approve it with kubectl gpuward approve {case.node.name}"
    )


def _who_decides(case: Case) -> str:
    """Return that an operator has to act, and what else would close purely external causes."""
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
    # Before pods are listed: an objection of the object may last for days.
    call = request.call_for(case, attempt)
    if call.needs is not None:
        return endings.reading(call.needs)
    return object_waits(case, call, next_clause) or waits or _planned(case, status, attempt, call)


def would_repair(case: Case) -> str:
    """Return the clause about the next step for the Shadow message; "" if none is wanted."""
    if not is_wanted(case):
        return ""
    position = ladder_position(case)
    if position.rung is None:
        return f", then wait for an operator ({position.clause})"
    return f", then request {position.rung.step} from {position.rung.adapter}"


def is_wanted(case: Case) -> bool:
    """Return whether the ladder applies: not to manual causes without an approved step."""
    off = case.policy.repair.mode == "Off"
    by_operator = bool(ladder.chosen(case.session, case.causes))
    return not off and (by_operator or any(cause.source != "Human" for cause in case.causes))


def ladder_position(case: Case) -> LadderPosition:
    """Return the current position on the ladder."""
    return ladder.next_step(
        case.session,
        case.seen.siblings,
        case.causes,
        case.seen.health,
        case.policy,
        case.now,
    )


def _planned(case: Case, status: QuarantineStatus, attempt: RepairAttempt, call: Call) -> Decision:
    """Return the decision that records the step and its target; the request follows later."""
    attempt = structs.replace(attempt, target=call.target)
    status = touched(status, repair=(*endings.with_room(status.repair), attempt))
    status = evidence.noted_without(case, status, Step(attempt.step))
    by_operator = ""
    if (asked := ladder.approval_for(case.session, case.causes, attempt.step)) is not None:
        # Last, so that only the operator's reason may be cut.
        by_operator = f" {messages.sentence(messages.approved_by(asked))}"
        # The spec keeps the approval of one step only; the timeline keeps each.
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
        "PlanRepair",
        status,
        because=attempt.step,
        evicting=Evicting.CONFIRM_IDLE,
        wake_at=case.now,
    )
