"""Causes: which incidents open a session, which keep it open, and what a session is called.

Pure reading of a health status, of what others say on the Node, the sessions there are and the
policy. A detector's cause is open while its incident is active in a fresh health status; while the
health status is stale it stays as it was. What others say on the Node needs no health status.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from rules.api import object_name
from rules.api.health import HealthStatus, IncidentStatus, plain
from rules.api.nodes import HealthView, NodeView, QuarantineView
from rules.api.quarantine import Cause, RepairGpu
from rules.catalog import reason
from rules.catalog.reason import Level, Severity
from rules.policy.policy import Policy
from rules.session import observation
from rules.session.external import SOURCE as EXTERNAL
from rules.session.external import holds, is_external, trigger_of
from rules.session.observation import FleetSnapshot, NodeObservation
from rules.session.validation import result as test_result

MAX_CAUSES: Final = 32
"""How many causes we write into a session; the others are in the health status."""
CRD_CAUSES: Final = 64
"""How many the definition of GPUQuarantine allows (`daemonset/crds`): people may write as many."""
EVIDENCE_INVENTORY: Final = "inventory"
"""In `status.evidence`: the GPUs that there were when the session opened."""
_MAX_GPUS: Final = 64
EVIDENCE_GANGS: Final = "gangs"
"""Key of the gang keys in a session's evidence, written when its drain begins."""
DETECTOR: Final = "Detector"
"""`source` of a cause that an agent's health status opens and closes."""
DELETED_BY: Final = "deletion of the GPUQuarantine"
"""`spec.release.by` of the record that stands in for a session somebody deleted."""


def level_of(incident: IncidentStatus, policy: Policy) -> str:
    """What to do about an incident: the policy's word wins over the agent's."""
    return policy.level_of(incident.reason, incident.level)


def actionable(
    health: HealthView | None, external: Iterable[IncidentStatus], policy: Policy
) -> tuple[IncidentStatus, ...]:
    """Active incidents that ask for more than a report: Fatal first, then oldest."""
    found = [
        incident
        for incident in (*_of_agent(health), *external)
        if incident.active and reason.level_rank(level_of(incident, policy)) > Level.REPORT.rank
    ]
    return tuple(
        sorted(found, key=lambda i: (-reason.severity_rank(i.severity), i.first_seen, i.id))
    )


def fresh_incidents(seen: NodeObservation, policy: Policy) -> tuple[IncidentStatus, ...]:
    """The actionable incidents of a health status that may be believed, and of others."""
    return actionable(None if seen.stale else seen.health, seen.external.incidents, policy)


def _of_agent(health: HealthView | None) -> tuple[IncidentStatus, ...]:
    """An agent's incidents; one that claims to be of others is nobody's."""
    incidents = health.status.incidents if health is not None else ()
    return tuple(incident for incident in incidents if not is_external(incident.id))


def ended_by_operator(session: QuarantineView) -> bool:
    """Whether an operator said that the node is to be in service, whatever the health status
    says.
    """
    if session.spec.release is not None:
        return True
    return any(
        entry.step in {"Cancelled", "Released"} and entry.by == "person"
        for entry in session.status.timeline
    )


def manual_session_name(node: str, word: str) -> str:
    """The name of a session that an operator opens; `word` is eight hexadecimal digits that no
    other has. By this form, and by that of `session_name`, an agent's evidence is reported from
    another's (daemonset/base/agent-admission.yaml).
    """
    return object_name.name_from(node, f"-by-hand-{word}")


