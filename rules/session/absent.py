"""Decide for a node without an open session: open one, remove orphaned taints, or watch.

Called by `rules.session.decide.decide`. If the API server refuses to remove a taint and cordon,
the ended session reports it, or an Event on the node if that session was deleted. Lost sessions
are created again: a deleted CRD, a restored backup and the deletion of many sessions are no
request of an operator. The deletion of a single session ends its quarantine.
"""

from dataclasses import replace
from typing import Final

import msgspec

from rules.api import quarantine, quarantine_taint, timestamps
from rules.api.health import IncidentStatus
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import Cause, Phase, QuarantineSpec, QuarantineStatus, ReleaseRequest
from rules.api.refusal import NodeWrite
from rules.api.writes import (
    CreateSession,
    Decision,
    PatchSessionSpec,
    Write,
    WriteSessionStatus,
    node_event,
)
from rules.catalog import reason
from rules.catalog.why_not import Refusal
from rules.policy.policy import Policy, session_mode
from rules.session import case, first_evidence, observation, override
from rules.session import status as st
from rules.session.causes import (
    DELETED_BY,
    actionable,
    appended,
    cause_of,
    level_of,
    session_name,
)
from rules.session.history import NotOpened, opening
from rules.session.observation import NodeObservation
from rules.session.repair import endings

_AGENTS_REPORT_S = 300.0
"""An agent publishes within 60 s; its pod may have to be created and its image to be pulled."""
_CHECK_AGAIN_S = 10.0
STEP_CREATE_AGAIN: Final = "CreateAgain"
"""Decision step that creates a lost session again."""


def without_session(seen: NodeObservation, now: float, policy: Policy) -> Decision:
    """Return the decision for a node without an open session."""
    decision = _decided(seen, now, policy)
    if seen.node is not None and not seen.node.doubt:
        # First of all: a leftover request would repair a node that is in service.
        taken = endings.withdraw_leftovers(seen, now, policy)
        if isinstance(taken, Decision):
            return taken
        decision = endings.cleared(decision, taken, seen, now)
    refusal = seen.refused.get(NodeWrite.OPEN)
    if refusal is None or not any(isinstance(w, CreateSession) for w in decision.writes):
        return decision
    return replace(_not_opened(seen, refusal, now), unfinished=decision.unfinished)


def _not_opened(seen: NodeObservation, refusal: Refusal, now: float) -> Decision:
    """Return the decision that reports a refused session by an Event on the node and the log."""
    message = f"No session could be opened for a fault of this node: {refusal.why}."
    key = f"{seen.name}/{refusal.reason}/NotOpened"
    event = node_event(seen.name, seen.uid, st.NEEDS_HUMAN, message, now, key)
    return Decision(
        step="NotOpened",
        because=refusal.why,
        blocked_by=refusal.reason,
        message=f"No session could be opened: {refusal.why}.",
        writes=(event,) if refusal.permanent else (),
        wake_at=refusal.until,
    )


def _decided(seen: NodeObservation, now: float, policy: Policy) -> Decision:
    node = seen.node
    if node is not None and node.doubt:
        because = f"the node cannot be read in full ({node.doubt})"
        return Decision(step="Watch", because=because, unfinished=bool(seen.deleted))
    gone = [each for each in seen.deleted if not _named(seen, each.name)]
    ended = _ended_by_people(seen, now, policy)
    if (gone or ended) and now < seen.vanished.settled_at:
        # It is an operator's deletion if no other session is deleted with it.
        because = "a session of the node was deleted a moment ago"
        at = seen.vanished.settled_at
        return Decision(step="Watch", because=because, wake_at=at, unfinished=True)
    if node is not None and seen.vanished.lost:
        note = quarantine_taint.read_note(node)
        for each in gone:
            if note is not None and note.session == each.name:
                return _opened_again(each.name, each.spec, node, seen, policy, now)
        if ended:
            return _ended_again(ended[0], node, seen, now)
    if node is not None and quarantine_taint.quarantined(node):
        return _orphan(node, seen, now, policy)
    # An ended session stops reporting a taint and cordon that was removed since.
    ended_ones = (session for session in seen.siblings if not observation.is_open(session))
    settled = tuple(
        w for one in ended_ones for w in _written(one, st.without_refused_write(one.status, now))
    )
    if node is None:
        return Decision(step="NodeGone", writes=settled)
    if settled:
        because = "a taint and cordon whose removal was refused is gone"
        return Decision(step="TaintRemoved", because=because, writes=settled)
    return _untainted(node, seen, now, policy)


