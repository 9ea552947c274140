"""Beside NVML dcgm-exporter is compared: what both report of a GPU and lastingly report
differently.

Called by `judge` for each page while NVML is up, and when one of the two stops. A difference is
a record of Info that names both values: one of the sources is wrong, which one is not known here,
so it says nothing about the GPU and never drains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rules.catalog.signals import Signal
from rules.catalog.thresholds import Threshold, Thresholds
from rules.judge.facts.sample import number_of
from rules.judge.facts.standing import Check, Look, above, judge_checks, remembered
from rules.judge.judging import Judging, close_where
from rules.judge.observation import DcgmSeen, SourceName, SourceState, Value

REASON: Final = "SourcesDiffer"
NOT_COMPARED: Final = "NotCompared"
_FRESH_S: Final = 120.0
"""Two polls of the tier that most of these signals are in. Source: gpuward."""

_TOLERANCE: Final = {Signal.TEMPERATURE: "SourcesDifferTemperature"}
COMPARED: Final = {
    signal: _TOLERANCE.get(signal, REASON)
    for signal in (
        Signal.REMAP_FAILURE,
        Signal.REMAP_PENDING,
        Signal.REMAPPED_ROWS_UNCORRECTABLE,
        Signal.RETIREMENT_PENDING,
        Signal.ECC_UNCORRECTED_VOLATILE,
        Signal.ECC_UNCORRECTED_AGGREGATE,
        Signal.SRAM_THRESHOLD_EXCEEDED,
        Signal.UNREPAIRABLE_MEMORY,
        Signal.RECOVERY_ACTION,
        Signal.INFOROM_VALID,
        Signal.TEMPERATURE,
    )
}
"""The signals that both sources read from the driver, and the threshold of their difference."""


class Both(NamedTuple):
    """What both sources read of one GPU: NVML last, and the page; how much may differ."""

    ours: Mapping[Signal, Value]
    theirs: Mapping[Signal, Value]
    thresholds: Thresholds


def _differences(both: Both, _: Threshold) -> dict[str, Look]:
    looks = {}
    for signal, name in COMPARED.items():
        ours, theirs = number_of(both.ours.get(signal)), number_of(both.theirs.get(signal))
        if ours is not None and theirs is not None:
            evidence = f"{signal.value}: nvml {ours:g}, dcgm-exporter {theirs:g}"
            look = above(both.thresholds[name], abs(ours - theirs), evidence)
            looks[signal.value] = look._replace(limit=name)
    return looks


_CHECK: Final = Check(reason=REASON, measure=_differences, counts=True)


def compare_page(on: Judging, seen: DcgmSeen) -> Judging:
    """Compare one page with what NVML read last."""
    for uuid, values in seen.gpus.items():
        view = on.state.gpus.get(uuid)
        if view is not None and on.now - view.answered_at < _FRESH_S:
            both = Both(view.values, values, on.thresholds)
            on = judge_checks(on, (_CHECK,), both, SourceName.DCGM, view)
    return on


def end_comparison(on: Judging) -> Judging:
    """Forget what was compared once one of the two does not work, whoever had compared it."""
    spoken = (on.state.source(name) for name in (SourceName.NVML, SourceName.DCGM))
    if all(each in (None, SourceState.UP) for each in spoken):
        return on
    for view in on.state.gpus.values():
        if remembered(on.state, REASON, view):
            on = on.remember(REASON, {}, view)
    return close_where(on, lambda i: i.row.reason == REASON, NOT_COMPARED)