def session_name(node: NodeView, incident: str, sessions: Iterable[QuarantineView]) -> str:
    """Deterministic, so that two writers cannot open two sessions for one incident.

    Names that history still holds are passed over: it may have forgotten an earlier session.
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
    """An incident as a cause in a session's spec."""
    return Cause(
        source=EXTERNAL if is_external(incident.id) else DETECTOR,
        incident=incident.id,
        reason=incident.reason[:63],
        # The CRD knows three words; a newer agent's other word counts as Degraded.
        severity=str(list(Severity)[reason.severity_rank(incident.severity)]),
        message=incident.evidence[0][:512] if incident.evidence else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseContext:
    """What says at one moment which causes of a session hold."""

    node: NodeView | None
    health: HealthView | None
    stale: str
    """Why the health status cannot be believed; "" when it can."""
    policy: Policy
    now: float


def cause_context(node: NodeView, snapshot: FleetSnapshot) -> CauseContext:
    """The node as the snapshot has it."""
    known = snapshot.memo.get(node.name)
    if not isinstance(known, CauseContext) or known.node is not node:
        health, policy, now = snapshot.healths.get(node.name), snapshot.policy, snapshot.now
        stale = observation.staleness(health, node, snapshot.agents, now)
        known = CauseContext(node=node, health=health, stale=stale, policy=policy, now=now)
        snapshot.memo[node.name] = known
    return known


def open_causes(session: QuarantineView, context: CauseContext) -> tuple[Cause, ...]:
    """The causes that hold and ask for more than a report."""
    return tuple(
        cause
        for cause in _holding(session, context)
        if reason.level_rank(_allowed(cause, session, context.policy)) > Level.REPORT.rank
    )


def reported_causes(session: QuarantineView, context: CauseContext) -> tuple[Cause, ...]:
    """The causes that hold and that the policy, as it is now, only reports."""
    asking = open_causes(session, context)
    return tuple(c for c in _holding(session, context) if c not in asking)


def _holding(session: QuarantineView, context: CauseContext) -> tuple[Cause, ...]:
    """People's causes always, detectors' while their incident is active, others' while they say
    so, a failed test until something was done about it.
    """
    no_data = (bool(context.stale) or context.health is None) and not _closed_once(
        session, context
    )
    active = active_ids(context.health)
    uid = session.spec.node_uid

    def stands(cause: Cause) -> bool:
        if cause.source == EXTERNAL:
            return holds(cause, uid, context.node, context.policy, context.now)
        if cause.source == test_result.SOURCE:
            return test_result.holds(cause, session)
        return no_data or cause.source == "Human" or cause.incident in active

    return tuple(cause for cause in session.spec.causes if stands(cause))


def _closed_once(session: QuarantineView, context: CauseContext) -> bool:
    """Whether a stale health status, too, says what had closed: it stays as it was. What closes
    all causes of detectors is booked as Validating; a session that the word of people or of others
    keeps from that has nothing else to remember it by, and a boot is a minute without a health
    status. An object that no agent has filled yet says nothing.
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
    """Ids of what is active by the health status, and of what others say."""
    incidents = health.status.incidents if health is not None else ()
    return frozenset(i.id for i in (*incidents, *external) if i.active)


def needs_no_health_status(causes: Iterable[Cause]) -> bool:
    """Whether any of the causes stands without an agent's health status: an operator's, of others,
    a test's.
    """
    return any(cause.source in {"Human", EXTERNAL, test_result.SOURCE} for cause in causes)


def _allowed(cause: Cause, session: QuarantineView, policy: Policy) -> str:
    """The most that the policy lets a cause ask for; what people ask for is theirs to say."""
    most = str(Level.DRAIN)
    if cause.source == "Human":
        return most
    trigger = trigger_of(cause, session.spec.node_uid, policy)
    return policy.level_of(cause.reason, str(trigger.level) if trigger is not None else most)


def level_in_effect(session: QuarantineView, causes: Iterable[Cause], policy: Policy) -> str:
    """What the session may do now for `causes`: its own level, and no more than the policy has
    for the most severe of them. Both may change while the session waits or drains.
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
    """The causes that hold at the snapshot's moment and ask for more than a report."""
    context = cause_context(node, snapshot)
    key = f"causes of {session.name}"
    known = snapshot.memo.get(key)
    if known is None or known[0] is not session or known[1] is not context:
        known = snapshot.memo[key] = (session, context, open_causes(session, context))
    return tuple(known[2])


def causes_in_effect(session: QuarantineView, snapshot: FleetSnapshot) -> tuple[Cause, ...]:
    """The causes whose severity and reasons count now (`Case.severity`): `causes_now`, else
    all.
    """
    node = snapshot.nodes.get(session.spec.node_name)
    found = causes_now(session, node, snapshot) if node is not None else ()
    return found or session.spec.causes


def holds_now(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> bool:
    """Whether a cause of the session still holds and asks for more than a report."""
    return not session.spec.causes or bool(causes_now(session, node, snapshot))


def drains_now(session: QuarantineView, node: NodeView, snapshot: FleetSnapshot) -> bool:
    """Whether the session's causes ask for an empty node, as level and policy are now.

    The level in its spec was right when it was written; policy, people and health status go on.
    """
    causes = causes_now(session, node, snapshot)
    if not causes and session.spec.causes:
        return False
    return level_in_effect(session, causes, snapshot.policy) == Level.DRAIN


def same_cause(one: Cause, other: Cause) -> bool:
    """Whether two causes are the same finding or the same request."""
    if one.incident or other.incident:
        return one.incident == other.incident
    return (one.reason, one.message, one.by) == (other.reason, other.message, other.by)


def appended(
    causes: tuple[Cause, ...],
    new: Iterable[Cause],
    health: HealthView | None = None,
    external: Iterable[IncidentStatus] = (),
) -> tuple[Cause, ...]:
    """`causes` with the missing ones of `new`, as many as there is room for; a fault that became
    more severe since it came is as severe as that.

    Comes to rest: the same again changes nothing. Where there are too many, the first stays (its
    reason is on the taint), then people's, then what still holds by `health`, the most severe
    first, then what is there already; and none of those that are there goes for the bound alone.
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
    """Whether the session with `causes` has the cause, or has no room that it will ever get."""
    if any(same_cause(cause, known) for known in causes):
        return True
    people = sum(known.source == "Human" for known in causes)
    full = len(causes) >= MAX_CAUSES
    return full and (cause.source != "Human" or people == len(causes))


def worst(causes: Iterable[Cause]) -> str:
    """The most severe severity among causes; Degraded where there is none."""
    return max(
        (c.severity for c in causes), key=reason.severity_rank, default=str(Severity.DEGRADED)
    )


def has_human(session: QuarantineView) -> bool:
    """Whether an operator asked for this quarantine."""
    return any(cause.source == "Human" for cause in session.spec.causes)


def evidence_of(
    health: HealthView | None,
    causes: Iterable[Cause],
    external: Iterable[IncidentStatus],
) -> dict[str, object]:
    """What the session keeps of the health status and of what others said: it must survive the
    node.
    """
    others = tuple(external)
    if health is None and not others:
        return {}
    status = health.status if health is not None else HealthStatus()
    ids = {cause.incident for cause in causes if cause.incident}
    incidents = [each for each in (*_of_agent(health), *others) if each.id in ids][:8]
    return {
        "observedAt": status.observed_at,
        "driverVersion": status.driver_version,
        "agentVersion": status.agent_version,
        "rulesVersion": status.rules_version,
        "gpus": sorted({uuid for incident in incidents for uuid in incident.gpus})[:16],
        "incidents": [
            {
                "id": incident.id,
                "reason": incident.reason,
                "severity": incident.severity,
                "firstSeen": incident.first_seen,
                "gpus": list(incident.gpus[:16]),
                "recommendedAction": incident.recommended_action,
                "evidence": [line[:512] for line in incident.evidence[:5]],
            }
            for incident in incidents
        ],
        EVIDENCE_INVENTORY: [
            plain(RepairGpu(uuid=gpu.uuid[:96], serial=gpu.serial[:64]))
            for gpu in status.gpus[:_MAX_GPUS]
            if gpu.uuid
        ],
    }


def kept_inventory(evidence: Mapping[str, object]) -> tuple[RepairGpu, ...]:
    """The GPUs that there were when the session opened; () where it does not say."""
    try:
        found = msgspec.convert(evidence.get(EVIDENCE_INVENTORY) or (), tuple[RepairGpu, ...])
    except (msgspec.ValidationError, RecursionError):
        return ()
    return found[:_MAX_GPUS]
