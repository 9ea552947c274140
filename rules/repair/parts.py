"""Which GPU was put in for which: a fact of two inventories, never anybody's word.

A session keeps who was there when it opened (`inventory`). A GPU of another UUID and serial number
in the place of one that is gone is its replacement. What a node's agent says of its GPUs is taken
of that node alone: both inventories are its own verdicts. `rules.session.repair.evidence` calls it
and `rules.fleet.record_changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from rules.api.health import GpuStatus, HealthStatus, Wire, plain
from rules.api.timestamps import parse_time

EVIDENCE_INVENTORY: Final = "inventory"
"""Key in a session's evidence: the GPUs that there were when it opened."""
EVIDENCE_REPLACED: Final = "replaced"
"""Key in a session's evidence: which of them were replaced since, the latest last."""
GPU_REPLACED: Final = "GPUReplaced"
"""Stands after the repair steps of a fault that ended with another GPU in its place; also what the
timeline calls it."""
MAX_PARTS: Final = 64
MAX_REPLACED: Final = 32
"""A node that shows other GPUs at every look is not followed any further."""
_UUID, _SERIAL, _SLOT = 96, 64, 32
_BARE: Final = "none"


class Part(Wire, frozen=True):
    """One GPU and where it is; `slot` is its PCI address."""

    uuid: str
    serial: str = ""
    slot: str = ""

    @property
    def called(self) -> str:
        """`serial 165 (GPU-...)`: what is printed on it, and what the driver calls it."""
        return f"serial {self.serial} ({self.uuid})" if self.serial else self.uuid


class Replacement(Wire, frozen=True):
    """`part` was replaced by `by`, first seen at `at` (RFC 3339)."""

    at: str
    part: Part
    by: Part
    step: str = ""
    """The repair step under way then; "" where there was none, so somebody did it by hand."""

    @property
    def short(self) -> str:
        """The two, as they are printed on the boards."""
        return f"{_board(self.part)} replaced by {_board(self.by)}"

    @property
    def clause(self) -> str:
        """What happened, in one clause."""
        during = f", during {self.step}" if self.step else ""
        at = f" at {self.by.slot}" if self.by.slot else ""
        return f"GPU {self.part.called}{at} was replaced by {self.by.called}{during}"


def _board(part: Part) -> str:
    return f"serial {part.serial}" if part.serial else part.uuid


def parts_of(status: HealthStatus) -> tuple[Part, ...]:
    """The GPUs that a verdict lists."""
    return tuple(_part(gpu) for gpu in status.gpus[:MAX_PARTS] if gpu.uuid)


def _part(gpu: GpuStatus) -> Part:
    return Part(uuid=gpu.uuid[:_UUID], serial=gpu.serial[:_SERIAL], slot=gpu.pci[:_SLOT])


def inventory(status: HealthStatus) -> list[Any]:
    """`parts_of` as a session's evidence keeps it."""
    found: list[Any] = plain(parts_of(status))
    return found


def kept_inventory(evidence: Mapping[str, Any]) -> tuple[Part, ...]:
    """The GPUs that there were when the session opened; () where it does not say."""
    found: tuple[Part, ...] = _read(evidence.get(EVIDENCE_INVENTORY), tuple[Part, ...])
    return found[:MAX_PARTS]


def kept_replacements(evidence: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """What a session saw being replaced, the latest last."""
    found: tuple[Replacement, ...] = _read(
        evidence.get(EVIDENCE_REPLACED), tuple[Replacement, ...]
    )
    return found[:MAX_REPLACED]


def _read(kept: object, kind: Any) -> Any:
    try:
        return msgspec.convert(kept, kind) if kept is not None else ()
    except (msgspec.ValidationError, RecursionError):
        return ()


def there_by_now(before: Iterable[Part], replaced: Iterable[Replacement]) -> tuple[Part, ...]:
    """The inventory of before with what was replaced since. One that was made anew, when its
    session was taken up again, knows of what was replaced before: that is not in it.
    """
    there = {part.uuid: part for part in before}
    for one in replaced:
        if there.pop(one.part.uuid, None) is not None:
            there[one.by.uuid] = one.by
    return tuple(there.values())


def exchanged(before: Sequence[Part], status: HealthStatus) -> tuple[tuple[Part, Part], ...]:
    """Who is gone, each with who came in its place.

    In its place is: at its PCI address, or, as addresses may be counted anew, the only new one for
    the only one that is gone. A GPU that only moved, or whose UUID changed while its serial number
    did not, was not replaced; of virtual ones without serial numbers a new UUID says nothing.
    """
    now = parts_of(status)
    gone, new = _without(before, now), _without(now, before)
    pairs = []
    for part in tuple(gone):
        by = next((one for one in new if part.slot and one.slot == part.slot), None)
        if by is not None:
            pairs.append((part, by))
            gone.remove(part)
            new.remove(by)
    if len(gone) == len(new) == 1:
        pairs.append((gone[0], new[0]))
    bare = status.virtualization == _BARE
    return tuple((a, b) for a, b in pairs if bare or (a.serial and b.serial))


def _without(some: Sequence[Part], others: Sequence[Part]) -> list[Part]:
    uuids = {part.uuid for part in others}
    serials = {part.serial for part in others if part.serial}
    return [part for part in some if part.uuid not in uuids and part.serial not in serials]


def replaced_in(evidence: Mapping[str, Any], uuid: str) -> Replacement | None:
    """How that GPU was replaced in the session of this evidence, the latest time."""
    found = (one for one in reversed(kept_replacements(evidence)) if one.part.uuid == uuid)
    return next(found, None)


def began_by(started_at: str, replacement: Replacement) -> bool:
    """Whether something that began then began before the replacement was seen."""
    return (parse_time(started_at) or 0.0) <= (parse_time(replacement.at) or 0.0)
