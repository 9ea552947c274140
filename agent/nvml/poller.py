"""Poll the driver's fields and calls. Used by the child.

The table is `agent/data/nvml.json`, one row for each field or call. Rows name pynvml's constants
and symbols, because field numbers change between versions of the binding. A row is only used from
its driver branch on and for its architectures, which are NVML's numbers (6 Turing, 7 Ampere, 8
Ada, 9 Hopper, 10 Blackwell, 0 unknown).

Fields are read in batches, calls one by one. A field that a GPU does not support is not read again
for an hour. The rest of a poll is skipped for a GPU that is lost or needs a reset.

A driver may leave fields of a batch unanswered: it reports success, but the answer has neither a
timestamp nor a type. Driver 580.159 on an H100 does so for both power limits, two slowdown times
and the slowdown margin when the batch also has the C2C field, which that GPU does not support.
Such fields are read again in a batch of their own.
"""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import pynvml as nvml

from agent.nvml import messages
from agent.nvml.inventory import Absent, Caller, Failed, Gpu, Value
from agent.nvml.messages import Meaning
from agent.nvml.reads import READS, is_unanswered, one_value
from rules.catalog.data_file import data_file
from rules.catalog.signals import BIT_ERROR_RATIOS, EventKind, Signal, bit_error_ratio

LATEST = 1 << 30


class Tier(StrEnum):
    """How often a signal is read: every 15 s, 60 s, 1 h."""

    FAST = "fast"
    MEDIUM = "medium"
    SLOW = "slow"


class FieldRow(msgspec.Struct, frozen=True):
    """A field of nvmlDeviceGetFieldValues. `branch` is the first driver branch that has it.

    `per_link` reads each NVLink: the result is the list of states, the sum of counters or the
    highest ratio.
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
    """A separate call. `reads` is the function of `READS` for a call with more arguments than the
    device. `until` is the first branch that uses a newer row instead.
    """

    signals: tuple[Signal, ...]
    symbol: str
    tier: Tier
    reads: str = ""
    branch: int = 0
    until: int = LATEST
    first: int = 0
    last: int = LATEST


class EventRow(msgspec.Struct, frozen=True):
    """An event type to register for if the GPU supports it."""

    kind: EventKind
    constant: str
    branch: int = 0


class _NvmlFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fields: tuple[FieldRow, ...]
    calls: tuple[CallRow, ...]
    events: tuple[EventRow, ...]
    confirmed: frozenset[Signal]


_FILE = msgspec.json.decode(data_file("nvml.json", "agent"), type=_NvmlFile)
FIELDS, CALLS = _FILE.fields, _FILE.calls
EVENTS = _FILE.events
CONFIRMED = _FILE.confirmed
"""Flags, monotonic counters and states that are read again at once after a change."""

NOT_IN_THIS_DRIVER = Absent(13)
NO_DATA = Absent(21)
BATCH = 64
"""Fields in one call at most, to limit how long the driver holds its lock."""
ASK_AGAIN_S = 3600.0
BROKEN = (Meaning.GPU_LOST, Meaning.GPU_NEEDS_RESET)
MISSING = "missing"
"""The GPU does not answer, and the driver reports neither a lost GPU nor a needed reset."""
PRESENCE = {Meaning.GPU_LOST: "lost", Meaning.GPU_NEEDS_RESET: "reset_required"}
_UINT_NONE, _ULONG_NONE = (1 << 32) - 1, (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE."""
_code_of = nvml.c_nvmlFieldValue_t.nvmlReturn.__get__
_kind_of = nvml.c_nvmlFieldValue_t.valueType.__get__
_union_of = nvml.c_nvmlFieldValue_t.value.__get__
"""Read through ctypes: pynvml's attributes try to decode each number as text, and a node with
eight GPUs has thousands a minute."""


class Query(NamedTuple):
    """One entry of a batch: a row's field, of one link or of the GPU."""

    row: FieldRow
    field: int
    scope: int


def applies(row: FieldRow | CallRow, branch: int, architecture: int) -> bool:
    """Whether a row applies to a driver branch and a GPU architecture."""
    until = row.until if isinstance(row, CallRow) else branch + 1
    return row.branch <= branch < until and row.first <= architecture <= row.last


