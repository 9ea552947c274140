"""How a session's status changes: phases, conditions, timeline, and what it says of refused
writes. Pure struct-to-struct functions.
"""

from collections.abc import Iterable, Iterator, Set
from typing import Any, Final

import msgspec

from rules.api import health, messages, quarantine, timestamps, writes
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Cause, Condition, Mode, Phase, QuarantineStatus, TimelineEntry
from rules.api.refusal import NodeWrite
from rules.api.repair_writes import CreateTestJob, SetRepairCondition, WriteRepairObject
from rules.api.writes import (
    CreateSession,
    EmitEvent,
    PatchSessionSpec,
    RelabelNode,
    RemoveTaint,
    TaintAndCordon,
    Write,
    WriteSessionStatus,
)
from rules.catalog.reason import severity_rank
from rules.catalog.why_not import Refusal, WhyNot

BY_GPUWARD: Final = "gpuward"
BY_OPERATOR: Final = "person"
NEEDS_HUMAN: Final = "QuarantineNeedsHuman"
"""Reason of the Event on a node that says what an operator has to see to."""
PROPOSED: Final = "RepairProposed"
"""Condition: an operator is asked to let a repair step go; its reason is the step."""
APPROVED: Final = "LetGo"
"""Timeline entry of a repair step that an operator let go: `STEP`, or `STEP: REASON`."""
PAUSED_BY, PAUSE_OVER = "PausedBy", "PauseOver"
"""Timeline steps: a pause keeps all disruption from the node, and none does any more. The object
of a pause is gone with its end, so whoever asks later who stopped what learns it here."""
NEW_BOOT: Final = "NewBoot"
"""Timeline step: the moment a new boot was seen."""
MORE_SEVERE: Final = "Graver"
"""Timeline step: a cause is more severe than the session's evidence had it."""
EVIDENCE_INCIDENTS: Final = "incidents"
"""In `status.evidence`: what the session keeps of the faults that it was opened for."""
_REMEMBERED: Final = frozenset({"Paused"})
"""Conditions that keep their reason when they end: for a minute it matters who had paused. The
others drop it, since the column Blocked of `kubectl get` prints it whatever the status is."""
_OVER: Final = "No longer the case."
_FIRST_KEPT: Final = 20
"""A long timeline keeps its beginning and its end."""


def sentence(clause: str) -> str:
    """A clause as the message of a condition; "" stays empty."""
    return f"{clause[:1].upper()}{clause[1:]}." if clause else ""


def enter(
    status: QuarantineStatus, phase: Phase, message: str, now: float, by: str = BY_GPUWARD
) -> QuarantineStatus:
    """Move to `phase`; a session already there only gets the message."""
    if status.phase == phase:
        return msgspec.structs.replace(status, message=message)
    moved = msgspec.structs.replace(
        status, phase=str(phase), phase_since=timestamps.format_time(now), message=message
    )
    return noted(moved, str(phase), message, now, by)


def noted(
    status: QuarantineStatus,
    step: str,
    message: str,
    now: float,
    by: str = BY_GPUWARD,
    subject: str = "",
) -> QuarantineStatus:
    """Add a timeline entry."""
    said = messages.shortened(messages.bounded(message), 256)
    entry = TimelineEntry(
        at=timestamps.format_time(now), step=step, subject=subject, message=said, by=by
    )
    timeline = (*status.timeline, entry)
    if len(timeline) > quarantine.MAX_TIMELINE:
        timeline = timeline[:_FIRST_KEPT] + timeline[_FIRST_KEPT - quarantine.MAX_TIMELINE :]
    return msgspec.structs.replace(status, timeline=timeline)


def named(status: QuarantineStatus, causes: Iterable[Cause]) -> QuarantineStatus:
    """`status` that names the most severe of `causes`, as each one that is written does."""
    return msgspec.structs.replace(status, reason=quarantine.most_severe_reason(causes))


def write_of(session: QuarantineView, status: QuarantineStatus) -> WriteSessionStatus:
    """The write of an entire status, guarded by the version of the session."""
    return WriteSessionStatus(
        name=session.name,
        node=session.spec.node_name,
        resource_version=session.metadata.resource_version,
        status=named(status, session.spec.causes),
    )


def with_more_severe(
    status: QuarantineStatus, causes: Iterable[Cause], now: float
) -> QuarantineStatus:
    """The timeline says of a cause that it became more severe, and the evidence follows: so it
    says it once. Of a cause that came after the opening no evidence is kept, and nothing is said.
    """
    kept: Any = status.evidence.get(EVIDENCE_INCIDENTS)
    if not isinstance(kept, list):
        return status
    by_id = {cause.incident: cause for cause in causes if cause.incident}
    told: list[Any] = []
    for one in kept:
        cause = by_id.get(str(one.get("id"))) if isinstance(one, dict) else None
        was = str(one.get("severity")) if cause is not None else ""
        if cause is None or severity_rank(cause.severity) <= severity_rank(was):
            told.append(one)
            continue
        told.append({**one, "severity": cause.severity})
        said = f"{cause.reason} is {cause.severity} now, it was {was}"
        status = noted(status, MORE_SEVERE, said, now)
    if told == kept:
        return status
    evidence = {**status.evidence, EVIDENCE_INCIDENTS: told}
    return msgspec.structs.replace(status, evidence=evidence)


