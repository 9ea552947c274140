"""Validating: every cause is closed; `healthyFor` runs with fresh verdicts, then release."""

from __future__ import annotations

import msgspec

from rules.api.names import ANNOTATION_HOLD
from rules.api.quarantine import Phase, QuarantineStatus
from rules.api.sentences import bounded, marked, settled_clause
from rules.api.sentences import validating as validating_sentence
from rules.api.timestamps import format_time
from rules.api.writes import Decision
from rules.drain.clock import was_away
from rules.session import status as st
from rules.session.case import Case
from rules.session.causes import has_human
from rules.session.ending import end
from rules.session.halts import Halt


def begin_validation(case: Case, status: QuarantineStatus) -> Decision:
    """All causes are closed: evictions have stopped with this decision."""
    for kind in ("Blocked", "NeedsHuman"):
        status = st.with_condition(status, kind, case.now)
    until = case.now + case.policy.release.healthy_for_s
    sentence = validating_sentence(case.now, until, "", case.reported)
    status = st.enter(status, Phase.VALIDATING, sentence, case.now)
    return case.decision("Validate", status, because=settled_clause(case.reported), wake_at=until)


def validating(case: Case, status: QuarantineStatus, halt: Halt | None) -> Decision:
    """Back on a cause that returned; released when the time is over and nothing forbids it."""
    # A person's cause needs no verdict: it holds until a person takes it back.
    if case.causes and (not case.seen.stale or has_human(case.session)):
        return _back(case, status)
    blind = case.seen.stale or _not_ready(case)
    reason, why = ("VerdictStale", blind) if blind else ("", "")
    # Nor does healthy time count that passed while nobody of ours looked.
    was_blind = _blind(case.status) or was_away(case.now, case.seen.last_active_at)
    if was_blind and not blind:
        # The clock counts healthy time that was seen; it starts again with sight.
        status = msgspec.structs.replace(status, phase_since=format_time(case.now))
    began = case.now if was_blind and not blind else case.phase_since
    until = began + case.policy.release.healthy_for_s
    if not blind:
        reason, why = _forbidden(case, status, halt)
        if case.now >= until and not reason:
            why = f"healthy for {case.policy.release.healthy_for_s}"
            if case.reported:
                why = settled_clause(case.reported)
            return end(case, Phase.RELEASED, why)
    status = st.with_condition(status, "Blocked", case.now, reason, f"Not released: {why}.")
    human = reason if reason in {"Approval", "Replace", "OptOut"} else ""
    status = st.with_condition(status, "NeedsHuman", case.now, human, f"Not released: {why}.")
    sentence = validating_sentence(began, until, why, case.reported)
    flaps = st.times(status, "CauseReturned")
    if flaps:
        sentence = bounded(f"{sentence[:-1]}; the cause came back {flaps} times before.")
    status = st.enter(status, Phase.VALIDATING, sentence, case.now)
    return case.decision(
        "Validate",
        status,
        because=settled_clause(case.reported),
        blocked_by=reason,
        wake_at=until,
    )


def _blind(status: QuarantineStatus) -> bool:
    found = st.condition(status, "Blocked")
    return found is not None and found.status == "True" and found.reason == "VerdictStale"


def _not_ready(case: Case) -> str:
    # A node without the condition is not called broken: nobody has said that it is.
    if case.node.ready in {"True", ""}:
        return ""
    return f"the node's Ready condition is {case.node.ready}"


def _forbidden(case: Case, status: QuarantineStatus, halt: Halt | None) -> tuple[str, str]:
    """What forbids the release even after the time: a reason and a clause."""
    if halt is not None and halt.reason in {"StandDown", "OptOut", "ViewTooOld"}:
        tail = ", a person releases it" if halt.reason == "OptOut" else ""
        return halt.reason, halt.clause + tail
    held = case.node.annotations.get(ANNOTATION_HOLD)
    if case.session.spec.hold or held is not None:
        why = f" ({held[:200]})" if held else ""
        return "Hold", f"a person holds it{why}, unhold it to release"
    if st.is_true(status, "Replace"):
        return "Replace", "it is a repeat offender, a person releases it after the replacement"
    if case.policy.release.approval == "Manual":
        return "Approval", "the policy wants a person to release it"
    return "", ""


def _back(case: Case, status: QuarantineStatus) -> Decision:
    """A new or returning cause: the same session goes on, without a new budget.

    Its pods leave by the one rule that there is: a marked node waits for its turn to drain.
    """
    for kind in ("Blocked", "NeedsHuman"):
        status = st.with_condition(status, kind, case.now)
    status = st.noted(status, "CauseReturned", case.causes[-1].reason, case.now)
    sentence = marked(case.causes, case.now, "a cause came back", case.policy.mark)
    status = st.enter(status, Phase.MARKED, sentence, case.now)
    return case.decision("CauseReturned", status, because=case.causes[-1].reason, wake_at=case.now)
