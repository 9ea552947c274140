"""Whose mark a node carries, read from its session annotation: small, since every agent has it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

import msgspec

from rules.api.names import ANNOTATION_SESSION
from rules.api.object_name import is_object_name
from rules.text.tolerant import UNREADABLE

_MAX_NOTE_BYTES: Final = 4096
_KEPT: Final = 256
"""Notes are read many times in each decision, and the same ones in the next."""


class MarkNote(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The session annotation: whose mark it is and what was there before."""

    session: str
    boot_id: str = msgspec.field(name="bootID", default="")
    prior_unschedulable: bool = False
    at: str = ""
    mark: str = "CordonAndTaint"
    """Which parts were set; the policy may change while the mark is on."""
    prior_annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    prior_by: str = ""
    """The manager that owned the cordon of before (`managedFields`); "" where nobody knows."""
    restored_boot: str = ""
    """The boot in which a cordon that was lost right after it was put back, once."""
    restored_at: str = ""
    """When a part that another controller took off was restored last."""


def note_of(annotations: Mapping[str, str]) -> MarkNote | None:
    """What the annotation says; None where there is none or nobody can read it.

    One that names a session which cannot exist was not written by us, and says nothing of what was
    there before.
    """
    text = annotations.get(ANNOTATION_SESSION)
    return _read(text) if text is not None and len(text) <= _MAX_NOTE_BYTES else None


@functools.lru_cache(maxsize=_KEPT)
def _read(text: str) -> MarkNote | None:
    try:
        note = msgspec.json.decode(text, type=MarkNote)
    except UNREADABLE:
        return None
    return note if is_object_name(note.session) else None


def session_of(annotations: Mapping[str, str]) -> str:
    """The session whose mark a node with these annotations carries; "" where there is none."""
    note = note_of(annotations)
    return note.session if note is not None else ""
