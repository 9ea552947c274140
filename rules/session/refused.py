"""What a session says while the API server refuses a write on its node, and when that is over.

Called by `rules.session.case` with the status that a rule arrived at, and by
`rules.session.absent` for sessions that have ended while their mark cannot come off. A refusal
replaces no other obstacle that a person has to see; it never changes a phase. What was said, and
the sentence without it, is kept in the session's evidence, so that both can be taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rules.api.health import plain
from rules.api.quarantine import QuarantineStatus
from rules.api.refusal import NodeWrite
from rules.api.repair_writes import CreateTestJob, SetRepairCondition, WriteRepairObject
from rules.api.sentences import bounded, some
from rules.api.writes import (
    CreateSession,
    EmitEvent,
    MarkNode,
    PatchSessionSpec,
    RelabelNode,
    UnmarkNode,
    Write,
    WriteSessionStatus,
)
from rules.catalog.why_not import Refusal, WhyNot
from rules.session import status as st

EVIDENCE_REFUSED: Final = "refusedWrite"
"""Key in a session's evidence of what is said of a refused write."""
_KINDS: Final = ("Blocked", "NeedsHuman")


class _Said(msgspec.Struct, frozen=True):
    """As kept in the evidence: the message of the conditions, and the session's without it."""

    message: str = ""
    before: str = ""

    @property
    def joined(self) -> str:
        """The session's message with it, as its last sentence."""
        return bounded(f"{self.before} {self.message}".strip())


def kind_of(write: Write) -> NodeWrite | None:
    """Which of the refusable writes it is."""
    match write:
        case MarkNode():
            return NodeWrite.MARK
        case RelabelNode():
            return NodeWrite.LABEL
        case UnmarkNode():
            return NodeWrite.UNMARK
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
    return EmitEvent(
        node=write.node,
        node_uid=node_uid,
        kind="Warning",
        reason="QuarantineNeedsHuman",
        message=f"Session {write.name} of this node does not go on: {refusal.why}."[:1024],
        at=now,
        key=f"{write.name}/{refusal.reason}/NotRecorded/{write.status.phase_since}",
    )


def lost_fields(sent: QuarantineStatus, stored: QuarantineStatus) -> tuple[str, ...]:
    """Fields that were sent and that the API server did not keep, as `status.evidence`; what
    stands inside free-form evidence is no field.
    """
    return tuple(sorted(set(_lost("status", plain(sent), plain(stored)))))


def kept_fields(stored: QuarantineStatus) -> frozenset[str]:
    """Every field that the API server keeps of this status, named as `lost_fields` does."""
    return frozenset(_fields("status", plain(stored)))


def _fields(path: str, part: Any) -> Iterator[str]:
    if isinstance(part, dict) and path != "status.evidence":
        for name, value in part.items():
            yield f"{path}.{name}"
            yield from _fields(f"{path}.{name}", value)
    elif isinstance(part, list):
        for item in part:
            yield from _fields(path, item)


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
    """A definition of an older release drops what it does not know, and says so to nobody."""
    return EmitEvent(
        node=write.node,
        node_uid=node_uid,
        kind="Warning",
        reason="QuarantineNeedsHuman",
        message=(
            f"The definitions in this cluster do not keep {some(lost)} of GPUQuarantine, so they "
            "are older than the remediator: bring them up to date with kubectl apply -k "
            "daemonset/crds."
        )[:1024],
        at=now,
        key=f"{write.name}/NotKept/{','.join(lost)}"[:253],
    )


NOT_KEPT_S: Final = 600.0
"""How long, in seconds, no step or test begins after the API server dropped a field of its record.
Then one write shows whether the definition was applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotKept:
    """A refusal because the definition in the cluster drops what an entry of a session needs."""

    refusal: Refusal
    again_at: float
    """When one write may show whether that is still so."""


def entries_lost(dropped: Mapping[str, float], part: str) -> NotKept | None:
    """Why no entry of `status.PART` may begin; None where the API server keeps all of it.

    `dropped`: when each field of a status was last seen dropped, in seconds of the epoch.
    """
    place = f"status.{part}"
    lost = sorted(f for f in dropped if f == place or f.startswith(f"{place}."))
    if not lost:
        return None
    remedy = "kubectl apply -k daemonset/crds"
    why = (
        f"the definition of GPUQuarantine in this cluster is older than the remediator and does "
        f"not keep {some(lost)}, apply it again ({remedy})"
    )
    return NotKept(
        refusal=Refusal(reason=WhyNot.SESSION_REFUSED, why=why, permanent=True, remedy=remedy),
        again_at=max(dropped[each] for each in lost) + NOT_KEPT_S,
    )


def saying(status: QuarantineStatus, refusal: Refusal, now: float) -> QuarantineStatus:
    """`status` with the refusal in its conditions and its sentence."""
    lead = "Failed" if refusal.reason is WhyNot.UNEXPECTED_ERROR else "Refused"
    said = _Said(bounded(f"{lead}: {refusal.why}."), _silenced(status).message)
    wanted = {"Blocked": True, "NeedsHuman": refusal.permanent}
    for kind in _KINDS:
        if not st.is_true(status, kind) or _says(status, kind):
            reason = refusal.reason if wanted[kind] else ""
            status = st.with_condition(status, kind, now, reason, said.message)
    evidence = {**status.evidence, EVIDENCE_REFUSED: msgspec.to_builtins(said)}
    return msgspec.structs.replace(status, message=said.joined, evidence=evidence)


def silent(status: QuarantineStatus, now: float) -> QuarantineStatus:
    """`status` without a refusal: nothing is refused any more."""
    for kind in _KINDS:
        if _says(status, kind):
            status = st.with_condition(status, kind, now)
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
    found, said = st.condition(status, kind), _said(status)
    if found is None or said is None or found.status != "True":
        return False
    return found.message == said.message


def _said(status: QuarantineStatus) -> _Said | None:
    kept = status.evidence.get(EVIDENCE_REFUSED)
    try:
        return None if kept is None else msgspec.convert(kept, _Said)
    except msgspec.ValidationError:
        return None
