"""Validating: every cause is closed; `healthyFor` runs with fresh health statuses, then release.

From when healthy time counts, and why not earlier, is kept in `status.evidence`. `end` ends a
session in any phase: a test under load off first, then the record, the taint and cordon off last,
so that a crash between resumes here. An ended session whose taint is still on its node is found
again by the orphan rule of `rules.session.absent`.
"""

from dataclasses import replace
from typing import Final

from rules.api import messages, quarantine_taint, timestamps
from rules.api.nodes import NodeView
from rules.api.quarantine import Phase, QuarantineStatus
from rules.api.quarantine_taint import QuarantineState
from rules.api.writes import Decision, Write
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import drain_plan
from rules.policy import policy
from rules.session import causes, halts, override
from rules.session import status as st
from rules.session.case import Case, is_fresh, remove_taint, touched
from rules.session.repair import endings
from rules.session.validation import load_test, result


def begin_validation(case: Case, status: QuarantineStatus) -> Decision:
    """All causes are closed: evictions have stopped with this decision."""
    status = st.with_refusal(status, case.now, None)
    status = _kept(
        status,
        dict.fromkeys((EVIDENCE_RESTARTED, load_test.EVIDENCE_UNJUDGED, EVIDENCE_UNOBSERVED)),
    )
    until = case.now + case.policy.release.healthy_for_s
    test = load_test.wanted(case)
    tests = test is not None and result.passed_at(status, case.node.boot_id) is None
    why = f"its GPUs are tested under load by {test.provider} first" if test and tests else ""
    sentence = messages.validating(case.now, until, why, case.reported, _closed_at(case))
    status = st.enter(status, Phase.VALIDATING, sentence, case.now)
    return case.decision(
        "Validate", status, because=messages.closed_clause(case.reported), wake_at=until
    )


