"""Manual override: faults that an operator chose to leave on a node in service. Pure.

After an operator ends a quarantine, the same incidents open no session for
`release.cancelExpiry`, unless their severity rises or another GPU fails. The same comparison
decides whether a level that an operator lowered may be raised again. `status.evidence` of the
session records the incidents at that moment; agents' clocks are not used.
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
"""In `status.evidence`: the faults of the causes when an operator ended the session."""
EVIDENCE_LEVEL: Final = "level"
"""In `status.evidence`: the highest level of the session so far."""
EVIDENCE_KNOWN: Final = "knownWhenLowered"
"""In `status.evidence`: the faults that were active when an operator lowered the level."""
_MAX_FAULTS: Final = 64
_MAX_GPUS: Final = 32
"""A fault of more GPUs than this is recorded without them: it is covered on every GPU."""


class RecordedFault(Wire, frozen=True, omit_defaults=True):
    """An incident as an operator saw it.

    Without a severity only its id is known and the override covers all of it: evidence of an older
    release, or an external finding on the Node.
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
    """Return the end of the override by id of each incident that an operator overrode."""
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
    """Return the Unix time at which the override of a session ends; 0 if no operator ended it."""
    ended_at = _ended_at(session)
    if observation.is_open(session) or not causes.ended_by_operator(session) or not ended_at:
        return 0.0
    return ended_at + policy.release.cancel_expiry_s


def since_override(incident: IncidentStatus, sessions: Iterable[QuarantineView]) -> str:
    """Return what is new about the incident since an operator ended a session for it, as a clause;
    "" if nothing is new or no operator ended one.
    """
    ended = [s for s in sessions if not observation.is_open(s) and causes.ended_by_operator(s)]
    for session in sorted(ended, key=_ended_at, reverse=True):
        recorded = _recorded(session, EVIDENCE_SEEN)
        if any(fault.id == incident.id for fault in recorded):
            what = what_is_new(recorded, incident)
            return f"after an operator ended {session.name}, {what}" if what else ""
    return ""


def what_is_new(recorded: Sequence[RecordedFault], incident: IncidentStatus) -> str:
    """Return what of the incident the record does not cover, as a clause; "" if it covers all.

    GPUs of other recorded faults of the same reason count as known: the agent may merge incidents.
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
        # A GPU without a known UUID is reported by its PCI address.
        known, named = {address for fault in alike for address in fault.pci}, incident.pci
        if not same.pci:
            return ""
    new = [gpu for gpu in named if gpu not in known]
    return f"{incident.reason} now also affects {messages.name_list(new)}" if new else ""


def seen_when_ended(session: QuarantineView, health: HealthView | None) -> list[dict[str, Any]]:
    """Return the faults to record in `EVIDENCE_SEEN` when an operator ends the session."""
    return _record(health, {cause.incident for cause in session.spec.causes})


def level_evidence(
    session: QuarantineView, health: HealthView | None, external: Iterable[IncidentStatus]
) -> dict[str, object]:
    """Return the session's evidence with its highest level and the faults known when lowered."""
    evidence = dict(session.status.evidence)
    if not _is_lowered(session):
        if evidence.get(EVIDENCE_KNOWN) is not None:
            # A merge patch keeps omitted keys.
            evidence[EVIDENCE_KNOWN] = None
        return {**evidence, EVIDENCE_LEVEL: session.spec.level}
    if not isinstance(evidence.get(EVIDENCE_KNOWN), list):
        others = sorted(causes.active_ids(None, external))
        evidence[EVIDENCE_KNOWN] = [*_record(health, causes.active_ids(health)), *others]
    return evidence


def known_when_lowered(session: QuarantineView, incident: IncidentStatus) -> bool:
    """Return whether an operator who lowered the level knew the incident as it is now.

    Until the known faults are recorded, all count as known.
    """
    if not _is_lowered(session):
        return False
    if not isinstance(session.status.evidence.get(EVIDENCE_KNOWN), list):
        return True
    return not what_is_new(_recorded(session, EVIDENCE_KNOWN), incident)


def _is_lowered(session: QuarantineView) -> bool:
    """Return whether the level is below the highest one: only operators lower it."""
    had = session.status.evidence.get(EVIDENCE_LEVEL)
    return isinstance(had, str) and level_rank(session.spec.level) < level_rank(had)


def _record(health: HealthView | None, ids: Set[str]) -> list[dict[str, Any]]:
    """Return the active incidents with these ids in the current health status."""
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
    """Return the faults recorded in the session's evidence, and its other causes by id only.

    The severity is at least that of the cause: an agent that just started reports less at first.
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
