"""Phase Validating: all causes closed; release after `healthyFor` with fresh health statuses.

`status.evidence` records since when healthy time counts and why. `end` ends a session in any
phase: it removes the Job of a test first, then writes the status, and removes the taint and cordon
last, so that a crash between the writes resumes here. The orphan rule of `rules.session.absent`
finds an ended session with a taint on its node.
"""

from dataclasses import replace
from typing import Final

from rules.api import messages, quarantine_taint, timestamps
from rules.api.nodes import NodeView
from rules.api.quarantine import Phase, QuarantineStatus
from rules.api.quarantine_taint import QuarantineState
from rules.api.writes import Decision, Write
from rules.catalog import reason
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import drain_plan
from rules.policy import policy
from rules.session import causes, halts, isolation, override
from rules.session import status as st
from rules.session.case import Case, remove_taint, touched
from rules.session.repair import endings
from rules.session.validation import load_test, result


def begin_validation(case: Case, status: QuarantineStatus) -> Decision:
    """Return the decision that enters Validating and so stops evictions."""
    status = st.with_refusal(status, case.now, None)
    status = _kept(
        status,
        dict.fromkeys((EVIDENCE_RESTARTED, load_test.EVIDENCE_UNJUDGED, EVIDENCE_UNOBSERVED)),
    )
    until = case.now + case.policy.release.healthy_for_s
    test = load_test.wanted(case)
    tests = test is not None and result.passed_at(status, case.node.boot_id) is None
    why = f"its GPUs are tested under load by {test.provider} first" if test and tests else ""
    sentence = messages.validating(why, case.reported)
    status = st.enter(status, Phase.VALIDATING, sentence, case.now, until=None if why else until)
    return case.decision(
        "Validate", status, because=messages.closed_clause(case.reported), wake_at=until
    )


