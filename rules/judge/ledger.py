"""What adds up: one small ledger per GPU of what happened to it, and how often lately.

Kept in the state, published with GPUNodeHealth and read back, so that neither the agent's restart
nor a reboot forgets it. Every rule that counts over an hour, a day or a week reads it
(`adding_up`, `facts.repeats`). Pure and bounded: a count is a few marks, each of which
stands for a share of the window.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from rules.api.health import LedgerEntry
from rules.api.timestamps import format_time, parse_time
from rules.judge.incident import clipped

NODE: Final = "node"
"""Whose entry it is where no GPU is named."""
MAX_MARKS: Final = 6
MAX_PER_GPU: Final = 12
MAX_ALIKE: Final = 4
MAX_ENTRIES: Final = 64
"""About 16 KiB of the published object. Source: gpuward."""
_MAX_COUNT: Final = 1_000_000_000
_CLOCK_SLACK_S: Final = 300.0
"""What lies further ahead than this was noted before the clock was set back. Source: gpuward."""
_NAME_CHARS: Final = 96
_MARK: Final = re.compile(r"(\S{1,40}) x(\d{1,10})")


class Mark(msgspec.Struct, frozen=True):
    """So many sightings from `at` on, until the next mark."""

    at: float
    count: int


class Entry(msgspec.Struct, frozen=True):
    """One thing that happens to one GPU: its marks, oldest first, and when it was last seen."""

    marks: tuple[Mark, ...]
    last_at: float


Ledger: TypeAlias = Mapping[tuple[str, str], Entry]
"""By whose (UUID, else address, else `NODE`) and what."""


def whose(gpu: str, pci: str) -> str:
    """The key of a GPU."""
    return (gpu or pci or NODE)[:_NAME_CHARS]


def noted(
    ledger: Ledger,
    owner: str,
    what: str,
    at: float,
    window_s: float,
    *,
    since: float = 0.0,
    count: int = 1,
    apart_s: float = 0.0,
    family: str = "",
) -> Ledger:
    """Add what was seen at `at`; nothing within `apart_s` of the last sighting: it is the same.

    What was seen before `since` counts no more. `window_s` is the longest time that a rule looks
    back at it. Of what begins with `family` (the links or places of one GPU) only the latest few
    are kept, so that they displace nothing else.
    """
    old = ledger.get((owner, what))
    if count <= 0 or (old is not None and abs(at - old.last_at) < apart_s):
        return ledger
    oldest = max(at - window_s, since)
    marks = [m for m in old.marks if oldest < m.at <= at + _CLOCK_SLACK_S] if old else []
    if marks and at - marks[-1].at < window_s / MAX_MARKS:
        marks[-1] = Mark(marks[-1].at, min(marks[-1].count + count, _MAX_COUNT))
    else:
        marks.append(Mark(at, min(count, _MAX_COUNT)))
    last_at = max(at, old.last_at) if old and old.last_at <= at + _CLOCK_SLACK_S else at
    entry = Entry(tuple(marks[-MAX_MARKS:]), last_at)
    return _bounded({**ledger, (owner, what): entry}, owner, family)


def total(ledger: Ledger, owners: Iterable[str], what: str, since: float, now: float) -> int:
    """How often it was seen after `since`, under any of the names of one GPU."""
    return sum(
        mark.count
        for owner in {name for name in owners if name}
        if (entry := ledger.get((owner, what))) is not None
        for mark in entry.marks
        if since < mark.at <= now + _CLOCK_SLACK_S
    )


def _bounded(ledger: dict[tuple[str, str], Entry], owner: str, family: str) -> Ledger:
    """The longest unseen go first: of this family, of this GPU, then of all."""
    mine = [key for key in ledger if key[0] == owner]
    alike = [key for key in mine if family and key[1].startswith(family)]
    for keys, most in ((alike, MAX_ALIKE), (mine, MAX_PER_GPU), (list(ledger), MAX_ENTRIES)):
        known = sorted((k for k in keys if k in ledger), key=lambda k: ledger[k].last_at)
        for key in known[: max(0, len(known) - most)]:
            del ledger[key]
    return ledger


def to_wire(ledger: Ledger) -> tuple[LedgerEntry, ...]:
    """The published form, the latest first."""
    return tuple(
        LedgerEntry(
            gpu=owner,
            what=what,
            last_seen=format_time(entry.last_at),
            seen=tuple(f"{format_time(mark.at)} x{mark.count}" for mark in entry.marks),
        )
        for (owner, what), entry in sorted(
            ledger.items(), key=lambda item: (-item[1].last_at, item[0])
        )
    )


def from_wire(entries: tuple[LedgerEntry, ...]) -> Ledger:
    """What an earlier agent noted; what cannot be read is left out."""
    ledger: dict[tuple[str, str], Entry] = {}
    for entry in entries[:MAX_ENTRIES]:
        marks = tuple(mark for text in entry.seen[:MAX_MARKS] if (mark := _mark(text)))
        last_at = parse_time(entry.last_seen)
        if marks and entry.gpu and entry.what:
            key = (clipped(entry.gpu, _NAME_CHARS), clipped(entry.what, _NAME_CHARS))
            ledger[key] = Entry(marks, marks[-1].at if last_at is None else last_at)
    return ledger


def _mark(text: str) -> Mark | None:
    found = _MARK.fullmatch(text)
    at = parse_time(found[1]) if found else None
    return Mark(at, min(int(found[2]), _MAX_COUNT)) if found and at is not None else None
