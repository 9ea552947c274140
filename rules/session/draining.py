"""Drain a node in its session: begin, follow the drain plan, finish; dry run in Shadow."""

from dataclasses import replace
from typing import Final

import msgspec

from rules.api import messages, quarantine, timestamps
from rules.api.quarantine import BlockedBy, DrainStatus, Phase, Pods, QuarantineStatus
from rules.api.writes import Decision, Evicting
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import drain_plan
from rules.drain.drain_plan import DrainPlan
from rules.session import causes, drain_scope, halts
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.drain_scope import ScopeChoice
from rules.session.repair import readiness

_MAX_GANGS: Final = 16
_TIME_OVER: Final = "the drain timeout has passed"


def begin_drain(case: Case, status: QuarantineStatus) -> Decision:
    """Return the decision that starts evictions and the drain timeout.

    The status of a first drain names its pods, so they are listed before. With a notice, the plan
    needs the recorded start.
    """
    plan = case.seen.plan
    lists_first = status.drain is None and not case.policy.drain.notice_s
    if lists_first and plan is None:
        return case.decision("ListPods", status, because=case.severity, evicting=Evicting.GO)
    status = st.with_refusal(status, case.now, None)
    before = status.drain or DrainStatus()
    chosen = scope_of(case)
    drain = DrainStatus(
        started_at=timestamps.format_time(case.now),
        evicted=before.evicted,
        recent=before.recent,
        scope=chosen.scope,
        scope_reason=chosen.why,
        notice_seconds=round(case.policy.drain.notice_s),
    )
    evidence = dict(status.evidence)
    if case.seen.gangs:
        gangs = case.seen.gangs[:_MAX_GANGS]
        evidence[causes.EVIDENCE_GANGS] = [gang.key for gang in gangs]
        if kept := [f"{gang.key}: {gang.kept}" for gang in gangs if gang.kept]:
            evidence[causes.EVIDENCE_GANGS_KEPT] = kept
    status = touched(status, drain=drain, evidence=evidence)
    if lists_first and plan is not None:
        drain = plan.status(drain)
        return _blocked_or_going(case, touched(status, drain=drain), drain, plan)
    sentence = messages.draining(drain, "")
    status = st.enter(status, Phase.DRAINING, sentence, case.now)
    return case.decision(
        "Drain", status, because=case.severity, evicting=Evicting.GO, wake_at=case.now
    )


def scope_of(case: Case) -> ScopeChoice:
    """Return which pods the session evicts, and why if the policy asks for fewer."""
    return drain_scope.in_effect(case.session, case.causes, case.seen.health, case.policy)


def probe(case: Case, status: QuarantineStatus) -> tuple[QuarantineStatus, Evicting]:
    """Return the Shadow status with `drain` filled once from dry-run evictions."""
    if status.drain is not None:
        return status, Evicting.NO
    plan = case.seen.plan
    if plan is None or not plan.probed:
        if plan is not None:
            # A drain would fail for the same reason.
            clause = plan.unlisted.why if plan.unlisted is not None else ""
            status = st.with_refusal(status, case.now, plan.unlisted, st.sentence(clause))
        return status, Evicting.PROBE
    status = st.with_refusal(status, case.now, None)
    chosen = scope_of(case)
    drain = plan.status(DrainStatus(scope=chosen.scope, scope_reason=chosen.why))
    return touched(status, drain=drain), Evicting.NO


