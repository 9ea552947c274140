"""What creeps: counters that grow a little each hour, clocks that stay behind, on one GPU alone.

An hour is bad when a GPU did worse than its siblings in that very hour, who share its driver, heat
and work. Bad hours are noted in the ledger, which is published and read back: at most one note per
GPU, kind and hour, none on a sound node. `adding_up` draws the conclusion over a week. A reset of
the GPU and another driver begin anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rules.catalog.signals import Signal
from rules.judge.facts.sample import number_of
from rules.judge.judging import Judging
from rules.judge.ledger import Ledger, noted, whose
from rules.judge.state import GpuView, HourBook, NodeState

NVLINK_HOURS: Final = "hours with NVLink recoveries"
PCIE_HOURS: Final = "hours with PCIe replays"
REMAP_HOURS: Final = "hours with rows remapped"
CLOCK_HOURS: Final = "hours of low clocks"
KINDS: Final = (NVLINK_HOURS, PCIE_HOURS, REMAP_HOURS, CLOCK_HOURS)
HOUR_S: Final = 3600.0
_LONGEST_S: Final = 2 * HOUR_S
"""An hour that took longer had a gap in it and says nothing."""
_SIBLINGS: Final = 2
"""So many others must be known: one beside it may be the odd one itself."""
_FRESH_S: Final = 120.0
"""Readings of siblings this old are of the same work."""
_LOOKS: Final = 30
"""So many comparisons under load make an hour."""
_SLOW_SHARE: Final = 0.9
_DEGREES: Final = 10.0
"""As warm as its siblings."""
_CAPPED: Final = 0x04
"""Held at its power limit: compared with others that are. Source: NVML reference."""
_HELD_BACK: Final = 0x08 | 0x20 | 0x40 | 0x80
"""Slowdowns by heat or power: another finding, or none. Source: NVML reference."""


class _Creeping(NamedTuple):
    what: str
    signal: Signal
    limit: str


_COUNTERS: Final = (
    _Creeping(NVLINK_HOURS, Signal.NVLINK_RECOVERIES, "NVLinkRecoveriesAnHour"),
    _Creeping(PCIE_HOURS, Signal.PCIE_REPLAYS, "PCIeReplaysAnHour"),
    _Creeping(REMAP_HOURS, Signal.REMAPPED_ROWS_CORRECTABLE, "RowRemapsAnHour"),
)


class _Working(NamedTuple):
    """Temperature and clock, and whether the power limit holds the clock back."""

    warm: float
    clock: float
    capped: bool


class _Growth(msgspec.Struct, frozen=True):
    """Of one clock: how much it counted on this GPU, and on each of the others."""

    mine: float
    siblings: tuple[float, ...]


def look_ahead(before: NodeState, on: Judging) -> Judging:
    """After each poll: compare clocks, and close the hour when it is over."""
    on = _begun_anew(before, on)
    book = on.state.hour
    if book is None or not 0 <= on.now - book.at <= _LONGEST_S:
        return _open(on)
    for key, view in on.state.gpus.items():
        if view is not before.gpus.get(key) and view.read_at == on.now:
            book = _compared(on, book, key, view)
    if book is not on.state.hour:
        on = on.then(replace(on.state, hour=book))
    return _open(_closed(on, book)) if on.now - book.at >= HOUR_S else on


def _open(on: Judging) -> Judging:
    counters = {
        (key, row.signal): number
        for key, view in on.state.gpus.items()
        for row in _COUNTERS
        if (number := number_of(view.values.get(row.signal))) is not None
    }
    return on.then(replace(on.state, hour=HourBook(at=on.now, counters=counters)))


def _closed(on: Judging, book: HourBook) -> Judging:
    """Note what was a bad hour."""
    ledger = on.state.ledger
    for row in _COUNTERS:
        for view, growth in _growths(on.state, book, row.signal):
            if _is_bad(on, growth, row.limit):
                ledger = _note(on, ledger, view, row.what)
    for key, view in on.state.gpus.items():
        compared, slow = book.looks.get(key, (0, 0))
        if compared >= _LOOKS and slow >= _SLOW_SHARE * compared:
            ledger = _note(on, ledger, view, CLOCK_HOURS)
    return on if ledger is on.state.ledger else on.then(replace(on.state, ledger=ledger))


def _note(on: Judging, ledger: Ledger, view: GpuView, what: str) -> Ledger:
    window_s = on.thresholds["ForesightWindow"].value
    return noted(ledger, whose(*view.who), what, on.now, window_s, apart_s=HOUR_S / 2)


def _growths(state: NodeState, book: HourBook, signal: Signal) -> list[tuple[GpuView, _Growth]]:
    grown: dict[str, float] = {}
    for key, view in state.gpus.items():
        base, now = book.counters.get((key, signal)), number_of(view.values.get(signal))
        # A counter that went back was reset: its hour begins anew.
        if base is not None and now is not None and now >= base:
            grown[key] = now - base
    return [
        (state.gpus[key], _Growth(mine, tuple(v for k, v in grown.items() if k != key)))
        for key, mine in grown.items()
    ]


def _is_bad(on: Judging, growth: _Growth, limit: str) -> bool:
    if len(growth.siblings) < _SIBLINGS or growth.mine < on.thresholds[limit].value:
        return False
    beside = median(growth.siblings)
    return growth.mine >= on.thresholds["ForesightSiblings"].value * beside


def _compared(on: Judging, book: HourBook, key: str, view: GpuView) -> HourBook:
    """One look at a clock beside those of GPUs that work as hard and are as warm."""
    mine = _working(on, view)
    if mine is None:
        return book
    others = [
        found.clock
        for other_key, other in on.state.gpus.items()
        if other_key != key
        and other.seen.product == view.seen.product
        and abs(on.now - other.read_at) <= _FRESH_S
        and (found := _working(on, other)) is not None
        and found.capped is mine.capped
        and abs(found.warm - mine.warm) <= _DEGREES
    ]
    if len(others) < _SIBLINGS:
        return book
    compared, slow = book.looks.get(key, (0, 0))
    limit = "ClockBesideCappedSiblings" if mine.capped else "ClockBesideSiblings"
    slow += mine.clock < on.thresholds[limit].value * median(others)
    looks: Mapping[str, tuple[int, int]] = {**book.looks, key: (compared + 1, slow)}
    return replace(book, looks=looks)


def _working(on: Judging, view: GpuView) -> _Working | None:
    """A GPU under load that nothing but its power limit may hold back; None of another."""
    values = view.values
    use, clock, warm, held = (
        number_of(values.get(signal))
        for signal in (
            Signal.UTILIZATION,
            Signal.SM_CLOCK,
            Signal.TEMPERATURE,
            Signal.CLOCK_EVENT_REASONS,
        )
    )
    if use is None or clock is None or warm is None or held is None or clock <= 0:
        return None
    if use < on.thresholds["ForesightUtilization"].value or int(held) & _HELD_BACK:
        return None
    return _Working(warm, clock, bool(int(held) & _CAPPED))


def _begun_anew(before: NodeState, on: Judging) -> Judging:
    """Forget what was counted before a reset of a GPU, or under another driver."""
    state = on.state
    driver = bool(before.driver) and before.driver != state.driver
    if state.gpus is before.gpus and not driver:
        return on
    reset = [
        view
        for key, view in state.gpus.items()
        if driver or ((old := before.gpus.get(key)) is not None and view.reset_at > old.reset_at)
    ]
    owners = {name for view in reset for name in (view.seen.uuid, view.pci) if name}
    gone = {(o, w) for o, w in state.ledger if w in KINDS and (driver or o in owners)}
    if not gone and not driver:
        return on
    kept = {key: entry for key, entry in state.ledger.items() if key not in gone}
    return on.then(replace(state, ledger=kept, hour=None if driver else state.hour))