def _untainted(node: NodeView, seen: NodeObservation, now: float, policy: Policy) -> Decision:
    """Return the decision for a node without taint and cordon: open a session, or why not."""
    for gone in seen.deleted if not seen.vanished.lost else ():
        if gone.spec.node_uid not in {"", node.uid}:
            # A new machine with the old name does not inherit the deletion of its session.
            continue
        if not _named(seen, gone.name) and _acting(seen, policy):
            return _recorded_deletion(gone.name, node, seen, policy)
    found = opening(seen, now, policy)
    if found.not_opened is not None:
        why = seen.stale if found.not_opened is NotOpened.STALE else found.not_opened
        return Decision(step="Watch", because=why, wake_at=found.until)
    incidents = found.incidents
    level = max((level_of(i, policy) for i in incidents), key=reason.level_rank)
    causes = appended((), (cause_of(i) for i in incidents))
    if found.earlier is not None:
        return _reopened(found.earlier, causes, level, node, seen, policy, now)
    spec = QuarantineSpec(
        node_name=node.name,
        node_uid=node.uid,
        boot_id=node.boot_id,
        causes=causes,
        level=level,
    )
    name = session_name(node, incidents[0].id, seen.siblings)
    return Decision(
        step="Open",
        because=incidents[0].reason,
        writes=(CreateSession(name=name, spec=spec),),
    )


def _reopened(
    session: QuarantineView,
    causes: tuple[Cause, ...],
    level: str,
    node: NodeView,
    seen: NodeObservation,
    policy: Policy,
    now: float,
) -> Decision:
    """Return the decision that reopens a session: spec first, while it is still ended."""
    because = causes[0].reason
    if (session.spec.causes, session.spec.level) != (causes, level):
        patch = PatchSessionSpec(
            name=session.name,
            node=node.name,
            resource_version=session.metadata.resource_version,
            causes=causes,
            level=level,
        )
        return Decision(step="Reopen", because=because, writes=(patch,))
    # The earlier causes are replaced; the timeline keeps why it was opened each time.
    others = f" and {len(causes) - 1} more" if len(causes) > 1 else ""
    message = f"Opened again for {quarantine.most_severe_reason(causes)}{others}."
    begun = QuarantineStatus(
        mode=str(session_mode(policy)),
        phase=str(Phase.PENDING),
        phase_since=timestamps.format_time(now),
        boot_id=node.boot_id,
        message=message,
        conditions=session.status.conditions,
        timeline=session.status.timeline,
        # None removes the earlier evidence; a merge patch keeps omitted keys.
        evidence={
            **dict.fromkeys(session.status.evidence),
            **first_evidence.evidence_of(seen.health, causes, seen.external.incidents),
            override.EVIDENCE_LEVEL: level,
        },
    )
    status = st.noted(begun, str(Phase.PENDING), message, now)
    return Decision(step="Reopen", because=because, writes=_written(session, status))