def condition(status: QuarantineStatus, kind: str) -> Condition | None:
    """The condition of that type, if it was ever set."""
    return next((c for c in status.conditions if c.type == kind), None)


def is_true(status: QuarantineStatus, kind: str) -> bool:
    """Whether the condition is there and True."""
    found = condition(status, kind)
    return found is not None and found.status == "True"


def since(status: QuarantineStatus, kind: str) -> float | None:
    """When the condition last changed its status."""
    found = condition(status, kind)
    return timestamps.parse_time(found.last_transition_time) if found else None


def with_condition(
    status: QuarantineStatus, kind: str, now: float, reason: str = "", message: str = ""
) -> QuarantineStatus:
    """Set the condition True with `reason`; without a reason it becomes False, if it exists."""
    known = condition(status, kind)
    if known is None and not reason:
        return status
    value = "True" if reason else "False"
    changed = known is None or known.status != value
    updated = Condition(
        type=kind,
        status=value,
        reason=str(reason) or (known.reason if known and kind in _REMEMBERED else ""),
        message=messages.bounded(message) if reason else _OVER,
        last_transition_time=timestamps.format_time(now)
        if changed or known is None
        else known.last_transition_time,
    )
    others = [c for c in status.conditions if c.type != kind]
    ordered = tuple(sorted((*others, updated), key=lambda c: c.type))
    return msgspec.structs.replace(status, conditions=ordered)


def with_refusal(
    status: QuarantineStatus,
    now: float,
    refusal: Refusal | None,
    message: str = "",
    *,
    human: WhyNot | None = None,
) -> QuarantineStatus:
    """Conditions Blocked and NeedsHuman as `refusal` says; without one both end.

    `human`: why an operator is needed, where that is another reason than what blocks.
    """
    needed = refusal.reason if refusal is not None and refusal.permanent else human
    blocked = refusal.reason if refusal is not None else None
    status = with_condition(status, "Blocked", now, blocked or "", message)
    return with_condition(status, "NeedsHuman", now, needed or "", message)


def blocked_by(status: QuarantineStatus) -> str:
    """The reason of condition Blocked, as stored (maybe a word of another release); "" without."""
    found = condition(status, "Blocked")
    return found.reason if found is not None and found.status == "True" else ""


def steady(status: QuarantineStatus, stored: QuarantineStatus) -> QuarantineStatus:
    """`status` where a condition that is as it was stored keeps the time of its last change.

    Rules that set a condition off and on again within one decision have not changed it.
    """
    kept = []
    for found in status.conditions:
        known = condition(stored, found.type)
        same = known is not None and known.status == found.status
        at = known.last_transition_time if known is not None and same else ""
        kept.append(msgspec.structs.replace(found, last_transition_time=at) if at else found)
    return msgspec.structs.replace(status, conditions=tuple(kept))


def times(status: QuarantineStatus, step: str) -> int:
    """How often the session took `step`, as far as the timeline remembers."""
    return sum(1 for entry in status.timeline if entry.step == step)


def with_taint_found(
    status: QuarantineStatus, tainted_at: str, opened_at: float, now: float
) -> QuarantineStatus:
    """The status of a session whose quarantine was found on its node; one that ended before it was
    recorded has it on record now, at the time that the taint and cordon itself says (`marked_at`).
    """
    if times(status, str(Phase.MARKED)) or status.mode == Mode.SHADOW:
        return status
    at = min(now, max(opened_at, timestamps.parse_time(tainted_at) or now))
    return noted(status, str(Phase.MARKED), "its taint and cordon was found on the node", at)


def drained_at(status: QuarantineStatus) -> float | None:
    """When the last drain was over: the first Quarantined after it, whatever repairs followed.

    None where the timeline does not remember it.
    """
    found: float | None = None
    for entry in status.timeline:
        if entry.step == Phase.DRAINING:
            found = None
        elif entry.step == Phase.QUARANTINED and found is None:
            found = timestamps.parse_time(entry.at)
    return found


# What a session says while the API server refuses a write on its node. A refusal replaces no other
# blocker that an operator has to see, and never changes a phase. What was said, and the sentence
# without it, is kept in the evidence, so that both can be taken back.

EVIDENCE_REFUSED: Final = "refusedWrite"
"""Key in a session's evidence of what is said of a refused write."""
_REFUSABLE: Final = ("Blocked", "NeedsHuman")


class _Said(msgspec.Struct, frozen=True):
    """As kept in the evidence: the message of the conditions, and the session's without it."""

    message: str = ""
    before: str = ""

    @property
    def joined(self) -> str:
        """The session's message with it, as its last sentence."""
        return messages.bounded(f"{self.before} {self.message}".strip())


