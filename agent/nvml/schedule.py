"""What is asked of the driver, one row per field or call, and when each GPU's rows are due.

The rows are `agent/data/nvml.json`. They name pynvml's constants and symbols, never numbers: field
numbers move between versions of the binding. Nothing is asked below a row's driver branch or
outside its architectures, which are NVML's numbers (6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10
Blackwell; 0 stands for unknown). Everything is due once at start, then spread evenly over each
period, which keeps every wake-up short. Pure: the caller brings the time and the jitter.
"""

from __future__ import annotations

import heapq

import msgspec

from agent.nvml.messages import EventKind, Tier
from rules.catalog.data_file import data_file
from rules.catalog.signals import Signal

PERIODS_S = {Tier.FAST: 15.0, Tier.MEDIUM: 60.0, Tier.SLOW: 3600.0}

HOPPER = 9
LATEST = 1 << 30
FABRIC_V3_BRANCH = 580
SYSTEM_EVENTS_BRANCH = 575


class FieldRow(msgspec.Struct, frozen=True):
    """A field of nvmlDeviceGetFieldValues. `branch` is the first driver branch that knows it.

    `per_link` asks once per NVLink: states become a list, counters their sum, ratios their worst.
    """

    signal: Signal
    constant: str
    tier: Tier
    branch: int = 0
    first: int = 0
    last: int = LATEST
    per_link: bool = False
    scale: float = 1.0


class CallRow(msgspec.Struct, frozen=True):
    """A call of its own; `reads` names the function of `reads` that makes it.

    `until` is the branch from which a newer row takes over.
    """

    signals: tuple[Signal, ...]
    symbol: str
    reads: str
    tier: Tier
    branch: int = 0
    until: int = LATEST
    first: int = 0
    last: int = LATEST


class EventRow(msgspec.Struct, frozen=True):
    """An event type to register for, where the GPU supports it."""

    kind: EventKind
    constant: str
    branch: int = 0


class _NvmlFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fields: tuple[FieldRow, ...]
    calls: tuple[CallRow, ...]
    events: tuple[EventRow, ...]
    system_events: tuple[EventRow, ...]
    confirmed: frozenset[Signal]


_FILE = msgspec.json.decode(data_file("nvml.json", "agent"), type=_NvmlFile)
FIELDS, CALLS = _FILE.fields, _FILE.calls
EVENTS, SYSTEM_EVENTS = _FILE.events, _FILE.system_events
CONFIRMED = _FILE.confirmed
"""Flags, monotonic counters and states: a change is read once more at once, not a period later."""


HURRY_APART_S = 1.0
"""A storm of events must not become a storm of polls."""


class Schedule:
    """Due times of (GPU index, tier). `jitter` is a fraction of a period, 0 to 1.

    `fast_s` is the period of the fastest tier; the others keep their ratio to it.
    """

    def __init__(
        self, count: int, now: float, jitter: float, fast_s: float = PERIODS_S[Tier.FAST]
    ) -> None:
        stretch = fast_s / PERIODS_S[Tier.FAST]
        self._periods_s = {tier: period * stretch for tier, period in PERIODS_S.items()}
        self._heap: list[tuple[float, int, Tier]] = [
            (now, index, tier) for tier in Tier for index in range(count)
        ]
        # One GPU after another, and all shifted by the jitter: nodes booted together poll apart.
        self._slots = {
            (index, tier): now + self._periods_s[tier] * ((index + jitter) / count)
            for tier in Tier
            for index in range(count)
        }
        heapq.heapify(self._heap)
        self._taken: dict[tuple[int, Tier], float] = {}

    def next_due(self) -> float | None:
        """When the next poll is due; None without GPUs."""
        return self._heap[0][0] if self._heap else None

    def hurry(self, index: int, tier: Tier, at: float) -> None:
        """Bring one poll forward to `at`, but not closer than a second to the one before."""
        at = max(at, self._taken.get((index, tier), at - HURRY_APART_S) + HURRY_APART_S)
        self._heap = [
            (min(due, at), i, t) if (i, t) == (index, tier) else (due, i, t)
            for due, i, t in self._heap
        ]
        heapq.heapify(self._heap)

    def take(self, now: float) -> tuple[int, Tier] | None:
        """The most overdue poll, which is then due again a period later; None if none is due."""
        if not self._heap or self._heap[0][0] > now:
            return None
        _, index, tier = self._heap[0]
        self._taken[index, tier] = now
        period = self._periods_s[tier]
        due = self._slots[index, tier]
        if due <= now:
            # Missed periods (a hang, a suspended machine) are skipped, not made up for.
            due += period * (int((now - due) / period) + 1)
        self._slots[index, tier] = due
        heapq.heapreplace(self._heap, (due, index, tier))
        return index, tier
