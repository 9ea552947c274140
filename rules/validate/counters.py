"""Did a counter move while the GPU worked, and was the link to the host as wide as it can be.

Called by `judge`. Only what the test itself can have caused is judged; how a GPU was before is the
agent's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rules.catalog.signals import LOWEST_COMPUTE_STATE, Signal
from rules.validate.contract import Check, Verdict
from rules.validate.findings import CheckId, Counters

RISES: Final[Mapping[Signal, Verdict]] = {
    Signal.ECC_UNCORRECTED_VOLATILE: Verdict.FAIL,
    Signal.DRAM_UNCORRECTED_VOLATILE: Verdict.FAIL,
    Signal.SRAM_UNCORRECTED_VOLATILE: Verdict.FAIL,
    Signal.REMAPPED_ROWS_UNCORRECTABLE: Verdict.FAIL,
    Signal.RETIRED_PAGES_DOUBLE_BIT: Verdict.FAIL,
    Signal.REMAP_FAILURE: Verdict.FAIL,
    Signal.UNREPAIRABLE_MEMORY: Verdict.FAIL,
    Signal.SRAM_THRESHOLD_EXCEEDED: Verdict.FAIL,
    Signal.RECOVERY_ACTION: Verdict.FAIL,
    Signal.PCIE_FATAL_ERRORS: Verdict.FAIL,
    Signal.NVLINK_RECOVERIES_FAILED: Verdict.FAIL,
    Signal.REMAPPED_ROWS_CORRECTABLE: Verdict.DEGRADED,
    Signal.RETIRED_PAGES_SINGLE_BIT: Verdict.DEGRADED,
    Signal.REMAP_PENDING: Verdict.DEGRADED,
    Signal.RETIREMENT_PENDING: Verdict.DEGRADED,
    Signal.BANK_REMAP_PENDING: Verdict.DEGRADED,
    Signal.CHANNEL_REPAIR_PENDING: Verdict.DEGRADED,
    Signal.TPC_REPAIR_PENDING: Verdict.DEGRADED,
    Signal.PCIE_NON_FATAL_ERRORS: Verdict.DEGRADED,
    Signal.NVLINK_RECOVERIES: Verdict.DEGRADED,
    Signal.NVLINK_REPLAYS: Verdict.DEGRADED,
    Signal.HW_THERMAL_SLOWDOWN_TIME: Verdict.DEGRADED,
    Signal.POWER_BRAKE_TIME: Verdict.DEGRADED,
    Signal.PCIE_REPLAYS: Verdict.PASS,
    Signal.ECC_CORRECTED_VOLATILE: Verdict.PASS,
    Signal.NVLINK_CRC_ERRORS: Verdict.PASS,
}
"""What a rise during the test means. Corrected bits, CRC errors that a replay mended and PCIe
replays happen on sound parts; they are shown where they rose. A hardware slowdown for heat or an
external brake is no fault of arithmetic, and makes every rate above a wrong one.
"""


def counter_checks(
    chosen: Sequence[str],
    before: Sequence[Counters],
    after: Sequence[Counters],
    *,
    after_read: bool,
) -> Iterator[Check]:
    """One check for each GPU that kept still, and one for each counter that moved."""
    first = {one.gpu: one.values for one in before}
    last = {one.gpu: one.values for one in after}
    for gpu in chosen:
        if gpu not in first:
            yield _state(gpu, Verdict.UNKNOWN, "NVML gave no reading before the test")
        elif gpu not in last and after_read:
            yield _state(gpu, Verdict.FAIL, "NVML does not reach it any more after the test")
        elif gpu not in last:
            yield _state(gpu, Verdict.UNKNOWN, "NVML gave no reading after the test")
        else:
            yield from _moved(gpu, first[gpu], last[gpu])


def link_checks(during: Sequence[Counters]) -> Iterator[Check]:
    """The link to the host under load, against what card and slot allow.

    Its generation is judged in performance states P0 to P2 only, in which GPUs compute: below, the
    link rests.
    """
    for one in during:
        for check, now, most, unit in (
            (CheckId.PCIE_WIDTH, Signal.PCIE_WIDTH, Signal.PCIE_WIDTH_MAX, "lanes"),
            (CheckId.PCIE_GENERATION, Signal.PCIE_GENERATION, Signal.PCIE_GENERATION_MAX, ""),
        ):
            value, floor = one.values.get(now), one.values.get(most)
            if value is None or floor is None:
                continue
            state = one.values.get(Signal.PERFORMANCE_STATE, LOWEST_COMPUTE_STATE + 1)
            if now is Signal.PCIE_GENERATION and state > LOWEST_COMPUTE_STATE:
                continue
            narrow = value < floor
            yield Check(
                id=check,
                gpu=one.gpu,
                verdict=Verdict.DEGRADED if narrow else Verdict.PASS,
                value=value,
                unit=unit,
                floor=floor,
                note="below what card and slot allow, under load" if narrow else "",
            )


def _moved(
    gpu: str, first: Mapping[Signal, float], last: Mapping[Signal, float]
) -> Iterator[Check]:
    moved = False
    for signal, meaning in RISES.items():
        if signal not in first or signal not in last or first[signal] == last[signal]:
            continue
        moved = True
        rise = last[signal] - first[signal]
        if signal is Signal.RECOVERY_ACTION:
            # No amount, a code: 0 is that nothing is asked for.
            yield Check(
                id=signal,
                gpu=gpu,
                verdict=meaning if last[signal] else Verdict.PASS,
                value=last[signal],
                ceiling=0,
                note="the driver asks for another repair than before the test",
            )
        elif rise < 0:
            note = "fell during the test: the driver was loaded anew, or the GPU was reset"
            yield Check(id=signal, gpu=gpu, verdict=Verdict.UNKNOWN, value=rise, note=note)
        else:
            ceiling = None if meaning is Verdict.PASS else 0
            note = "rose during the test"
            yield Check(
                id=signal, gpu=gpu, verdict=meaning, value=rise, ceiling=ceiling, note=note
            )
    if not moved:
        yield _state(gpu, Verdict.PASS, "")


def _state(gpu: str, verdict: Verdict, note: str) -> Check:
    return Check(id=CheckId.COUNTERS, gpu=gpu, verdict=verdict, note=note)
