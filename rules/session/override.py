"""Manual override: faults that an operator chose to leave on a node in service. Pure.

A quarantine that an operator ended opens nothing for the same incidents for
`release.cancelExpiry`, unless their severity rises or another GPU fails. The same comparison
decides whether a level that an operator lowered may be raised again. Both keep the incidents as
they were at that moment in `status.evidence` of the session; agents' clocks are not used.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec

from rules.api import messages, timestamps
from rules.api.health import IncidentStatus, Wire
from rules.api.nodes import HealthView, QuarantineView
from rules.catalog.reason import level_rank, severity_rank
from rules.policy.policy import Policy
from rules.session import causes, observation
from rules.session.external import is_external

EVIDENCE_SEEN: Final = "seenWhenEnded"
"""In `status.evidence`: the faults of the causes, as they were when an operator ended the
session.
"""
EVIDENCE_LEVEL: Final = "level"
"""In `status.evidence`: the highest level that the session has had."""
EVIDENCE_KNOWN: Final = "knownWhenLowered"
"""In `status.evidence`: the faults that were active when an operator lowered the level."""
_MAX_FAULTS: Final = 64
_MAX_GPUS: Final = 32
"""A fault of more GPUs than this is recorded without them: it is covered on every GPU."""


class RecordedFault(Wire, frozen=True, omit_defaults=True):
    """An incident as an operator saw it. Without a severity only its id is known, and all of it is
    covered: evidence of an older release, or a finding of another detector on the Node.
    """

    id: str
    reason: str = ""
    severity: str = ""
    gpus: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()


def overridden_until(
    incidents: Sequence[IncidentStatus],
    sessions: Iterable[QuarantineView],
    policy: Policy,
    now: float,
) -> Mapping[str, float]:
    """The incidents that an operator overrode, by id, and until when that counts."""
    until: dict[str, float] = {}
    for session in sessions:
        ends_at = override_ends_at(session, policy)
        if now >= ends_at:
            continue
        recorded = _recorded(session, EVIDENCE_SEEN)
        for incident in incidents:
            if not what_is_new(recorded, incident):
                until[incident.id] = max(ends_at, until.get(incident.id, ends_at))
    return until


def override_ends_at(session: QuarantineView, policy: Policy) -> float:
    """Until when the end of a session by an operator counts, in seconds since the epoch; 0 where
    no operator ended it.
    """
    ended_at = _ended_at(session)
    if observation.is_open(session) or not causes.ended_by_operator(session) or not ended_at:
        return 0.0
    return ended_at + policy.release.cancel_expiry_s


def since_override(incident: IncidentStatus, sessions: Iterable[QuarantineView]) -> str:
    """What is new about the incident since an operator ended a session for it, a clause; "" where
    nothing is, or nobody ended one.
    """
    ended = [s for s in sessions if not observation.is_open(s) and causes.ended_by_operator(s)]
    for session in sorted(ended, key=_ended_at, reverse=True):
        recorded = _recorded(session, EVIDENCE_SEEN)
        if any(fault.id == incident.id for fault in recorded):
            what = what_is_new(recorded, incident)
            return f"after an operator ended {session.name}, {what}" if what else ""
    return ""


def what_is_new(recorded: Sequence[RecordedFault], incident: IncidentStatus) -> str:
    """What of the incident is beyond the record, a clause; "" where the record covers it.

    GPUs of other recorded faults of the same reason count as known: the agent may join incidents.
    """
    same = next((fault for fault in recorded if fault.id == incident.id), None)
    if same is None:
        return f"{incident.reason} is a new fault"
    if not same.severity:
        return ""
    if severity_rank(incident.severity) > severity_rank(same.severity):
        return f"{incident.reason} became {incident.severity}"
    alike = [fault for fault in recorded if fault is same or fault.reason == incident.reason]
    known, named = {gpu for fault in alike for gpu in fault.gpus}, incident.gpus
    if not same.gpus or not named:
        # A GPU whose UUID is not known is reported by its PCI address.
        known, named = {address for fault in alike for address in fault.pci}, incident.pci
        if not same.pci:
            return ""
    new = [gpu for gpu in named if gpu not in known]
    return f"{incident.reason} came to {messages.name_list(new)}" if new else ""


def seen_when_ended(session: QuarantineView, health: HealthView | None) -> list[dict[str, Any]]:
    """The record of a session that an operator ends now, for `EVIDENCE_SEEN`."""
    return _record(health, {cause.incident for cause in session.spec.causes})


def level_evidence(
    session: QuarantineView, health: HealthView | None, external: Iterable[IncidentStatus]
) -> dict[str, object]:
    """The evidence of a session with its highest level, and the record of a lowered one."""
    evidence = dict(session.status.evidence)
    if not _is_lowered(session):
        if evidence.get(EVIDENCE_KNOWN) is not None:
            # A merge patch would keep what is only left out.
            evidence[EVIDENCE_KNOWN] = None
        return {**evidence, EVIDENCE_LEVEL: session.spec.level}
    if not isinstance(evidence.get(EVIDENCE_KNOWN), list):
        others = sorted(causes.active_ids(None, external))
        evidence[EVIDENCE_KNOWN] = [*_record(health, causes.active_ids(health)), *others]
    return evidence


def known_when_lowered(session: QuarantineView, incident: IncidentStatus) -> bool:
    """Whether an operator who lowered the level knew of the incident as it is now. Before it is
    recorded what they knew, they knew all.
    """
    if not _is_lowered(session):
        return False
    if not isinstance(session.status.evidence.get(EVIDENCE_KNOWN), list):
        return True
    return not what_is_new(_recorded(session, EVIDENCE_KNOWN), incident)


def _is_lowered(session: QuarantineView) -> bool:
    """Whether the level is below what the session had: only people lower it."""
    had = session.status.evidence.get(EVIDENCE_LEVEL)
    return isinstance(had, str) and level_rank(session.spec.level) < level_rank(had)


def _record(health: HealthView | None, ids: Set[str]) -> list[dict[str, Any]]:
    """The active incidents of those ids, as the agent has them now."""
    found = health.status.incidents if health is not None else ()
    recorded = []
    for incident in found:
        if incident.active and incident.id in ids and not is_external(incident.id):
            many = max(len(incident.gpus), len(incident.pci)) > _MAX_GPUS
            fault = RecordedFault(
                id=incident.id,
                reason=incident.reason,
                severity=incident.severity,
                gpus=() if many else incident.gpus,
                pci=() if many else incident.pci,
            )
            recorded.append(msgspec.to_builtins(fault))
    return recorded[:_MAX_FAULTS]


def _recorded(session: QuarantineView, key: str) -> list[RecordedFault]:
    """The record in the session's evidence; its causes without one are known by their id.

    The severity is at least that of the cause: an agent that just started says less at first.
    """
    kept = session.status.evidence.get(key)
    found: dict[str, RecordedFault] = {}
    for each in kept if isinstance(kept, list) else ():
        try:
            fault = msgspec.convert({"id": each} if isinstance(each, str) else each, RecordedFault)
        except msgspec.ValidationError:
            continue
        found[fault.id] = fault
    for cause in session.spec.causes:
        if not cause.incident:
            continue
        fault = found.setdefault(cause.incident, RecordedFault(id=cause.incident))
        if fault.severity and severity_rank(cause.severity) > severity_rank(fault.severity):
            found[fault.id] = msgspec.structs.replace(fault, severity=cause.severity)
    return list(found.values())


def _ended_at(session: QuarantineView) -> float:
    return timestamps.parse_time(session.status.phase_since) or 0.0
