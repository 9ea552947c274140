"""The test under load that runs after all causes closed and before `healthyFor`.

The rule reads only `status.validation[]` and the Job, so that it continues after a restart, a
crash between two writes and a change of leader. The entry is written before the Job is created.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from rules.api import messages, timestamps
from rules.api.quarantine import (
    Phase,
    QuarantineStatus,
    ValidationAttempt,
    ValidationState,
)
from rules.api.repair_writes import CreateTestJob, DeleteTestJob
from rules.api.writes import Decision, Evicting
from rules.catalog import reason
from rules.catalog.reason import Level
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy.policy import Validation
from rules.session import drain_scope, halts
from rules.session import status as st
from rules.session.case import Case, is_fresh, touched
from rules.session.repair import readiness
from rules.session.validation import jobs
from rules.session.validation.result import (
    REASON,
    Assessment,
    Check,
    Result,
    by_severity,
    changed,
    failed_cause,
    is_done,
    is_ours,
    kept_check,
    latest,
    outcome_of,
    under_way,
    unknown_in_a_row,
)

EVIDENCE_UNJUDGED: Final = "unjudgedBoot"
"""Evidence key: the node rebooted and there is no health status of that boot yet, so it is unknown
which causes closed.
"""
TRIES: Final = 2
"""How often a test may end without a result before operator action is needed."""
SLACK_S: Final = 60.0
"""Time that Job controller and kubelet need to report a Job that passed its deadline."""
CHECK_S: Final = 5.0
"""How often a running Job is read; a new one is read more often."""
_KEPT: Final = 16
"""Tests recorded in the session; the CRD allows as many."""
_CHECKS: Final = 8
_STATES: Final = {
    Assessment.PASS: ValidationState.PASSED,
    Assessment.DEGRADED: ValidationState.FAILED,
    Assessment.FAIL: ValidationState.FAILED,
    Assessment.UNKNOWN: ValidationState.UNKNOWN,
}


def tested_first(
    case: Case, status: QuarantineStatus, halt: Refusal | None, no_data: str
) -> Decision | None:
    """Return the decision about the test before the release; None if none is required or it
    passed.

    `no_data`: why the health of the node is unknown; then no test begins.
    """
    lost = st.entries_lost(case.seen.not_kept, "validation")
    if (test := under_way(status)) is not None:
        if lost is not None and test.state != ValidationState.ASKED:
            # The API server dropped a part of the entry, so the Job was not created.
            others = tuple(one for one in status.validation if one is not test)
            return _held(case, touched(status, validation=others), lost)
        return _follow(case, status, test, _not_now(case, halt, no_data))
    choice = wanted(case)
    part = drain_scope.repaired_part(case.session, status.drain, case.seen.health)
    if choice is None or is_done(status, case.node.boot_id, in_part=part is not None):
        return None
    if failed_cause(case.session) is not None:
        if reason.level_rank(case.policy.level_of(REASON, Level.DRAIN)) <= Level.REPORT.rank:
            return None
        why = "its last test failed"
        return _held(
            case, status, Refusal(reason=WhyNot.VALIDATION_FAILED, why=why, permanent=True)
        )
    if unknown_in_a_row(status) >= TRIES:
        return _held(case, status, _given_up(status))
    if (refusal := _not_now(case, halt, no_data)) is not None:
        return _held(case, status, refusal)
    if lost is not None:
        return _held(case, status, lost)
    if not readiness.is_certain(case):
        return _held(case, status, None)
    return _planned(case, status, choice)


def wanted(case: Case) -> Validation | None:
    """Return the test of the node; None without one in the policy, and while pods still run on its
    GPUs: the node was never drained, or only single devices are isolated.
    """
    status = case.session.status
    drained = bool(status.repair) or bool(st.times(status, Phase.QUARANTINED))
    tests = case.policy.validate
    return tests if tests.tests and drained and not (case.shadow or status.devices) else None


def closed_test(case: Case, status: QuarantineStatus, why: str) -> QuarantineStatus:
    """Return `status` with the running test ended: its result is no longer needed."""
    test = under_way(status)
    if test is None:
        return status
    return changed(status, _over(case, test, ValidationState.WITHDRAWN, why))


def off_first(case: Case) -> tuple[tuple[DeleteTestJob, ...], tuple[DeleteTestJob, ...]]:
    """Return the deletions of the running test's Job: before its entry ends, or (second) after.

    A Job that outlives its entry would use the GPUs together with the next pods. After the Job's
    own deadline the deletion may fail without blocking anything.
    """
    test = under_way(case.session.status)
    if test is None or case.shadow:
        return (), ()
    uid, seen = test.job_uid, case.seen.job
    if not uid and seen is not None and seen.name == test.object and seen.job is not None:
        uid = seen.job.metadata.uid if is_ours(seen.job, case.session.metadata.uid) else ""
    if not uid:
        # It ends by its own deadline: a Job is never deleted by name alone.
        return (), ()
    away = DeleteTestJob(
        node=case.seen.name, namespace=case.seen.own_namespace, name=test.object, uid=uid
    )
    started = timestamps.parse_time(test.started_at) or case.now
    late = case.seen.node is None or case.now - started > case.policy.validate.timeout_s + SLACK_S
    return ((), (away,)) if late else ((away,), ())


def _not_now(case: Case, halt: Refusal | None, no_data: str) -> Refusal | None:
    """Return what forbids to begin a test now; None if nothing does."""
    if halt is not None:
        return halt
    if (held := halts.hold_of(case)) is not None:
        return held
    if no_data:
        return Refusal(reason=WhyNot.HEALTH_STATUS_STALE, why=no_data)
    return readiness.blocking_pods(case)


def _given_up(status: QuarantineStatus) -> Refusal:
    last = latest(status)
    detail = f" (last time: {last.message[:300]})" if last is not None else ""
    why = (
        f"its test under load could not run {TRIES} times{detail}, fix that and reboot the node, "
        "or release it untested"
    )
    return Refusal(reason=WhyNot.VALIDATION_UNKNOWN, why=why, permanent=True)


def _held(case: Case, status: QuarantineStatus, refusal: Refusal | None) -> Decision:
    """Return the decision to wait before the test; without a refusal for pod lists that show the
    node empty.
    """
    why = (
        refusal.why
        if refusal is not None
        else f"it is tested once {readiness.emptied_clause(case)}"
    )
    status = st.with_refusal(status, case.now, refusal, f"Not tested: {why}.")
    return _reported(case, status, "HoldTest", f"not released: {why}", refusal)


def _reported(
    case: Case,
    status: QuarantineStatus,
    step: str,
    clause: str,
    refusal: Refusal | None = None,
    wake_s: float = readiness.LISTS_FRESH_S,
    until: float | None = None,
) -> Decision:
    settled = known_clause(case, status)
    sentence = messages.bounded(f"{settled[0].upper()}{settled[1:]}; {clause}.")
    status = st.enter(status, Phase.VALIDATING, sentence, case.now, until=until)
    # Uncached lists are expensive for the API server: they are used only if nothing else is
    # missing.
    lists_pods = refusal is None and under_way(status) is None
    return case.decision(
        step,
        status,
        because=clause,
        blocked_by=refusal.reason if refusal is not None else None,
        evicting=Evicting.CONFIRM_IDLE if lists_pods else Evicting.WATCH,
        wake_at=case.now + wake_s,
    )


def _planned(case: Case, status: QuarantineStatus, choice: Validation) -> Decision:
    """Return the decision that records the test; its Job follows later."""
    last = latest(status)
    number = last.attempt + 1 if last is not None else 1
    test = ValidationAttempt(
        object=jobs.name_of_test(case.session.name, number),
        attempt=number,
        provider=choice.provider,
        template=choice.template,
        started_at=timestamps.format_time(case.now),
        boot_id=case.node.boot_id,
        state=ValidationState.PLANNED,
    )
    status = touched(status, validation=(*status.validation, test)[-_KEPT:])
    status = st.with_refusal(status, case.now, None)
    clause = f"its GPUs will be tested under load by {choice.provider} ({choice.template})"
    return _reported(case, status, "PlanTest", clause, wake_s=0.0)


def _follow(
    case: Case, status: QuarantineStatus, test: ValidationAttempt, refusal: Refusal | None
) -> Decision:
    """Return the decision about a recorded test: create its Job, read it, or end it."""
    started = timestamps.parse_time(test.started_at) or case.now
    choice = wanted(case)
    timeout_s = case.policy.validate.timeout_s
    late = case.now - started > timeout_s + SLACK_S
    rebooted = bool(case.node.boot_id) and case.node.boot_id != test.boot_id
    seen = case.seen.job
    if seen is None or seen.name != test.object or seen.unread:
        why = seen.unread if seen is not None and seen.unread else "its Job was not read yet"
        if late:
            return _ended(case, status, test, _nothing(f"it sent no result in time, {why}"))
        clause = f"the state of its test is unknown, {why}"
        return _reported(case, status, "ReadTest", clause, wake_s=1.0)
    if test.state == ValidationState.PLANNED and seen.job is None:
        if rebooted or choice is None or choice.template != test.template:
            why = "the node rebooted" if rebooted else "the policy now names another test"
            return _withdrawn(case, status, test, why)
        if refusal is not None:
            return _withdrawn(case, status, test, refusal.why)
        return _make(case, status, test, timeout_s, late=late)
    if rebooted:
        return _ended(case, status, test, _nothing("the node rebooted during the test"))
    outcome = outcome_of(
        seen, node=case.node.name, made_for=case.session.metadata.uid, job_uid=test.job_uid
    )
    if outcome.result is not None:
        return _ended(case, status, test, outcome.result)
    if late:
        why = f"it did not finish within {timeout_s / 60:.0f} min ({outcome.clause})"
        return _ended(case, status, test, _nothing(why))
    if (test.state, test.job_uid) != (ValidationState.ASKED, outcome.job_uid):
        known = msgspec.structs.replace(test, state=ValidationState.ASKED, job_uid=outcome.job_uid)
        status = changed(status, known)
    clause = f"{test.provider} tests its GPUs under load (Job {test.object}, {outcome.clause})"
    # A Job that cannot run ends at once, so a new one is read sooner.
    wake_s = min(CHECK_S, max(1.0, case.now - started))
    until = started + timeout_s
    return _reported(case, status, "AwaitTest", clause, wake_s=wake_s, until=until)


def _make(
    case: Case, status: QuarantineStatus, test: ValidationAttempt, timeout_s: float, *, late: bool
) -> Decision:
    if not is_fresh(case.node):
        return Decision(step="ReadNode", because="a test is due", needs_fresh_node=True)
    template = case.seen.job.template if case.seen.job is not None else None
    write = None
    if template is not None:
        part = drain_scope.repaired_part(case.session, status.drain, case.seen.health)
        if (chosen := jobs.limited_to(template, part)) is None:
            return _skipped(case, status, test)
        body = jobs.job_of(
            chosen,
            name=test.object,
            node=case.node.name,
            session=case.session.name,
            session_uid=case.session.metadata.uid,
            timeout_s=timeout_s,
        )
        write = CreateTestJob(
            node=case.node.name,
            node_uid=case.node.uid,
            session=case.session.name,
            namespace=case.seen.own_namespace,
            name=test.object,
            body=body,
        )
    missing = f"there is no PodTemplate {test.template} in {case.seen.own_namespace}"
    refused = case.refusal(write) if write is not None else None
    if write is None or refused is not None:
        why = refused.why if refused is not None else missing
        if late:
            return _ended(case, status, test, _nothing(why))
        kept = refused or Refusal(reason=WhyNot.VALIDATION_UNKNOWN, why=why, permanent=True)
        status = st.with_refusal(status, case.now, kept, f"Not tested: {why}.")
        return _reported(case, status, "HoldTest", f"not released: {why}", kept, wake_s=CHECK_S)
    status = changed(status, msgspec.structs.replace(test, state=ValidationState.ASKED))
    message = f"Job {test.object} tests its GPUs under load"
    status = st.noted(status, "TestAsked", message, case.now)
    status = st.with_message(status, f"{message}; gpuward waits for its result.")
    return case.decision(
        "MakeTest",
        status,
        because=test.provider,
        before=(write,),
        evicting=Evicting.WATCH,
        wake_at=case.now + 1.0,
    )


def _withdrawn(
    case: Case, status: QuarantineStatus, test: ValidationAttempt, why: str
) -> Decision:
    """Return the decision that withdraws a test without a Job; it does not count as a try."""
    status = changed(status, _over(case, test, ValidationState.WITHDRAWN, why))
    return _reported(case, status, "WithdrawTest", f"its test waits: {why}", wake_s=0.0)


def _skipped(case: Case, status: QuarantineStatus, test: ValidationAttempt) -> Decision:
    """Return the decision that records why the test cannot run next to other pods."""
    why = f"pods use its other GPUs, and PodTemplate {test.template} cannot test single GPUs"
    status = changed(status, _over(case, test, ValidationState.SKIPPED, why))
    status = st.noted(status, "TestSkipped", f"not tested under load: {why}", case.now)
    return _reported(case, status, "SkipTest", f"not tested under load: {why}", wake_s=0.0)


def _nothing(why: str) -> Result:
    return Result(assessment=Assessment.UNKNOWN, message=why)


def _over(
    case: Case,
    test: ValidationAttempt,
    state: ValidationState,
    message: str,
    assessment: str = "",
    checks: Iterable[Check] = (),
) -> ValidationAttempt:
    return msgspec.structs.replace(
        test,
        state=state,
        ended_at=timestamps.format_time(case.now),
        result=assessment,
        message=messages.bounded(message)[:512],
        checks=tuple(kept_check(check) for check in checks),
    )


def _ended(
    case: Case, status: QuarantineStatus, test: ValidationAttempt, result: Result
) -> Decision:
    """Return the decision that records the result of the test."""
    state = _STATES[result.assessment]
    checks = by_severity(result.checks)[:_CHECKS]
    made = "1 check" if len(result.checks) == 1 else f"{len(result.checks)} checks"
    message = result.message or f"{made}, result {result.assessment}"
    ended = _over(case, test, state, message, str(result.assessment), checks)
    status = st.with_refusal(changed(status, ended), case.now, None)
    text = f"Test {test.attempt} by {test.provider}: {result.assessment}, {ended.message}"
    status = st.noted(status, f"Test{state}", text, case.now)
    status = st.with_message(status, messages.bounded(text))
    # An ended Job is kept for inspection; one that may still run is deleted.
    running = result.assessment is Assessment.UNKNOWN
    passed = result.assessment is Assessment.PASS
    report = jobs.reported_on(
        case.node, test.object, passed=passed, message=ended.message, now=case.now
    )
    before, after = off_first(case) if running else ((), (report,))
    return case.decision(
        f"Test{state}",
        status,
        because=ended.message,
        before=before,
        after=after,
        evicting=Evicting.WATCH,
        wake_at=case.now,
    )


def is_unjudged(case: Case, status: QuarantineStatus) -> bool:
    """Return whether the state of its causes is unknown since a reboot."""
    return bool(case.no_data and case.causes and status.evidence.get(EVIDENCE_UNJUDGED))


def known_clause(case: Case, status: QuarantineStatus) -> str:
    """Return what is known of its causes, as a clause."""
    if is_unjudged(case, status):
        return (
            "the node rebooted, and its causes are unknown until a health status of the new boot"
        )
    return messages.closed_clause(case.reported)
