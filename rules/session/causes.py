"""Causes of a session: which incidents open it, which keep it open, and the session's name.

Pure functions of a health status, external findings on the Node, the sessions and the policy. A
detector's cause is open while its incident is active in a fresh health status. A stale health
status changes no cause. External findings on the Node need no health status.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rules.api import object_name
from rules.api.health import IncidentStatus
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.quarantine import Cause
from rules.api.resource_slices import NodeTaints
from rules.catalog import reason
from rules.catalog.reason import Level, Severity
from rules.policy.policy import Policy
from rules.session import observation
from rules.session import status as st
from rules.session.external import SOURCE as EXTERNAL
from rules.session.external import holds, is_external, trigger_of
from rules.session.observation import FleetSnapshot, NodeObservation
from rules.session.validation import result as test_result

MAX_CAUSES: Final = 32
"""Causes that gpuward writes into a session; the others are in the health status."""
CRD_CAUSES: Final = 64
"""Causes that the CRD of GPUQuarantine allows: operators may write as many."""
EVIDENCE_GANGS: Final = "gangs"
"""Key of the gang keys in a session's evidence, written when its drain begins."""
EVIDENCE_GANGS_KEPT: Final = "gangsKept"
"""Key of a sentence for each of them that kept at least `minCount` pods elsewhere."""
DETECTOR: Final = "Detector"
"""`source` of a cause that an agent's health status opens and closes."""
DELETED_BY: Final = "deletion of the GPUQuarantine"
"""`spec.release.by` of the record that replaces a deleted session."""


def level_of(incident: IncidentStatus, policy: Policy) -> str:
    """Return the level for an incident: the policy overrides the agent."""
    return policy.level_of(incident.reason, incident.level)


def actionable(
    health: HealthView | None, external: Iterable[IncidentStatus], policy: Policy
) -> tuple[IncidentStatus, ...]:
    """Return active incidents with a level above Report: Fatal first, then oldest."""
    found = [
        incident
        for incident in (*of_agent(health), *external)
        if incident.active and reason.level_rank(level_of(incident, policy)) > Level.REPORT.rank
    ]
    return tuple(
        sorted(found, key=lambda i: (-reason.severity_rank(i.severity), i.first_seen, i.id))
    )


def fresh_incidents(seen: NodeObservation, policy: Policy) -> tuple[IncidentStatus, ...]:
    """Return actionable incidents of a fresh health status and of external detectors."""
    return actionable(None if seen.stale else seen.health, seen.external.incidents, policy)


def of_agent(health: HealthView | None) -> tuple[IncidentStatus, ...]:
    """Return the agent's incidents without those that use the id prefix of external findings."""
    incidents = health.status.incidents if health is not None else ()
    return tuple(incident for incident in incidents if not is_external(incident.id))


def ended_by_operator(session: QuarantineView) -> bool:
    """Return whether an operator returned the node to service regardless of its health status."""
    if session.spec.release is not None:
        return True
    return any(
        entry.step in {"Cancelled", "Released"} and entry.by == st.BY_OPERATOR
        for entry in session.status.timeline
    )


def manual_session_name(node: str, suffix: str) -> str:
    """Return the name of a session that an operator opens.

    `suffix` is eight unique hexadecimal digits. The agent's admission policy recognizes evidence
    by the two forms of names (daemonset/base/agent-admission.yaml).
    """
    return object_name.name_from(node, f"-by-hand-{suffix}")


def session_name(node: NodeView, incident: str, sessions: Iterable[QuarantineView]) -> str:
    """Return a deterministic name, so that two writers cannot open two sessions for one incident.

    Names of existing sessions are skipped: history may have dropped an earlier session.
    """
    known = list(sessions)
    ended = sum(
        1
        for session in known
        if not observation.is_open(session)
        and any(cause.incident == incident for cause in session.spec.causes)
    )
    names = {session.name for session in known}
    while True:
        digest = hashlib.sha256(f"{node.uid}/{incident}/{ended}".encode()).hexdigest()
        name = object_name.name_from(node.name, f"-{digest[:8]}")
        if name not in names:
            return name
        ended += 1


