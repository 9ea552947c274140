"""The session state machine: decide the next step for one node and its session.

`decide` is level-triggered: it uses the objects as they are and no history, so a restart, a crash
between two writes and a missed event converge to the same state. The remediator's loop calls it
for every node that has a session, a taint and cordon or an actionable incident. It does no I/O,
never waits and never assumes that an earlier write arrived.
"""

from collections.abc import Callable
from typing import Final

from msgspec import structs

from rules.api import messages, timestamps
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, Phase
from rules.api.quarantine_taint import QuarantineState
from rules.api.writes import Decision, PatchSessionSpec
from rules.catalog import reason
from rules.catalog.why_not import Refusal, WhyNot
from rules.policy.policy import Policy, by_accident
from rules.session import (
    absent,
    device_check,
    exclusions,
    history,
    observation,
    override,
    phases,
    taint_restore,
)
from rules.session import status as st
from rules.session.case import RECHECK_S, Case, is_fresh, touched
from rules.session.causes import (
    DELETED_BY,
    appended,
    cause_of,
    fresh_incidents,
    is_taken,
    level_of,
)
from rules.session.observation import NodeObservation
from rules.session.validation import result, validating


def decide(
    session: QuarantineView | None, seen: NodeObservation, now: float, policy: Policy
) -> Decision:
    """Return the decision for one node. `session` is its oldest open session, if any."""
    if session is None or not observation.is_open(session):
        return absent.without_session(seen, now, policy)
    case = Case(session=session, seen=seen, now=now, policy=policy)
    for rule in _RULES:
        decision = rule(case)
        if decision is not None and not _is_refused(case, decision):
            return decision
    return phases.in_phase(case)


def _is_refused(case: Case, decision: Decision) -> bool:
    """Return whether the decision only repeats a write that was refused a moment ago.

    The session then continues without it and reports the refusal.
    """
    return bool(decision.writes) and all(
        isinstance(write, PatchSessionSpec) and case.refusal(write) is not None
        for write in decision.writes
    )


def _unreadable(case: Case) -> Decision | None:
    """Report a session or a node that cannot be read in full; nothing else is done."""
    stored, node = case.session.status, case.seen.node
    known = not stored.phase or stored.phase in list(Phase)
    if case.session.doubt or not known:
        what = case.session.doubt or f"unknown phase {stored.phase!r:.40}"
        refusal = Refusal(
            reason=WhyNot.SESSION_UNREADABLE,
            why=f"the session cannot be read in full ({what})",
            permanent=True,
            remedy="correct the GPUQuarantine or delete it",
        )
    elif node is not None and node.doubt:
        refusal = Refusal(
            reason=WhyNot.NODE_UNREADABLE,
            why=f"the node cannot be read in full ({node.doubt})",
            permanent=True,
            remedy="correct the named field or update gpuward",
        )
    else:
        return None
    message = f"The session is stopped: {refusal.why}; {refusal.remedy}."
    status = st.with_refusal(stored, case.now, refusal, message)
    status = touched(status, message=messages.bounded(message))
    return Decision(
        step="Unreadable",
        because=refusal.why,
        blocked_by=refusal.reason,
        message=status.message,
        writes=(st.write_of(case.session, status),)
        if status != stored and not case.session.doubt
        else (),
        status=status if known else None,
        wake_at=case.now + RECHECK_S,
    )


def _node_gone(case: Case) -> Decision | None:
    node, spec = case.seen.node, case.session.spec
    if node is None:
        why = f"node {case.seen.name} was deleted"
    elif spec.node_uid and spec.node_uid != node.uid:
        why = "the node was replaced by another of the same name, which is assessed separately"
    else:
        return None
    return validating.end(case, Phase.NODE_GONE, why)


def _fill_in(case: Case) -> Decision | None:
    """Add node UID and boot ID to a session that an operator created."""
    spec = case.session.spec
    if spec.node_uid:
        return None
    patch = PatchSessionSpec(
        name=case.session.name,
        node=case.node.name,
        resource_version=case.session.metadata.resource_version,
        node_uid=case.node.uid,
        boot_id=spec.boot_id or case.node.boot_id,
    )
    return Decision(step="FillIn", because="an operator opened it", writes=(patch,))


def _join(case: Case) -> Decision | None:
    """Merge a newer session into the oldest open one of the node, which takes over its causes."""
    primary = case.primary
    if primary is case.session:
        return None
    causes = case.session.spec.causes
    if all(is_taken(cause, primary.spec.causes) for cause in causes):
        evidence = {**case.status.evidence, history.EVIDENCE_JOINED: primary.name}
        return validating.end(case, Phase.CANCELLED, f"joined {primary.name}", evidence=evidence)
    return Decision(step="Join", because=f"waiting for {primary.name} to take the causes")