class Poller:
    """Polls the GPUs of one enumeration. Create a new Poller after each enumeration."""

    def __init__(self, call: Caller, branch: int) -> None:
        self._call = call
        self._branch = branch
        self._mute_until: dict[tuple[int, str], float] = {}
        self._muted: dict[tuple[int, str], Absent] = {}

    def poll(self, gpu: Gpu, tier: Tier, now: float) -> dict[Signal, Value]:
        """Return the readings of one tier. `now` is monotonic time."""
        values: dict[Signal, Value] = {}
        broken = self._poll_fields(gpu, tier, now, values)
        for row in CALLS:
            if broken is None and row.tier is tier:
                broken = self._poll_call(gpu, row, now, values)
        if broken is not None:
            self._call.send(broken.of(gpu.device))
        if tier is Tier.FAST:
            values[Signal.PRESENCE] = PRESENCE[broken.meaning] if broken else _presence(values)
        return values

    def _poll_fields(
        self, gpu: Gpu, tier: Tier, now: float, values: dict[Signal, Value]
    ) -> Failed | None:
        queries = self._queries(gpu, tier, now, values)
        answers: dict[FieldRow, list[Value]] = {}
        skipped: list[Query] = []
        for start in range(0, len(queries), BATCH):
            broken, unanswered = self._ask(gpu, queries[start : start + BATCH], answers)
            if broken is not None:
                return broken
            skipped += unanswered
        if skipped:
            broken, unanswered = self._ask(gpu, skipped, answers)
            if broken is not None:
                return broken
            for query in unanswered:
                answers.setdefault(query.row, []).append(NO_DATA)
        for row, found in answers.items():
            values[row.signal] = _combine(row, found)
            self._remember(gpu, row.constant, values[row.signal], now)
        return None

    def _ask(
        self, gpu: Gpu, batch: list[Query], answers: dict[FieldRow, list[Value]]
    ) -> tuple[Failed | None, list[Query]]:
        """Read one batch into `answers`; return the failure, if any, and unanswered queries."""
        result = self._call(
            "nvmlDeviceGetFieldValues",
            nvml.nvmlDeviceGetFieldValues,
            gpu.handle,
            [(query.field, query.scope) for query in batch],
            gpu=gpu.key,
        )
        if isinstance(result, Failed):
            if result.meaning in BROKEN:
                return result, []
            for query in batch:
                answers.setdefault(query.row, []).append(result.absent)
            return None, []
        unanswered = []
        for query, answer in zip(batch, result, strict=True):
            code = _code_of(answer)
            if code and messages.meaning(code) in BROKEN:
                return Failed("nvmlDeviceGetFieldValues", code), []
            if is_unanswered(answer):
                unanswered.append(query)
            else:
                answers.setdefault(query.row, []).append(_value(answer))
        return None, unanswered

    def _queries(
        self, gpu: Gpu, tier: Tier, now: float, values: dict[Signal, Value]
    ) -> list[Query]:
        queries = []
        for row in FIELDS:
            if row.tier is not tier or ("NVLINK" in row.constant and not gpu.device.links):
                continue
            if not self._asked(gpu, row, row.constant, now, (row.signal,), values):
                continue
            field = getattr(nvml, row.constant, None)
            if field is None:
                values[row.signal] = NOT_IN_THIS_DRIVER
                continue
            for scope in range(gpu.device.links) if row.per_link else (0,):
                queries.append(Query(row, field, scope))  # noqa: PERF401 - the nesting reads better
        return queries

    def _poll_call(
        self, gpu: Gpu, row: CallRow, now: float, values: dict[Signal, Value]
    ) -> Failed | None:
        if row.signals == (Signal.NVLINK_STATES,) and not gpu.device.links:
            return None
        if not self._asked(gpu, row, row.symbol, now, row.signals, values):
            return None
        read = READS[row.reads] if row.reads else one_value(row.signals[0], row.symbol)
        result = self._call(row.symbol, read, gpu.handle, gpu.device.links, gpu=gpu.key)
        if not isinstance(result, Failed):
            values.update(result)
            return None
        if result.meaning in BROKEN:
            return result
        for signal in row.signals:
            values[signal] = result.absent
        if result.meaning in (Meaning.GPU_TROUBLED, Meaning.UNKNOWN):
            self._call.send(result.of(gpu.device))
        self._remember(gpu, row.symbol, result.absent, now)
        return None

    def _asked(
        self,
        gpu: Gpu,
        row: FieldRow | CallRow,
        name: str,
        now: float,
        signals: tuple[Signal, ...],
        values: dict[Signal, Value],
    ) -> bool:
        """Whether to read a row now; if it is known to be unsupported, set its values instead."""
        if not applies(row, self._branch, gpu.device.architecture or 0):
            return False
        key = (gpu.device.index, name)
        if now < self._mute_until.get(key, now):
            values.update(dict.fromkeys(signals, self._muted[key]))
            return False
        return True

    def _remember(self, gpu: Gpu, name: str, value: Value, now: float) -> None:
        if isinstance(value, Absent) and messages.meaning(value.code) is Meaning.FIELD_ABSENT:
            key = (gpu.device.index, name)
            self._mute_until[key] = now + ASK_AGAIN_S
            self._muted[key] = value


def _presence(values: dict[Signal, Value]) -> str:
    """Return `missing` for a GPU that answers every call with an unknown error."""
    unknown = [
        isinstance(value, Absent) and messages.meaning(value.code) is Meaning.UNKNOWN
        for value in values.values()
    ]
    return MISSING if unknown and all(unknown) else "present"


def _value(answer: Any) -> Value:
    """Return one c_nvmlFieldValue_t as a number, by its type."""
    if code := _code_of(answer):
        return Absent(code)
    kind, union = _kind_of(answer), _union_of(answer)
    if kind == nvml.NVML_VALUE_TYPE_DOUBLE:
        return float(union.dVal)
    if kind == nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        return int(union.sllVal)
    if kind == nvml.NVML_VALUE_TYPE_SIGNED_INT:
        return int(union.siVal)
    wide = kind in (nvml.NVML_VALUE_TYPE_UNSIGNED_LONG, nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
    number = int(union.ullVal if wide else union.uiVal)
    return NO_DATA if number == (_ULONG_NONE if wide else _UINT_NONE) else number


def _combine(row: FieldRow, found: list[Value]) -> Value:
    """Combine a row's answers: list of link states, sum of counters or highest ratio."""
    numbers = [value for value in found if isinstance(value, int | float)]
    if not numbers:
        return found[0]
    if not row.per_link:
        return numbers[0] if row.scale == 1.0 else numbers[0] * row.scale
    if row.signal is Signal.NVLINK_STATES:
        return tuple(int(value) if isinstance(value, int) else None for value in found)
    if row.signal in BIT_ERROR_RATIOS:
        return max(map(bit_error_ratio, numbers))
    return sum(numbers)