def cause_of(incident: IncidentStatus) -> Cause:
    """Return the incident as a cause in a session's spec."""
    return Cause(
        source=EXTERNAL if is_external(incident.id) else DETECTOR,
        incident=incident.id,
        reason=incident.reason[:63],
        # The CRD has three severities; an unknown one of a newer agent counts as Degraded.
        severity=str(list(Severity)[reason.severity_rank(incident.severity)]),
        message=incident.evidence[0][:512] if incident.evidence else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseContext:
    """The state that decides which causes of a session are active."""

    node: NodeView | None
    health: HealthView | None
    stale: str
    """Why the health status is stale; "" if it is fresh."""
    policy: Policy
    now: float
    device_taints: Mapping[str, NodeTaints] = field(default_factory=dict)
    """Taints of devices of the node, by driver."""


def cause_context(node: NodeView, snapshot: FleetSnapshot) -> CauseContext:
    """Return the context of the node in the snapshot."""
    known = snapshot.memo.get(node.name)
    if not isinstance(known, CauseContext) or known.node is not node:
        health, now = snapshot.healths.get(node.name), snapshot.now
        stale = observation.staleness(health, node, snapshot.agents, now)
        policy = snapshot.policy_of(node)
        known = CauseContext(
            node=node, health=health, stale=stale, policy=policy, now=now,
            device_taints=snapshot.device_taints.get(node.name, {}),
        )  # fmt: skip
        snapshot.memo[node.name] = known
    return known


def open_causes(session: QuarantineView, context: CauseContext) -> tuple[Cause, ...]:
    """Return the active causes with a level above Report."""
    return tuple(
        cause
        for cause in _holding(session, context)
        if reason.level_rank(_allowed(cause, session, context.policy)) > Level.REPORT.rank
    )


def reported_causes(session: QuarantineView, context: CauseContext) -> tuple[Cause, ...]:
    """Return the active causes that the current policy only reports."""
    asking = open_causes(session, context)
    return tuple(c for c in _holding(session, context) if c not in asking)


def _holding(session: QuarantineView, context: CauseContext) -> tuple[Cause, ...]:
    """Return the active causes.

    An operator's cause is always active, a detector's while its incident is, an external one while
    its trigger matches, a failed test until the node was repaired or rebooted.
    """
    no_data = (bool(context.stale) or context.health is None) and not _closed_once(
        session, context
    )
    active = active_ids(context.health)
    uid = session.spec.node_uid

    def is_active(cause: Cause) -> bool:
        if cause.source == EXTERNAL:
            return holds(
                cause, uid, context.node, context.policy, context.now, context.device_taints
            )
        if cause.source == test_result.SOURCE:
            return test_result.holds(cause, session)
        return no_data or cause.source == "Human" or cause.incident in active

    return tuple(cause for cause in session.spec.causes if is_active(cause))


def _closed_once(session: QuarantineView, context: CauseContext) -> bool:
    """Return whether closed incidents of a stale health status still count as closed.

    Phase Validating records that all detector causes closed. A session that an operator's or an
    external cause keeps out of Validating has no such record, and each boot makes the health
    status stale for a minute. An object that no agent has filled yet does not count.
    """
    health = context.health
    if health is None or health.doubt or not health.status.observed_at:
        return False
    if health.status.node_uid not in {"", session.spec.node_uid}:
        return False
    return any(cause.source in {"Human", EXTERNAL} for cause in session.spec.causes)


def active_ids(
    health: HealthView | None, external: Iterable[IncidentStatus] = ()
) -> frozenset[str]:
    """Return the ids of active incidents of the health status and of external findings."""
    incidents = health.status.incidents if health is not None else ()
    return frozenset(i.id for i in (*incidents, *external) if i.active)


def needs_no_health_status(causes: Iterable[Cause]) -> bool:
    """Return whether any cause is independent of the health status: manual, external or a test."""
    return any(cause.source in {"Human", EXTERNAL, test_result.SOURCE} for cause in causes)


def _allowed(cause: Cause, session: QuarantineView, policy: Policy) -> str:
    """Return the highest level that the policy allows for a cause; it limits no manual cause."""
    most = str(Level.DRAIN)
    if cause.source == "Human":
        return most
    trigger = trigger_of(cause, session.spec.node_uid, policy)
    return policy.level_of(cause.reason, str(trigger.level) if trigger is not None else most)


def level_in_effect(session: QuarantineView, causes: Iterable[Cause], policy: Policy) -> str:
    """Return the level to act on: the session's own, limited by the policy for `causes`.

    Both may change while the session waits or drains.
    """
    allowed = max(
        (_allowed(c, session, policy) for c in causes),
        key=reason.level_rank,
        default=str(Level.DRAIN),
    )
    return min(session.spec.level, allowed, key=reason.level_rank)


def causes_now(
    session: QuarantineView, node: NodeView, snapshot: FleetSnapshot
) -> tuple[Cause, ...]:
    """Return the active causes with a level above Report in the snapshot."""
    context = cause_context(node, snapshot)
    key = f"causes of {session.name}"
    known = snapshot.memo.get(key)
    if known is None or known[0] is not session or known[1] is not context:
        known = snapshot.memo[key] = (session, context, open_causes(session, context))
    return tuple(known[2])


def causes_in_effect(session: QuarantineView, snapshot: FleetSnapshot) -> tuple[Cause, ...]:
    """Return the causes that severity and reason are taken from: `causes_now`, else all."""
    node = snapshot.nodes.get(session.spec.node_name)
    found = causes_now(session, node, snapshot) if node is not None else ()
    return found or session.spec.causes


def holds_now(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> bool:
    """Return whether a cause of the session is active with a level above Report."""
    return not session.spec.causes or bool(causes_now(session, node, snapshot))


def drains_now(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> bool:
    """Return whether the active causes require a drain at the current level and policy.

    Policy, manual overrides and health status may have changed since the level was written.
    """
    causes = causes_now(session, node, snapshot)
    if not causes and session.spec.causes:
        return False
    policy = cause_context(node, snapshot).policy
    return level_in_effect(session, causes, policy) == Level.DRAIN


def same_cause(one: Cause, other: Cause) -> bool:
    """Return whether two causes are the same finding or the same request."""
    if one.incident or other.incident:
        return one.incident == other.incident
    return _request(one) == _request(other)


def _request(cause: Cause) -> tuple[str, ...]:
    return cause.reason, cause.message, cause.by, cause.nvlink_domain


def appended(
    causes: tuple[Cause, ...],
    new: Iterable[Cause],
    health: HealthView | None = None,
    external: Iterable[IncidentStatus] = (),
) -> tuple[Cause, ...]:
    """Return `causes` with the missing ones of `new`, up to the limit.

    A cause takes over the severity of its incident if that rose. The function is idempotent. Above
    the limit it keeps, in this order: the first cause (its reason is on the taint), manual causes,
    causes that are active in `health` by severity, existing causes. It never drops an existing
    cause only because of the limit.
    """
    result = list(causes)
    for cause in new:
        at = next((i for i, known in enumerate(result) if same_cause(cause, known)), None)
        if at is None:
            result.append(cause)
        elif cause.incident and reason.severity_rank(cause.severity) > reason.severity_rank(
            result[at].severity
        ):
            result[at] = msgspec.structs.replace(result[at], severity=cause.severity)
    room = min(CRD_CAUSES, max(MAX_CAUSES, len(causes)))
    if len(result) <= room:
        return tuple(result)
    holding = active_ids(health, external) if health is not None else None

    def order(index: int) -> tuple[bool, bool, bool, int, int]:
        cause = result[index]
        human = cause.source == "Human"
        ended = holding is not None and not human and cause.incident not in holding
        return index > 0, not human, ended, -reason.severity_rank(cause.severity), index

    kept = set(sorted(range(len(result)), key=order)[:room])
    return tuple(cause for index, cause in enumerate(result) if index in kept)


def is_taken(cause: Cause, causes: tuple[Cause, ...]) -> bool:
    """Return whether `causes` contains the cause, or is full for good."""
    if any(same_cause(cause, known) for known in causes):
        return True
    people = sum(known.source == "Human" for known in causes)
    full = len(causes) >= MAX_CAUSES
    return full and (cause.source != "Human" or people == len(causes))


def worst(causes: Iterable[Cause]) -> str:
    """Return the highest severity of the causes; Degraded if there are none."""
    return max(
        (c.severity for c in causes), key=reason.severity_rank, default=str(Severity.DEGRADED)
    )


def has_human(session: QuarantineView) -> bool:
    """Return whether an operator requested this quarantine."""
    return any(cause.source == "Human" for cause in session.spec.causes)


def requested_domain(session: QuarantineView) -> str:
    """Return the NVLink domain that an operator quarantines as a unit, by the newest request; ""
    for a session of the node alone.
    """
    asked = (cause for cause in reversed(session.spec.causes) if cause.source == "Human")
    return next((cause.nvlink_domain for cause in asked if cause.nvlink_domain), "")


def waits_for_room(session: QuarantineView, causes: Iterable[Cause]) -> bool:
    """Return whether GPU pods stay on the node until another one has free GPUs: not for a Fatal
    cause, and not in an NVLink domain, whose gangs leave together.
    """
    return worst(causes) != Severity.FATAL and not requested_domain(session)
