"""What is asked of the driver: one row per field or call, with who can answer it and how often.

The rows are `agent/data/nvml.json`. They name pynvml's constants and symbols, never numbers: field
numbers move between versions of the binding. Nothing is asked below a row's driver branch or
outside its architectures, which are NVML's numbers (6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10
Blackwell; 0 stands for unknown). Read by `poller` and `events`; pure data.
"""

from __future__ import annotations

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
