"""Halts: pause, opt-out, another owner or an unreachable node stop disruption of an open session.

Time without possible evictions and time without a controller is added to `suspendedSeconds`, so
that it never counts against a deadline. Called by `rules.session.phases` at every decision.
"""

from typing import Final

import msgspec

from rules.api import names
from rules.api.nodes import NodeView, PauseView
from rules.api.quarantine import Phase, QuarantineStatus, RepairState
from rules.catalog.why_not import Refusal, WhyNot
from rules.drain import drain_plan
from rules.policy import policy
from rules.repair import ladder
from rules.session import causes, exclusions
from rules.session import status as st
from rules.session.case import Case, touched
from rules.session.repair.ladder import under_way

PART_OF_TAINT: Final = "taint"
"""Subject of a halt because another controller removed a part of the taint and cordon."""
EVIDENCE_PART_TAKEN: Final = "partTaken"
"""Evidence key during such a halt: `part`, a `QuarantineState`, and `by`, the program that removed
it ("" for an owner that was observed at work).
"""
_OF_PAUSES: Final = frozenset({st.PAUSED_BY, st.PAUSE_OVER})
_HALTING: Final = ("Paused", "NodeUnreachable")


def invalid_opt_out(node: NodeView) -> str:
    """Return a clause about an opt-out label with an invalid value; "" without one."""
    value = node.labels.get(names.LABEL_OPT_OUT)
    if value is None or value in {"true", "false"}:
        return ""
    label = names.LABEL_OPT_OUT
    return f"the label {label}={value} is ignored, only {label}=true does"


def halt_of(case: Case) -> Refusal | None:
    """Return the first reason that forbids disruption, the most permanent first; None without."""
    if case.seen.owner:
        return Refusal(reason=WhyNot.STAND_DOWN, why=f"standing down, {case.seen.owner}")
    if exclusions.opted_out(case.node):
        return Refusal(
            reason=WhyNot.OPT_OUT, why=f"the node carries the label {names.LABEL_OPT_OUT}=true"
        )
    unknown = policy.by_accident(case.policy)  # which nodes the policy selects, too
    if not case.seen.selected and not causes.has_human(case.session) and not unknown:
        return Refusal(
            reason=WhyNot.NOT_SELECTED, why="the policy's nodeSelector does not select the node"
        )
    if case.seen.pauses:
        return Refusal(reason=WhyNot.PAUSED, why=pause_clause(case.seen.pauses))
    if case.seen.doubt:
        return Refusal(reason=WhyNot.VIEW_TOO_OLD, why=case.seen.doubt)
    if (texts := policy.shadow_of(case.policy)) is not None and not case.shadow:
        return Refusal(reason=texts.reason, why=texts.halts)
    return None


def hold_of(case: Case) -> Refusal | None:
    """Return an operator's hold, which blocks repair steps, tests and release; None without."""
    held = case.node.annotations.get(names.ANNOTATION_HOLD)
    if not case.session.spec.hold and held is None:
        return None
    why = f" ({held[:200]})" if held else ""
    ends = f"run kubectl gpuward unhold {case.node.name}, then the session continues"
    return Refusal(reason=WhyNot.HOLD, why=f"an operator set a hold{why}; {ends}")


def pause_clause(pauses: tuple[PauseView, ...]) -> str:
    """Return who paused and why, and the number of other pauses."""
    first = pauses[0]
    by = f" by {first.spec.by[:100]}" if first.spec.by else ""
    why = f" ({first.spec.reason[:200]})" if first.spec.reason else ""
    more = f" and {len(pauses) - 1} more" if len(pauses) > 1 else ""
    doubt = exclusions.pause_doubt(first)
    unclear = f", which covers every node because {doubt}" if doubt else ""
    return f"paused{by}{why} with GPUWardPause {first.metadata.name}{more}{unclear}"


def unreachable(case: Case) -> bool:
    """Return whether the kubelet stopped reporting: evicted pods would not terminate."""
    return case.node.ready == "Unknown"


def with_halts(case: Case, halt: Refusal | None) -> QuarantineStatus:
    """Return the status with current conditions Paused and NodeUnreachable and suspended time."""
    before = halted_since(case.status)
    status = st.with_condition(
        case.status,
        "Paused",
        case.now,
        halt.reason if halt else "",
        st.sentence(halt.why) if halt else "",
    )
    status = _with_pause_reported(case, status, halt)
    taken = None
    if halt is not None and halt.subject == PART_OF_TAINT:
        taken = {"part": str(case.taint_state), "by": halt.owner}
    if taken != status.evidence.get(EVIDENCE_PART_TAKEN):
        # None and not left out: the status is written as a merge patch.
        evidence = {**status.evidence, EVIDENCE_PART_TAKEN: taken}
        status = touched(status, evidence=evidence)
    silent = unreachable(case)
    status = st.with_condition(
        status,
        "NodeUnreachable",
        case.now,
        "KubeletSilent" if silent else "",
        _why_silent(status) if silent else "",
    )
    if status.drain is None or case.phase is not Phase.DRAINING:
        return status
    lost_s = 0.0
    if before is not None:
        if halted_since(status) is None:
            lost_s = case.now - before
    elif case.seen.last_active_at is not None:
        gap_s = case.now - case.seen.last_active_at
        lost_s = gap_s if gap_s > drain_plan.OUTAGE_S else 0.0
    if lost_s <= 0:
        return status
    suspended = status.drain.suspended_seconds + round(lost_s)
    return touched(
        status, drain=msgspec.structs.replace(status.drain, suspended_seconds=suspended)
    )


def _with_pause_reported(
    case: Case, status: QuarantineStatus, halt: Refusal | None
) -> QuarantineStatus:
    """Return the status with one timeline entry for the start and one for the end of a pause."""
    last = next((e.step for e in reversed(status.timeline) if e.step in _OF_PAUSES), "")
    paused = halt is not None and halt.reason == WhyNot.PAUSED
    if halt is not None and paused and last != st.PAUSED_BY:
        by = case.seen.pauses[0].spec.by[:100]
        return st.noted(status, st.PAUSED_BY, halt.why, case.now, by or st.BY_OPERATOR)
    if not paused and last == st.PAUSED_BY:
        return st.noted(status, st.PAUSE_OVER, "no pause covers the node now", case.now)
    return status


def _why_silent(status: QuarantineStatus) -> str:
    step, expected = under_way(status), ""
    if step is not None and step.state == RepairState.ASKED:
        expected = f" during {step.step}" if step.step in ladder.ENDS_BOOT else ""
    return (
        f"The node's Ready condition is Unknown{expected}; evictions and forced deletions wait "
        "until the kubelet reports again."
    )


def halted_since(status: QuarantineStatus) -> float | None:
    """Return since when the stored conditions rule out evictions; None if they do not."""
    starts = [st.since(status, kind) for kind in _HALTING if st.is_true(status, kind)]
    known = [start for start in starts if start is not None]
    return min(known) if known else None