def _orphan(node: NodeView, seen: NodeObservation, now: float, policy: Policy) -> Decision:
    """Return the decision for a taint and cordon of an ended or deleted session.

    The deletion of a session cancels it.
    """
    note = quarantine_taint.read_note(node)
    session = note.session if note else ""
    known = _named(seen, session)
    # If it was not watched, the reason is unknown: an operator, a replaced CRD, a restored backup.
    watched = any(s.name == session for s in (*seen.vanished.ended, *seen.deleted))
    if session and not known and _asks_for_a_session(seen, policy, now):
        if not watched:
            return _opened_again(session, None, node, seen, policy, now)
        return _recorded_deletion(session, node, seen, policy)
    until = seen.observing_since + _AGENTS_REPORT_S
    waits = seen.selected and seen.stale and now < until  # no agent reports of another node
    if session and not known and not watched and waits:
        # The health objects may have gone together with the sessions.
        because = f"it is unknown whether its fault is active: {seen.stale}"
        again = min(until, now + _CHECK_AGAIN_S)
        return Decision(step="Watch", because=because, wake_at=again, unfinished=True)
    if (refusal := seen.refused.get(NodeWrite.REMOVE_TAINT)) is not None:
        if quarantine_taint.own_taint(node) is None and not node.spec.unschedulable:
            # Annotations alone keep no pods away: a new fault does not wait for their removal.
            opening = _untainted(node, seen, now, policy)
            if opening.step == "Open":
                return opening
        return _stays(node, session, seen, refusal, now)
    if not case.is_fresh(node):
        return Decision(
            step="ReadNode", because="a taint and cordon must be removed", needs_fresh_node=True
        )
    return Decision(
        step="RemoveTaint",
        because="its session has ended" if known else "its session was deleted",
        writes=(
            case.remove_taint(node, session, orphan=bool(session)),
            # Last: the taint and cordon is removed even if this cannot be recorded.
            *_taint_found(node, seen, now),
        ),
    )


def _taint_found(
    node: NodeView, seen: NodeObservation, now: float
) -> tuple[WriteSessionStatus, ...]:
    """Return the write that records in an ended session that it had quarantined the node.

    A session that never did may be reopened.
    """
    note = quarantine_taint.read_note(node)
    holder = next((s for s in seen.siblings if note and s.name == note.session), None)
    if note is None or holder is None or holder.spec.node_uid != node.uid:
        return ()
    opened_at = holder.metadata.created_at
    return _written(holder, st.with_taint_found(holder.status, note.at, opened_at, now))


def _stays(
    node: NodeView, name: str, seen: NodeObservation, refusal: Refusal, now: float
) -> Decision:
    """Return the decision that reports a taint and cordon that cannot be removed."""
    holder = next((session for session in seen.siblings if session.name == name), None)
    writes: tuple[Write, ...] = ()
    if holder is not None:
        status = st.steady(st.with_refused_write(holder.status, refusal, now), holder.status)
        writes = _written(holder, status)
    # An ended session has no other blocker.
    if refusal.permanent and (holder is None or not st.is_true(holder.status, "Blocked")):
        message = (
            f"The taint and cordon of session {name or '?'} cannot be removed: {refusal.why}."
        )
        key = f"{node.uid}/{name}/TaintStays"
        writes = (*writes, node_event(node.name, node.uid, st.NEEDS_HUMAN, message, now, key))
    return Decision(
        step="TaintStays",
        because=refusal.why,
        blocked_by=refusal.reason,
        message=f"The taint and cordon cannot be removed: {refusal.why}.",
        writes=writes,
        wake_at=refusal.until,
    )


def _written(session: QuarantineView, status: QuarantineStatus) -> tuple[WriteSessionStatus, ...]:
    """Return the write of the session's status if it changed.

    A changed `reason` alone does not count: the CRD of an older release drops the field.
    """
    return () if status == session.status else (st.write_of(session, status),)


def _named(seen: NodeObservation, name: str) -> bool:
    """Return whether the node has a session of this name."""
    return any(session.name == name for session in seen.siblings)


def _acting(seen: NodeObservation, policy: Policy) -> tuple[IncidentStatus, ...]:
    """Return the incidents with a level above Report in the last health status."""
    return actionable(seen.health, seen.external.incidents, policy)


