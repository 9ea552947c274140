"""What a session says while the API server refuses a write on its node, and when that is over.

Called by `rules.session.case` with the status that a rule arrived at, and by
`rules.session.absent` for sessions that have ended while their mark cannot come off. A refusal
replaces no other obstacle that a person has to see; it never changes a phase.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from rules.api.quarantine import QuarantineStatus
from rules.api.refusal import FAILED, NodeWrite, Refusal
from rules.api.sentences import bounded
from rules.api.writes import (
    CreateSession,
    MarkNode,
    PatchSessionSpec,
    RelabelNode,
    UnmarkNode,
    Write,
)
from rules.session import status as st

LEADS: Final = ("Refused: ", FAILED)
"""How the messages of these conditions begin: so they are told from those of other rules."""
_JOINT: Final = re.compile("; (?:refused|failed): ")
_KINDS: Final = ("Blocked", "NeedsHuman")


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
        case _:
            return None


def saying(status: QuarantineStatus, refusal: Refusal, now: float) -> QuarantineStatus:
    """`status` with the refusal in its conditions and its sentence."""
    message = f"{refusal.lead}{refusal.clause}."
    if not _another(status, "Blocked"):
        status = st.with_condition(status, "Blocked", now, refusal.reason, message)
    if refusal.needs_human and not _another(status, "NeedsHuman"):
        status = st.with_condition(status, "NeedsHuman", now, refusal.reason, message)
    elif says(status, "NeedsHuman"):
        status = st.with_condition(status, "NeedsHuman", now)
    sentence = _JOINT.split(status.message, maxsplit=1)[0].removesuffix(".")
    lead = f"{sentence}; {refusal.lead.lower()}" if sentence else refusal.lead
    message = bounded(f"{lead}{refusal.clause}.")
    return msgspec.structs.replace(status, message=message)


def silent(status: QuarantineStatus, now: float) -> QuarantineStatus:
    """`status` without a refusal: nothing is refused any more."""
    said = [kind for kind in _KINDS if says(status, kind)]
    if not said:
        return status
    for kind in said:
        status = st.with_condition(status, kind, now)
    sentence, *joined = _JOINT.split(status.message, maxsplit=1)
    return msgspec.structs.replace(status, message=f"{sentence}.") if joined else status


def says(status: QuarantineStatus, kind: str = "Blocked") -> bool:
    """Whether the condition is there because of a refusal."""
    found = st.condition(status, kind)
    return found is not None and found.status == "True" and found.message.startswith(LEADS)


def _another(status: QuarantineStatus, kind: str) -> bool:
    return st.is_true(status, kind) and not says(status, kind)