def validating(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision:
    """Return the decision of phase Validating: test, wait, release, or go back for a cause."""
    # Manual and external causes need no health status.
    if case.causes and (not case.seen.stale or causes.needs_no_health_status(case.causes)):
        return _back(case, status)
    no_data = case.no_data or not_ready(case.node)
    status = status if case.no_data else _kept(status, {load_test.EVIDENCE_UNJUDGED: None})
    if (test := load_test.tested_first(case, status, halt, no_data)) is not None:
        return test
    refusal = _no_data_refusal(halt, no_data) if no_data else None
    # Time during which gpuward did not run is no healthy time.
    had_no_data = _was_unknown(case.status) or drain_plan.was_away(
        case.now, case.seen.last_active_at
    )
    if had_no_data and not no_data:
        # Only observed healthy time counts; it restarts with new data.
        status = _restarted(status, case.status, case.now)
    began = case.now if had_no_data and not no_data else case.phase_since
    tested_at = result.passed_at(status, case.node.boot_id)
    began = max(began, tested_at or began)
    until = began + case.policy.release.healthy_for_s
    status = _kept(status, {EVIDENCE_UNOBSERVED: None if refusal is None else refusal.why[:200]})
    if not no_data:
        refusal = _forbidden(case, status, halt)
        if case.now >= until and refusal is None:
            why = f"healthy for {case.policy.release.healthy_for_s}"
            if case.reported:
                why = messages.closed_clause(case.reported)
            if tested_at is not None:
                why = f"{why}, its test under load passed"
            return end(case, Phase.RELEASED, why)
    why = refusal.why if refusal is not None else ""
    status = st.with_refusal(status, case.now, refusal, f"Not released: {why}.")
    also = [*([] if tested_at is None else ["its test under load passed"]), *_came_back(status)]
    if load_test.is_unjudged(case, status):
        clauses = "; ".join([f"{load_test.known_clause(case, status)}: {why}", *also])
        sentence = messages.bounded(st.sentence(clauses))
    else:
        kept = status.evidence.get(EVIDENCE_RESTARTED)
        restarted = kept[:200] if isinstance(kept, str) else ""
        sentence = messages.validating(why, case.reported, restarted, also)
    expires = None if refusal is not None else until
    status = st.enter(status, Phase.VALIDATING, sentence, case.now, until=expires)
    return case.decision(
        "Validate",
        status,
        because=messages.closed_clause(case.reported),
        blocked_by=refusal.reason if refusal is not None else None,
        # After that time only a change can release it.
        wake_at=until if until > case.now else None,
    )


def not_ready(node: NodeView) -> str:
    """Return why the Ready condition forbids a release, as a clause; "" if it does not."""
    # A missing condition is no failure.
    if node.ready in {"True", ""}:
        return ""
    return f"the node's Ready condition is {node.ready}"


def _forbidden(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Refusal | None:
    """Return what forbids the release after `healthyFor`; None if nothing does."""
    if halt is not None and halt.reason is WhyNot.OPT_OUT:
        return replace(halt, why=f"{halt.why}, an operator has to release it", permanent=True)
    if halt is not None and halt.reason in {WhyNot.STAND_DOWN, WhyNot.VIEW_TOO_OLD}:
        return halt
    texts = policy.shadow_of(case.policy)
    if texts is not None and texts.unintended:
        why = f"{texts.unintended}, and the policy may require manual approval"
        return Refusal(reason=texts.reason, why=why)
    if (held := halts.hold_of(case)) is not None:
        return held
    if st.is_true(status, "Replace"):
        why = "it is a repeat offender, replace the hardware and then release it"
        return Refusal(reason=WhyNot.REPLACE, why=why, permanent=True)
    if case.policy.release.approval == "Manual":
        why = "release.approval is Manual, an operator has to release it"
        return Refusal(reason=WhyNot.APPROVAL, why=why, permanent=True)
    return None


_NONE_RETURNED: Final = "none, but an operator requested the quarantine and has not released it"
"""Timeline message for a manual cause, which never closes and so cannot return."""


def _came_back(status: QuarantineStatus) -> list[str]:
    """Return a clause with the cause that returned last; empty if none did."""
    entries = (e for e in status.timeline if e.step == "CauseReturned")
    # The entry of a manual cause has a sentence, that of a fault its reason.
    returned = [e for e in entries if reason.is_reason_code(e.message)]
    if not returned:
        return []
    last = returned[-1]
    often = f", the last of {len(returned)} times" if len(returned) > 1 else ""
    return [f"{last.message[:100]} came back{often}"]


def _back(case: Case, status: QuarantineStatus) -> Decision:
    """Return the decision for a new or returning cause: the session goes back to "Marked".

    It needs no new budget. Its pods are drained as usual, when it is the node's turn.
    """
    status = st.with_refusal(status, case.now, None)
    status = result.outdated(load_test.closed_test(case, status, "a cause came back"))
    faults = [cause.reason for cause in case.causes if cause.source != "Human"]
    status = st.noted(status, "CauseReturned", faults[-1] if faults else _NONE_RETURNED, case.now)
    sentence = messages.tainted(
        case.causes, "a cause came back", case.policy.parts, case.status.devices
    )
    status = st.enter(status, Phase.MARKED, sentence, case.now)
    before, after = load_test.off_first(case)
    return case.decision(
        "CauseReturned",
        status,
        because=case.causes[-1].reason,
        before=before,
        after=after,
        wake_at=case.now,
    )


EVIDENCE_RESTARTED: Final = "healthyTimeAnew"
"""Why healthy time last restarted: the state of the node until then."""
EVIDENCE_UNOBSERVED: Final = "unseen"
"""Why there was no data of the node at the last check, after which healthy time restarts. An older
release wrote `true`."""
AWAY: Final = "gpuward-remediator had no leader"
_REBOOTED: Final = "the node rebooted"
_NO_DATA: Final = "there was no data of the node"


def rebooted(status: QuarantineStatus) -> QuarantineStatus:
    """Return the status of a node that has just rebooted."""
    return _kept(status, {EVIDENCE_RESTARTED: _REBOOTED, load_test.EVIDENCE_UNJUDGED: True})


def _restarted(status: QuarantineStatus, stored: QuarantineStatus, now: float) -> QuarantineStatus:
    """Return `status` with healthy time restarted now; the reason is in the evidence of `stored`,
    else gpuward did not run.
    """
    kept = stored.evidence.get(EVIDENCE_UNOBSERVED)
    why = kept if isinstance(kept, str) else _NO_DATA if _was_unknown(stored) else AWAY
    return touched(
        _kept(status, {EVIDENCE_RESTARTED: why[:200]}), phase_since=timestamps.format_time(now)
    )


def _no_data_refusal(halt: Refusal | None, no_data: str) -> Refusal:
    """Return why a node without data is not released. Another owner at work comes first: the agent
    stops using the driver for it, and waiting helps.
    """
    if halt is not None and halt.reason is WhyNot.STAND_DOWN:
        return replace(halt, why=f"{halt.why}; meanwhile {no_data}")
    return Refusal(reason=WhyNot.HEALTH_STATUS_STALE, why=no_data)


def _was_unknown(stored: QuarantineStatus) -> bool:
    """Return whether there was no data of the node at the last check."""
    return bool(stored.evidence.get(EVIDENCE_UNOBSERVED)) or (
        st.blocked_by(stored) == WhyNot.HEALTH_STATUS_STALE
    )


def _kept(status: QuarantineStatus, entries: dict[str, object]) -> QuarantineStatus:
    # None instead of omission: the status is written as a merge patch.
    changed = {key: value for key, value in entries.items() if status.evidence.get(key) != value}
    return touched(status, evidence={**status.evidence, **changed}) if changed else status


def end(
    case: Case,
    phase: Phase,
    why: str,
    by: str = st.BY_GPUWARD,
    evidence: dict[str, object] | None = None,
) -> Decision:
    """Return the decision that ends the session. A taint and cordon needs a recent node."""
    node = case.seen.node
    carries, note = False, None
    if node is not None and phase is not Phase.NODE_GONE:
        note = quarantine_taint.read_note(node)
        # A taint and cordon without a readable annotation is this session's: no other one had the
        # node when it was applied.
        unread = case.phase is not Phase.PENDING and case.taint_state is QuarantineState.UNRECORDED
        carries = unread or (note is not None and note.session == case.session.name)
    if carries and not case.seen.recent:
        return Decision(
            step="ReadNode", because="a taint and cordon must be removed", needs_fresh_node=True
        )
    left_rules = isolation.removed(case)
    if isinstance(left_rules, Decision):
        return left_rules
    requests = endings.last_requests(case, phase)
    if isinstance(requests, Decision):
        return requests
    left = quarantine_taint.cordon_stays(case.node) if carries else ""
    # An operator removed a missing annotation of a complete quarantine, so its record is lost.
    lost = node is not None and case.phase is not Phase.PENDING and not case.shadow
    annotations = (
        quarantine_taint.annotations_left(case.node)
        if lost and phase is not Phase.NODE_GONE
        else ()
    )
    if foreign := isolation.foreign_taints(case.status.devices):
        why = f"{why}; {foreign}"
    sentence = messages.ended(str(phase), why, left, annotations)
    begun = touched(case.status, evidence=evidence) if evidence else _with_override(case, by)
    if carries and note is not None:
        # The session ended between the taint and cordon and its record.
        begun = st.with_taint_found(begun, note.at, case.session.metadata.created_at, case.now)
    status = st.enter(begun, phase, sentence, case.now, by)
    for kind in ("Blocked", "Paused", "NeedsHuman", "NodeUnreachable", "Storm", st.PROPOSED):
        status = st.with_condition(status, kind, case.now)
    status = endings.with_left(status, requests, case.now)
    if left_rules:
        status = st.noted(status, isolation.LEFT, f"delete manually: {left_rules}", case.now)
    status = load_test.closed_test(
        case, endings.closed_repair(case, status, phase), "the session ended first"
    )
    test_off, after = load_test.off_first(case)
    before: tuple[Write, ...] = (*test_off, *requests.writes)
    removes_taint = (remove_taint(case.node, case.session.name),) if carries else ()
    return case.decision(
        str(phase), status, because=why, before=before, after=(*removes_taint, *after)
    )


def _with_override(case: Case, by: str) -> QuarantineStatus:
    """Return the status with the faults that an operator overrides by ending the session."""
    if by != st.BY_OPERATOR and case.session.spec.release is None:
        return case.status
    seen = override.seen_when_ended(case.session, case.seen.health)
    return touched(case.status, evidence={**case.status.evidence, override.EVIDENCE_SEEN: seen})
