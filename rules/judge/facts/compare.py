"""Beside NVML dcgm-exporter is compared: what both report of a GPU and lastingly report
differently.

Called by `judge` for each page while NVML is up, and when one of the two stops. A difference is
a record of Info that names both values: one of the sources is wrong, which one is not known here,
so it says nothing about the GPU and never drains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from rules.catalog.reason import ClosesKind
from rules.catalog.reasons import REASONS
from rules.catalog.signals import Signal
from rules.catalog.thresholds import Threshold
from rules.judge.closing import close_where
from rules.judge.facts.sample import number_of
from rules.judge.gauge import Gauge
from rules.judge.incident import Finding
from rules.judge.judging import Judging
from rules.judge.observation import DcgmSeen, SourceName, SourceState, Value
from rules.judge.recording import record
from rules.judge.state import GpuView, close_for, with_gpu

REASON: Final = "SourcesDiffer"
NOT_COMPARED: Final = "NotCompared"
_FRESH_S: Final = 120.0
"""Two polls of the tier that most of these signals are in. Source: gpuward."""


class Compared(NamedTuple):
    """A signal that both sources read from the driver; `threshold` names the tolerance."""

    signal: Signal
    threshold: str = REASON


COMPARED: Final = (
    Compared(Signal.REMAP_FAILURE),
    Compared(Signal.REMAP_PENDING),
    Compared(Signal.REMAPPED_ROWS_UNCORRECTABLE),
    Compared(Signal.RETIREMENT_PENDING),
    Compared(Signal.ECC_UNCORRECTED_VOLATILE),
    Compared(Signal.ECC_UNCORRECTED_AGGREGATE),
    Compared(Signal.SRAM_THRESHOLD_EXCEEDED),
    Compared(Signal.UNREPAIRABLE_MEMORY),
    Compared(Signal.RECOVERY_ACTION),
    Compared(Signal.INFOROM_VALID),
    Compared(Signal.TEMPERATURE, "SourcesDifferTemperature"),
)


def compare_page(on: Judging, seen: DcgmSeen) -> Judging:
    """Compare one page with what NVML read last."""
    for uuid, values in seen.gpus.items():
        view = on.state.gpus.get(uuid)
        if view is not None and on.now - view.answered_at < _FRESH_S:
            on = _compare(on, view, values)
    return on


def end_comparison(on: Judging) -> Judging:
    """Forget what was compared once one of the two does not work, whoever had compared it."""
    spoken = (on.state.source(name) for name in (SourceName.NVML, SourceName.DCGM))
    if all(each in (None, SourceState.UP) for each in spoken):
        return on
    if any(view.differs for view in on.state.gpus.values()):
        gpus = {key: replace(view, differs={}) for key, view in on.state.gpus.items()}
        on = on.then(replace(on.state, gpus=gpus))
    return on.then(close_where(on.state, lambda i: i.row.reason == REASON, on.now, NOT_COMPARED))


def _compare(on: Judging, view: GpuView, page: Mapping[Signal, Value]) -> Judging:
    differs = dict(view.differs)
    raised = []
    for signal, name in COMPARED:
        ours, theirs = number_of(view.values.get(signal)), number_of(page.get(signal))
        if ours is None or theirs is None:
            continue
        before = differs.get(signal, Gauge())
        differs[signal] = before.measure(abs(ours - theirs), on.thresholds[name])
        if differs[signal].raised and not before.raised:
            raised.append(f"{signal.value}: nvml {ours:g}, dcgm-exporter {theirs:g}")
    on = on.then(with_gpu(on.state, replace(view, differs=differs)))
    for evidence in raised:
        finding = Finding(
            at=on.now,
            row=REASONS[REASON],
            gpu=view.seen.uuid,
            pci=view.pci,
            source=SourceName.DCGM,
            evidence=evidence,
        )
        on = record(on, finding)
    if differs and all(
        _agrees(differs[s], on.thresholds[name]) for s, name in COMPARED if s in differs
    ):
        return on.then(
            close_for(
                on.state,
                view.seen.uuid,
                view.pci,
                lambda i: i.row.reason == REASON,
                on.now,
                ClosesKind.STATE,
            )
        )
    return on


def _agrees(gauge: Gauge, threshold: Threshold) -> bool:
    """Lastingly, too: an incident may be older than this memory of readings."""
    return not gauge.raised and sum(gauge.good) >= threshold.count