def draining(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision:
    """Return the decision that follows the latest plan."""
    plan = case.seen.plan
    drain = status.drain or DrainStatus(started_at=timestamps.format_time(case.now))
    chosen, before = scope_of(case), drain_scope.recorded(drain)
    if before is None or chosen.scope > before.scope:
        drain = msgspec.structs.replace(drain, scope=chosen.scope, scope_reason=chosen.why)
    if plan is not None:
        status = _with_forced(status, plan, case.now)
    if halt is None and halts.unreachable(case):
        why = "the kubelet stopped posting node status, so evicted pods would not terminate"
        halt = Refusal(reason=WhyNot.NODE_UNREACHABLE, why=why)
    if halt is not None:
        # Earlier blockers are not checked during the halt and may have changed.
        drain = msgspec.structs.replace(drain, blocked=())
        status = touched(status, drain=drain)
        clause = f"evictions are stopped: {halt.why}"
        needed = st.condition(status, "NeedsHuman")
        status = st.with_refusal(status, case.now, halt, st.sentence(clause))
        if needed is not None and needed.status == "True" and not halt.permanent:
            # The operator can still act on it, and nothing else reports it.
            status = st.with_condition(
                status, "NeedsHuman", case.now, needed.reason, needed.message
            )
        sentence = messages.draining(drain, clause, halted=True)
        status = st.enter(status, Phase.DRAINING, sentence, case.now)
        return case.decision("Halted", status, because=halt.why, blocked_by=halt.reason)
    if plan is None:
        return case.decision("Drain", status, because=case.severity, evicting=Evicting.GO)
    if plan.drained:
        return _drained(case, status, drain)
    return _blocked_or_going(case, status, drain, plan)


def _with_forced(status: QuarantineStatus, plan: DrainPlan, now: float) -> QuarantineStatus:
    """Return the status with a timeline entry for each pod that was deleted despite its PDB."""
    known = {entry.subject for entry in status.timeline if entry.step == "Forced"}
    for pod in plan.memory.forced:
        if pod not in known:
            message = f"{pod[:200]} deleted by policy (drain.onTimeout: Force)"
            status = st.noted(status, "Forced", message, now, subject=pod)
    return status


def _drained(case: Case, status: QuarantineStatus, drain: DrainStatus) -> Decision:
    status = st.with_refusal(status, case.now, None)
    drain = msgspec.structs.replace(drain, waiting=Pods(), blocked=())
    sentence = messages.drained(case.causes, drain, readiness.awaited(case))
    status = st.enter(touched(status, drain=drain), Phase.QUARANTINED, sentence, case.now)
    return case.decision(
        "Drained", status, because="a list without pods to evict", evicting=Evicting.WATCH
    )


def _blocked_or_going(
    case: Case, status: QuarantineStatus, drain: DrainStatus, plan: DrainPlan
) -> Decision:
    late = drain_plan.overdue(
        drain,
        case.severity,
        case.policy,
        case.now,
        case.seen.last_active_at,
    )
    refusal = _blocker(plan, late, case.policy.drain.on_timeout)
    stored = case.session.status
    if _awaits_answer(stored, plan, refusal):
        # A new leader has not requested the deletion yet: the earlier answer stays until then.
        before = stored.drain or DrainStatus()
        drain = msgspec.structs.replace(
            drain, blocked=before.blocked, force_refused=before.force_refused
        )
        return case.decision(
            "Drain",
            touched(status, drain=drain),
            because=case.severity,
            blocked_by=WhyNot(st.blocked_by(stored)),
            evicting=Evicting.GO,
            wake_at=plan.wake_at,
        )
    clause = refusal.why if refusal is not None else ""
    # Pods without a blocker terminate by themselves after the timeout, too.
    kept = late and refusal is not None and not _goes_by_force(plan)
    human = plan.needs_human or (WhyNot.DRAIN_TIMEOUT if kept else None)
    status = st.with_refusal(status, case.now, refusal, st.sentence(clause), human=human)
    if late and refusal is None and plan.waiting:
        clause = f"{_TIME_OVER}. The pods that are left terminate by themselves"
    until = refusal.until if refusal is not None else plan.leaves_by
    if refusal is None and plan.notice_until is not None:
        clause, until = messages.notice(plan.not_notified), plan.notice_until
    sentence = messages.draining(drain, clause, long_grace=plan.leaves_by is not None)
    status = st.enter(status, Phase.DRAINING, sentence, case.now, until=until)
    return case.decision(
        "Drain",
        status,
        because=case.severity,
        blocked_by=refusal.reason if refusal is not None else None,
        evicting=Evicting.GO,
        wake_at=plan.wake_at,
    )


def _awaits_answer(stored: QuarantineStatus, plan: DrainPlan, refusal: Refusal | None) -> bool:
    """Return whether the only known result of a forced deletion is an earlier leader's refusal."""
    return (
        refusal is not None
        and refusal.reason is WhyNot.DRAIN_TIMEOUT
        and (bool(plan.force) or plan.force_due)
        and stored.drain is not None
        and stored.drain.force_refused == st.blocked_by(stored) != ""
    )


def _blocker(plan: DrainPlan, late: bool, on_timeout: str) -> Refusal | None:
    """Return what blocks the drain, with the timeout if it passed; None if nothing does.

    Pods in their own grace period are not blocked.
    """
    kept = _kept_by(plan)
    if not late:
        return kept
    if plan.force_refused is not None and plan.unlisted is None:
        return _not_forced(plan.blocked, plan.force_refused)
    if kept is not None:
        return replace(kept, why=f"{_TIME_OVER}. {messages.sentence(kept.why)}".removesuffix("."))
    if _goes_by_force(plan):
        why = f"{_TIME_OVER} and drain.onTimeout is {on_timeout}"
        return Refusal(reason=WhyNot.DRAIN_TIMEOUT, why=why)
    return None


def _goes_by_force(plan: DrainPlan) -> bool:
    """Return whether forced deletion is all that is left to do after the drain timeout."""
    by_force = bool(plan.force) or plan.force_due
    return by_force and plan.force_refused is None and _kept_by(plan) is None


def _kept_by(plan: DrainPlan) -> Refusal | None:
    if plan.unlisted is not None:
        return plan.unlisted
    if plan.blocked_reason is not None:
        why = messages.blocked_clause(plan.blocked)
        return Refusal(reason=plan.blocked_reason, why=why, until=plan.blocked_until)
    if plan.stuck:
        pods = messages.pod_list(quarantine.pods_of(plan.stuck))
        why = f"{len(plan.stuck)} stuck terminating ({pods})"
        return Refusal(reason=WhyNot.POD_STUCK, why=why)
    return None


def _not_forced(blocked_by: tuple[BlockedBy, ...], refused: Refusal) -> Refusal:
    """Return the refusal of a forced deletion together with the blocker of the drain."""
    blocked = messages.blocked_clause(blocked_by)
    forced = f"drain.onTimeout is Force, but {refused.why}"
    why = f"{_TIME_OVER}. {forced}. {messages.sentence(refused.remedy)}".removesuffix(".")
    why = f"{blocked}. {messages.sentence(why)}".removesuffix(".") if blocked else why
    return replace(refused, why=why, remedy="")