def _asks_for_a_session(seen: NodeObservation, policy: Policy, now: float) -> bool:
    """Return whether a fault is active that no operator overrode."""
    faults = _acting(seen, policy)
    overridden = override.overridden_until(faults, seen.siblings, policy, now)
    return any(i.id not in overridden for i in faults)


def _ended_by_people(
    seen: NodeObservation, now: float, policy: Policy
) -> tuple[QuarantineView, ...]:
    """Return deleted sessions of this machine that an operator ended, with a valid override."""
    uids = {"", seen.node.uid} if seen.node is not None else set()
    return tuple(
        each
        for each in seen.vanished.ended
        if each.spec.node_uid in uids
        and not _named(seen, each.name)
        and override.override_ends_at(each, policy) > now
    )


def _opened_again(
    name: str,
    spec: QuarantineSpec | None,
    node: NodeView,
    seen: NodeObservation,
    policy: Policy,
    now: float,
) -> Decision:
    """Return the decision that creates a lost session again; its taint and cordon are on the node.

    `spec` None: the spec is unknown, and the active faults become its causes.
    """
    faults = _acting(seen, policy)
    causes = tuple(cause_of(incident) for incident in faults)
    if spec is None:
        level = max((level_of(i, policy) for i in faults), key=reason.level_rank)
        spec = QuarantineSpec(
            node_name=node.name, node_uid=node.uid, boot_id=node.boot_id, level=level
        )
    then = (
        "The taint and cordon stays and the session is created again; to end it: kubectl gpuward "
        f"release {node.name}."
    )
    spec = msgspec.structs.replace(spec, causes=appended(spec.causes, causes))
    return _created(name, spec, "", then, node, seen, now)


def _ended_again(
    gone: QuarantineView, node: NodeView, seen: NodeObservation, now: float
) -> Decision:
    """Return the decision that creates a lost session again as released, so that the override
    still covers its faults.
    """
    then = (
        "It is created again and released, so the node stays in service; to quarantine it: "
        f"kubectl gpuward quarantine {node.name}."
    )
    asked = gone.spec.release or ReleaseRequest(reason="an operator ended it before it was lost")
    spec = msgspec.structs.replace(gone.spec, release=asked)
    return _created(gone.name, spec, ", which an operator ended,", then, node, seen, now)


def _created(
    name: str,
    spec: QuarantineSpec,
    which: str,
    then: str,
    node: NodeView,
    seen: NodeObservation,
    now: float,
) -> Decision:
    why = seen.vanished.lost or "it was deleted while gpuward-remediator had no leader"
    message = f"Session {name}{which} was lost without a known request: {why}. {then}"
    key = f"{node.uid}/{name}/{timestamps.format_time(now)[:13]}/SessionLost"
    event = node_event(node.name, node.uid, "QuarantineSessionLost", message, now, key)
    return Decision(
        step=STEP_CREATE_AGAIN,
        because=why,
        writes=(CreateSession(name=name, spec=spec), event),
        # The spec stays in memory until the create succeeded.
        unfinished=True,
    )


def _recorded_deletion(
    name: str, node: NodeView, seen: NodeObservation, policy: Policy
) -> Decision:
    """Return the decision that creates a deleted session as released, so that its incidents open
    no new one.

    An existing session answers 409, so a lagging cache does no damage. The earlier causes are
    known while this process runs.
    """
    gone = next((session.spec.causes for session in seen.deleted if session.name == name), ())
    spec = QuarantineSpec(
        node_name=node.name,
        node_uid=node.uid,
        boot_id=node.boot_id,
        causes=appended(gone, (cause_of(i) for i in _acting(seen, policy))),
        release=ReleaseRequest(by=DELETED_BY, reason="deleting the object cancels the session"),
    )
    return Decision(
        step="RecordDeletion",
        because="its session was deleted",
        writes=(CreateSession(name=name, spec=spec),),
        unfinished=True,
    )