def _append(case: Case) -> Decision | None:
    """Add new incidents and the causes of merged sessions to this session."""
    spec = case.session.spec
    wanted_level, joining = spec.level, []
    for other in filter(observation.is_open, case.seen.siblings):
        wanted_level = max(wanted_level, other.spec.level, key=reason.level_rank)
        made_at = timestamps.format_time(other.metadata.created_at)
        joining += [
            # A manual cause dates from the creation of its session.
            structs.replace(cause, at=made_at)
            if cause.source == "Human" and not cause.at
            else cause
            for cause in other.spec.causes
        ]
    new = list(filter(None, [result.failed_cause(case.session)]))
    if not exclusions.opted_out(case.node):
        acting = fresh_incidents(case.seen, case.policy)
        overridden = override.overridden_until(acting, case.seen.siblings, case.policy, case.now)
        for incident in acting:
            if incident.id not in overridden:
                new.append(cause_of(incident))
                if override.known_when_lowered(case.session, incident):
                    continue
                wanted_level = max(
                    wanted_level, level_of(incident, case.policy), key=reason.level_rank
                )
    at = timestamps.format_time(case.now)
    # A cause that has a time keeps it.
    dated = [c if c.at else structs.replace(c, at=at) for c in (*joining, *new)]
    causes = appended(spec.causes, dated, case.seen.health, case.seen.external.incidents)
    if causes == spec.causes and wanted_level == spec.level:
        return None
    patch = PatchSessionSpec(
        name=case.session.name,
        node=case.node.name,
        resource_version=case.session.metadata.resource_version,
        causes=causes,
        level=wanted_level,
    )
    return Decision(step="AppendCause", because="a new cause", writes=(patch,))


def _mode_flipped(case: Case) -> Decision | None:
    """End a Shadow session when the policy enforces, and a pending one when it no longer does.

    A policy that is in Shadow only because it cannot be read ends no session.
    """
    if case.shadow == (case.policy.mode == Mode.SHADOW):
        return None
    if case.shadow:
        why = "the policy mode is now Enforce, the node is assessed again"
        return validating.end(case, Phase.CANCELLED, why)
    if by_accident(case.policy):
        return None
    if case.phase is Phase.PENDING and case.taint_state is QuarantineState.ABSENT:
        return validating.end(
            case, Phase.CANCELLED, "the policy mode is now Shadow, the node is assessed again"
        )
    return None


def _release_asked(case: Case) -> Decision | None:
    asked = case.session.spec.release
    if asked is None:
        return None
    if asked.by == DELETED_BY:
        return validating.end(
            case, Phase.CANCELLED, "an operator deleted the session", by=st.BY_OPERATOR
        )
    reasons = f", {asked.reason}" if asked.reason else ""
    who = asked.by or "an operator"
    faults = sum(cause.source != "Human" for cause in case.causes)
    still = f"; {faults} of its causes {'is' if faults == 1 else 'are'} still active"
    why = f"requested by {who}{reasons}{still if faults else ''}"
    return validating.end(case, Phase.RELEASED, why, by=asked.by or st.BY_OPERATOR)


def _undone(case: Case) -> Decision | None:
    """End the session if an operator removed a part of the taint and cordon."""
    if case.shadow:
        return None
    changed = case.phase is not Phase.PENDING and case.taint_state in _CHANGED
    if not case.taint_state.undone and not changed:
        return None
    if case.seen.owner or case.seen.doubt:
        # With outdated data it is unknown whether another owner is at work.
        return phases.in_phase(case)
    if taint_restore.awaits_booking(case):
        return None
    if not is_fresh(case.node):
        # A cache that lags behind our own write has the same state.
        return Decision(
            step="ReadNode", because="the taint and cordon is incomplete", needs_fresh_node=True
        )
    if (again := taint_restore.restored(case)) is not None:
        return again
    what = {
        QuarantineState.UNCORDONED: "an operator uncordoned the node",
        QuarantineState.UNTAINTED: "an operator removed the quarantine taint",
        QuarantineState.UNRECORDED: "an operator removed or changed the node's session annotation",
        QuarantineState.FOREIGN: "an operator changed the node's session annotation",
    }.get(case.taint_state, "an operator removed the taint and cordon")
    return validating.end(case, Phase.CANCELLED, what, by=st.BY_OPERATOR)


_CHANGED: Final = {QuarantineState.ABSENT, QuarantineState.UNRECORDED, QuarantineState.FOREIGN}
"""States that mean a removal, except in Pending: there the taint and cordon was never applied, or
an older one has to be removed first.
"""


def _boot_changed(case: Case) -> Decision | None:
    """Record a new boot: evictions stop and a health status of this boot decides, unless the
    session has a manual cause.
    """
    if not taint_restore.boot_unbooked(case):
        return None
    node = case.node
    status = st.noted(case.status, taint_restore.NEW_BOOT, "the node rebooted", case.now)
    by_operator = any(cause.source == "Human" for cause in case.causes)
    if (
        case.phase is Phase.PENDING
        or case.shadow
        or (by_operator and case.phase in _OUT_OF_SERVICE)
    ):
        # A health status does not close a manual cause: the node stays quarantined.
        moved = touched(status, boot_id=node.boot_id)
        return case.decision(
            taint_restore.NEW_BOOT, moved, because="the node rebooted", wake_at=case.now
        )
    message = "The node rebooted; gpuward waits for a health status of the new boot."
    moved = touched(
        validating.rebooted(status),
        boot_id=node.boot_id,
        phase_since=timestamps.format_time(case.now),
    )
    if case.phase in {Phase.VALIDATING, Phase.REPAIRING}:
        # A running step is verified by its proof, which needs more than a new boot.
        moved = st.with_message(moved, message)
    else:
        moved = st.enter(moved, Phase.VALIDATING, message, case.now)
    return case.decision(taint_restore.NEW_BOOT, moved, because="the node rebooted")


_OUT_OF_SERVICE: Final = frozenset({Phase.MARKED, Phase.DRAINING, Phase.QUARANTINED})

_RULES: Final[tuple[Callable[[Case], Decision | None], ...]] = (
    _unreadable,
    _node_gone,
    _fill_in,
    _join,
    _mode_flipped,
    _release_asked,
    _undone,
    _append,
    _boot_changed,
    device_check.followed,
)