def validating(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Decision:
    """Back on a cause that returned; released when the time is over and nothing forbids it."""
    # What people or others said needs no health status: it holds until they take it back.
    if case.causes and (not case.seen.stale or causes.needs_no_health_status(case.causes)):
        return _back(case, status)
    no_data = case.no_data or not_ready(case.node)
    status = status if case.no_data else _kept(status, {load_test.EVIDENCE_UNJUDGED: None})
    if (test := load_test.tested_first(case, status, halt, no_data)) is not None:
        return test
    refusal = _no_data_refusal(halt, no_data) if no_data else None
    # Nor does healthy time count that passed while nobody of gpuward looked.
    had_no_data = _was_unknown(case.status) or drain_plan.was_away(
        case.now, case.seen.last_active_at
    )
    if had_no_data and not no_data:
        # The clock counts healthy time that was seen; it starts again with sight.
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
    also = (
        [] if tested_at is None else [f"its test under load passed at {timestamps.utc(tested_at)}"]
    )
    also += _came_back(status)
    if load_test.is_unjudged(case, status):
        clauses = "; ".join([f"{load_test.known_clause(case, status)}: {why}", *also])
        sentence = messages.bounded(st.sentence(clauses))
    else:
        said = status.evidence.get(EVIDENCE_RESTARTED)
        closed_at, until_then = _closed_at(case), said[:200] if isinstance(said, str) else ""
        sentence = messages.validating(
            began, until, why, case.reported, closed_at, until_then, also
        )
    status = st.enter(status, Phase.VALIDATING, sentence, case.now)
    return case.decision(
        "Validate",
        status,
        because=messages.closed_clause(case.reported),
        blocked_by=refusal.reason if refusal is not None else None,
        # Past that moment only a change can release it: time alone has nothing to add.
        wake_at=until if until > case.now else None,
    )


def _closed_at(case: Case) -> float | None:
    """When the last cause closed by the health status; None where it does not report it of
    each.
    """
    incidents = case.seen.health.status.incidents if case.seen.health is not None else ()
    closed = {i.id: timestamps.parse_time(i.closed_at) for i in incidents if not i.active}
    times = [closed.get(cause.incident) for cause in case.session.spec.causes]
    known = [at for at in times if at is not None]
    return max(known, default=None) if len(known) == len(times) else None


def not_ready(node: NodeView) -> str:
    """Why its kubelet keeps a node from being released, a clause; "" where it does not."""
    # A node without the condition is not called broken: nobody has said that it is.
    if node.ready in {"True", ""}:
        return ""
    return f"the node's Ready condition is {node.ready}"


def _forbidden(case: Case, status: QuarantineStatus, halt: Refusal | None) -> Refusal | None:
    """What forbids the release even after the time."""
    if halt is not None and halt.reason is WhyNot.OPT_OUT:
        return replace(halt, why=f"{halt.why}, an operator releases it", permanent=True)
    if halt is not None and halt.reason in {WhyNot.STAND_DOWN, WhyNot.VIEW_TOO_OLD}:
        return halt
    if policy.by_accident(case.policy):
        why = (
            "no policy could be read since the remediator started, and it may want an operator's "
            "word"
        )
        return Refusal(reason=WhyNot.POLICY_UNREAD, why=why)
    if (held := halts.hold_of(case)) is not None:
        return held
    if st.is_true(status, "Replace"):
        why = "it is a repeat offender, an operator releases it after the replacement"
        return Refusal(reason=WhyNot.REPLACE, why=why, permanent=True)
    if case.policy.release.approval == "Manual":
        why = "the policy wants an operator to release it"
        return Refusal(reason=WhyNot.APPROVAL, why=why, permanent=True)
    return None


_NONE_DID: Final = "none did, but an operator asked for this and has not released it"
"""An operator's wish never closed, so it did not return."""


def _came_back(status: QuarantineStatus) -> list[str]:
    """Which cause came back last, and when: so its healthy time is another than the first; one
    clause, none where none did.
    """
    returned = [e for e in status.timeline if e.step == "CauseReturned" and e.message != _NONE_DID]
    if not returned:
        return []
    last = returned[-1]
    often = f", the last of {len(returned)} times" if len(returned) > 1 else ""
    return [f"{last.message[:100]} came back at {timestamps.utc_of(last.at)}{often}"]


def _back(case: Case, status: QuarantineStatus) -> Decision:
    """A new or returning cause: the same session goes on, without a new budget.

    Its pods leave by the one rule that there is: a quarantined node waits for its turn to drain.
    """
    status = st.with_refusal(status, case.now, None)
    status = result.outdated(load_test.closed_test(case, status, "a cause came back"))
    faults = [cause.reason for cause in case.causes if cause.source != "Human"]
    status = st.noted(status, "CauseReturned", faults[-1] if faults else _NONE_DID, case.now)
    sentence = messages.tainted(case.causes, case.now, "a cause came back", case.policy.parts)
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
"""Why healthy time began again, of the beginning that counts now: how it was until then."""
EVIDENCE_UNOBSERVED: Final = "unseen"
"""Why the node could not be seen at the last check: healthy time begins again with sight. An older
release wrote `true`."""
AWAY: Final = "no remediator led"
_REBOOTED: Final = "the node ran another boot"
_NO_DATA: Final = "the node could not be seen"


def rebooted(status: QuarantineStatus) -> QuarantineStatus:
    """`status` of a node that booted a moment ago."""
    return _kept(status, {EVIDENCE_RESTARTED: _REBOOTED, load_test.EVIDENCE_UNJUDGED: True})


def _restarted(status: QuarantineStatus, stored: QuarantineStatus, now: float) -> QuarantineStatus:
    """`status` whose healthy time begins now, with sight: why not earlier is in the evidence of
    `stored`, or else nobody looked.
    """
    kept = stored.evidence.get(EVIDENCE_UNOBSERVED)
    why = kept if isinstance(kept, str) else _NO_DATA if _was_unknown(stored) else AWAY
    return touched(
        _kept(status, {EVIDENCE_RESTARTED: why[:200]}), phase_since=timestamps.format_time(now)
    )


def _no_data_refusal(halt: Refusal | None, no_data: str) -> Refusal:
    """Why a node that cannot be seen is not released. An owner at work comes first: its agent lets
    go of the driver for it, so waiting helps, and what is to be seen to is the owner's work.
    """
    if halt is not None and halt.reason is WhyNot.STAND_DOWN:
        return replace(halt, why=f"{halt.why}; meanwhile {no_data}")
    return Refusal(reason=WhyNot.HEALTH_STATUS_STALE, why=no_data)


def _was_unknown(stored: QuarantineStatus) -> bool:
    """Whether nobody could see the node at the last check."""
    return bool(stored.evidence.get(EVIDENCE_UNOBSERVED)) or (
        st.blocked_by(stored) == WhyNot.HEALTH_STATUS_STALE
    )


def _kept(status: QuarantineStatus, said: dict[str, object]) -> QuarantineStatus:
    # None and not left out: the status is written as a merge patch.
    changed = {key: value for key, value in said.items() if status.evidence.get(key) != value}
    return touched(status, evidence={**status.evidence, **changed}) if changed else status


def end(
    case: Case,
    phase: Phase,
    why: str,
    by: str = st.BY_GPUWARD,
    evidence: dict[str, object] | None = None,
) -> Decision:
    """End the session; where our taint and cordon is on its node, on a fresh read only."""
    node = case.seen.node
    carries, note = False, None
    if node is not None and phase is not Phase.NODE_GONE:
        note = quarantine_taint.read_note(node)
        # A taint and cordon without a readable note is ours: nobody else had the node when it went
        # on.
        unread = case.phase is not Phase.PENDING and case.taint_state is QuarantineState.UNRECORDED
        carries = unread or (note is not None and note.session == case.session.name)
    if carries and not is_fresh(case.node):
        return Decision(
            step="ReadNode", because="a taint and cordon is to come off", needs_fresh_node=True
        )
    requests = endings.last_requests(case, phase)
    if isinstance(requests, Decision):
        return requests
    left = quarantine_taint.cordon_stays(case.node) if carries else ""
    # Once the taint and cordon was whole, a missing note is an operator's doing, and what it
    # recorded is lost.
    lost = node is not None and case.phase is not Phase.PENDING and not case.shadow
    annotations = (
        quarantine_taint.annotations_left(case.node)
        if lost and phase is not Phase.NODE_GONE
        else ()
    )
    sentence = messages.ended(str(phase), why, left, annotations)
    begun = touched(case.status, evidence=evidence) if evidence else _with_override(case, by)
    if carries and note is not None:
        # Whoever ended it came between the taint and cordon and its record.
        begun = st.with_taint_found(begun, note.at, case.session.metadata.created_at, case.now)
    status = st.enter(begun, phase, sentence, case.now, by)
    for kind in ("Blocked", "Paused", "NeedsHuman", "NodeUnreachable", "Storm", st.PROPOSED):
        status = st.with_condition(status, kind, case.now)
    status = endings.with_left(status, requests, case.now)
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
    """The status with the record of what an operator who ends the session saw."""
    if by != st.BY_OPERATOR and case.session.spec.release is None:
        return case.status
    seen = override.seen_when_ended(case.session, case.seen.health)
    return touched(case.status, evidence={**case.status.evidence, override.EVIDENCE_SEEN: seen})
