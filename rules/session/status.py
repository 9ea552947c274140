"""How a session's status changes: phases, conditions, timeline. Pure struct-to-struct
functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from rules.api.quarantine import (
    MAX_TIMELINE,
    Cause,
    Condition,
    Mode,
    Phase,
    QuarantineStatus,
    TimelineEntry,
    gravest_reason,
)
from rules.api.sentences import bounded, shortened
from rules.api.timestamps import format_time, parse_time
from rules.catalog.reason import severity_rank
from rules.catalog.why_not import Refusal, WhyNot

BY_GPUWARD: Final = "gpuward"
BY_PERSON: Final = "person"
PROPOSED: Final = "RepairProposed"
"""Condition: a person is asked to let a repair step go; its reason is the step."""
LET_GO: Final = "LetGo"
"""Timeline entry of a repair step that a person let go: `STEP`, or `STEP: REASON`."""
PAUSED_BY, PAUSE_OVER = "PausedBy", "PauseOver"
"""Timeline steps: a pause keeps all harm from the node, and none does any more. The object of a
pause is gone with its end, so whoever asks later who stopped what learns it here."""
NEW_BOOT: Final = "NewBoot"
"""Timeline step: the moment a new boot was seen."""
GRAVER: Final = "Graver"
"""Timeline step: a cause is graver than the session's evidence had it."""
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
        status, phase=str(phase), phase_since=format_time(now), message=message
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
    said = shortened(bounded(message), 256)
    entry = TimelineEntry(at=format_time(now), step=step, subject=subject, message=said, by=by)
    timeline = (*status.timeline, entry)
    if len(timeline) > MAX_TIMELINE:
        timeline = timeline[:_FIRST_KEPT] + timeline[_FIRST_KEPT - MAX_TIMELINE :]
    return msgspec.structs.replace(status, timeline=timeline)


def named(status: QuarantineStatus, causes: Iterable[Cause]) -> QuarantineStatus:
    """`status` that names the gravest of `causes`, as each one that is written does."""
    return msgspec.structs.replace(status, reason=gravest_reason(causes))


def with_graver(status: QuarantineStatus, causes: Iterable[Cause], now: float) -> QuarantineStatus:
    """The timeline says of a cause that it became graver, and the evidence follows: so it says it
    once. Of a cause that came after the opening no evidence is kept, and nothing is said.
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
        status = noted(status, GRAVER, said, now)
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
    return parse_time(found.last_transition_time) if found else None


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
        message=bounded(message) if reason else _OVER,
        last_transition_time=format_time(now)
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

    `human`: why a person is needed, where that is another reason than what blocks.
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


def with_mark_found(
    status: QuarantineStatus, marked_at: str, opened_at: float, now: float
) -> QuarantineStatus:
    """The status of a session whose mark was found on its node; one that ended before it was
    recorded has it on record now, at the time that the mark itself says (`marked_at`).
    """
    if times(status, str(Phase.MARKED)) or status.mode == Mode.SHADOW:
        return status
    at = min(now, max(opened_at, parse_time(marked_at) or now))
    return noted(status, str(Phase.MARKED), "its mark was found on the node", at)


def drained_at(status: QuarantineStatus) -> float | None:
    """When the last drain was over: the first Quarantined after it, whatever repairs followed.

    None where the timeline does not remember it.
    """
    found: float | None = None
    for entry in status.timeline:
        if entry.step == Phase.DRAINING:
            found = None
        elif entry.step == Phase.QUARANTINED and found is None:
            found = parse_time(entry.at)
    return found
