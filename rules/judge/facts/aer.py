"""The kernel's own PCIe error counters of each GPU: an uncorrected error more is a finding.

Called by `judge`. It finds what a kernel log that overran or was read too late no longer tells.
The first look at a GPU is the base, and so is one after a counter went back: growth is never
measured across a boot or another function. Corrected errors are counted and never judged here.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from rules.catalog.reasons import REASONS
from rules.judge.facts.standing import is_known
from rules.judge.incident import Finding
from rules.judge.judging import Judging
from rules.judge.observation import AerCounters, AerSeen, SourceName
from rules.judge.recording import record
from rules.judge.state import GpuView, find_gpu

UNCORRECTED: Final = "PcieAerUncorrected"
_MAX_FUNCTIONS: Final = 64


def judge_aer(on: Judging, seen: AerSeen) -> Judging:
    """Take one look at the counters; those of a function that is no known GPU are left out."""
    for counters in seen.functions[:_MAX_FUNCTIONS]:
        view = find_gpu(on.state, "", counters.address)
        if view is not None:
            on = _look(on, view, counters, seen.at)
    return on


def _look(on: Judging, view: GpuView, counters: AerCounters, at: float) -> Judging:
    base, last = view.aer_base, view.aer
    fresh = replace(view, aer=counters, aer_base=counters)
    if base is None or last is None or base.address != counters.address:
        return on.with_gpu(fresh)
    if _uncorrected(counters) < _uncorrected(last):
        return on.with_gpu(fresh)
    limit = on.thresholds[UNCORRECTED].value
    grown = _uncorrected(last) - _uncorrected(base)
    if grown < limit:  # more since this look waits for the confirming one
        return on.with_gpu(replace(view, aer=counters))
    on = on.with_gpu(replace(fresh, aer_base=last))
    finding = Finding(
        at=at,
        row=REASONS[UNCORRECTED],
        gpu=view.seen.uuid,
        pci=view.pci,
        source=SourceName.PCI,
        evidence=(
            f"sysfs: {grown} uncorrected PCIe errors more "
            f"(nonfatal={last.nonfatal or 0} fatal={last.fatal or 0})"
        ),
    )
    return record(on, replace(finding, counts=not is_known(on.state, finding)))


def _uncorrected(counters: AerCounters) -> int:
    return (counters.nonfatal or 0) + (counters.fatal or 0)