def kind_of(write: Write) -> NodeWrite | None:
    """Which of the refusable writes it is."""
    match write:
        case TaintAndCordon():
            return NodeWrite.TAINT
        case RelabelNode():
            return NodeWrite.LABEL
        case RemoveTaint():
            return NodeWrite.REMOVE_TAINT
        case CreateSession():
            return NodeWrite.OPEN
        case PatchSessionSpec():
            return NodeWrite.SPEC
        case SetRepairCondition() | WriteRepairObject():
            return NodeWrite.REPAIR if write.asks else NodeWrite.UNREPAIR
        case CreateTestJob():
            return NodeWrite.TEST
        case WriteSessionStatus():
            return NodeWrite.STATUS
        case _:
            return None


def not_recorded(
    write: WriteSessionStatus, refusal: Refusal, node_uid: str, now: float
) -> EmitEvent:
    """What the API server says to a session's status cannot stand in that status."""
    message = f"Session {write.name} of this node does not go on: {refusal.why}."
    key = f"{write.name}/{refusal.reason}/NotRecorded/{write.status.phase_since}"
    return writes.node_event(write.node, node_uid, NEEDS_HUMAN, message, now, key)


def lost_fields(sent: QuarantineStatus, stored: QuarantineStatus) -> tuple[str, ...]:
    """Fields that were sent and that the API server did not keep, as `status.evidence`; what
    stands inside free-form evidence is no field.
    """
    return tuple(sorted(set(_lost("status", health.plain(sent), health.plain(stored)))))


def _lost(path: str, sent: Any, stored: Any) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(stored, dict) and path != "status.evidence":
        for name, value in sent.items():
            if name not in stored:
                yield f"{path}.{name}"
            else:
                yield from _lost(f"{path}.{name}", value, stored[name])
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for one, other in zip(sent, stored, strict=True):
            yield from _lost(path, one, other)


def not_kept(
    write: WriteSessionStatus, lost: tuple[str, ...], node_uid: str, now: float
) -> EmitEvent:
    """A definition of an older release drops what it does not know, and reports it to nobody."""
    message = (
        f"The definitions in this cluster do not keep {messages.name_list(lost)} of "
        "GPUQuarantine, so they are older than the remediator: bring them up to date "
        "with kubectl apply -k daemonset/crds."
    )
    key = f"{write.name}/NotKept/{','.join(lost)}"[:253]
    return writes.node_event(write.node, node_uid, NEEDS_HUMAN, message, now, key)


NOT_KEPT_S: Final = 3600.0
"""How long, in seconds, no step or test begins after the API server dropped a field of its record.
Then it is tried again: the definition may have been applied."""


def entries_lost(dropped: Set[str], part: str) -> Refusal | None:
    """Why no entry of `status.PART` may begin; None where the API server keeps all of it.

    `dropped`: fields of a status that were lately seen dropped.
    """
    place = f"status.{part}"
    lost = sorted(f for f in dropped if f == place or f.startswith(f"{place}."))
    if not lost:
        return None
    remedy = "kubectl apply -k daemonset/crds"
    why = (
        f"the definition of GPUQuarantine in this cluster is older than the remediator and does "
        f"not keep {messages.name_list(lost)}, apply it again ({remedy})"
    )
    return Refusal(reason=WhyNot.SESSION_REFUSED, why=why, permanent=True, remedy=remedy)


def saying(status: QuarantineStatus, refusal: Refusal, now: float) -> QuarantineStatus:
    """`status` with the refusal in its conditions and its sentence."""
    lead = "Failed" if refusal.reason is WhyNot.UNEXPECTED_ERROR else "Refused"
    said = _Said(messages.bounded(f"{lead}: {refusal.why}."), _silenced(status).message)
    wanted = {"Blocked": True, "NeedsHuman": refusal.permanent}
    for kind in _REFUSABLE:
        if not is_true(status, kind) or _says(status, kind):
            reason = refusal.reason if wanted[kind] else ""
            status = with_condition(status, kind, now, reason, said.message)
    evidence = {**status.evidence, EVIDENCE_REFUSED: msgspec.to_builtins(said)}
    return msgspec.structs.replace(status, message=said.joined, evidence=evidence)


def silent(status: QuarantineStatus, now: float) -> QuarantineStatus:
    """`status` without a refusal: nothing is refused any more."""
    for kind in _REFUSABLE:
        if _says(status, kind):
            status = with_condition(status, kind, now)
    return _silenced(status)


def _silenced(status: QuarantineStatus) -> QuarantineStatus:
    """`status` without what was said in its sentence, where that is still there."""
    said = _said(status)
    if said is None:
        return status
    # None and not left out: the status is written as a merge patch.
    evidence = {**status.evidence, EVIDENCE_REFUSED: None}
    message = said.before if status.message == said.joined else status.message
    return msgspec.structs.replace(status, message=message, evidence=evidence)


def _says(status: QuarantineStatus, kind: str) -> bool:
    """Whether the condition is there because of a refused write."""
    found, said = condition(status, kind), _said(status)
    if found is None or said is None or found.status != "True":
        return False
    return found.message == said.message


def _said(status: QuarantineStatus) -> _Said | None:
    kept = status.evidence.get(EVIDENCE_REFUSED)
    try:
        return None if kept is None else msgspec.convert(kept, _Said)
    except msgspec.ValidationError:
        return None
