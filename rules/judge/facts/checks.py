"""The checks on readings as tables: which signal, what is bad, what is good again.

Read by `judge.facts.readings`. Numbers stand in `rules.catalog.thresholds`, meanings in
`rules.catalog.reasons`; a check answers None where its signals are absent or say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rules.catalog.signals import Signal
from rules.catalog.thresholds import Thresholds
from rules.judge.facts.checks_heat import clocks, margin_left, memory_temperature
from rules.judge.facts.sample import Measured, Sample, number_of
from rules.judge.observation import Value

VOLATILE: Final = (
    Signal.ECC_CORRECTED_VOLATILE,
    Signal.ECC_UNCORRECTED_VOLATILE,
    Signal.DRAM_CORRECTED_VOLATILE,
    Signal.DRAM_UNCORRECTED_VOLATILE,
    Signal.SRAM_CORRECTED_VOLATILE,
    Signal.SRAM_UNCORRECTED_VOLATILE,
)
"""Counters that start at zero with each driver load or GPU reset."""

# nvmlClocksEventReason bits. Source: NVML reference.
HARDWARE_SLOWDOWN: Final = 0x08
SOFTWARE_THERMAL: Final = 0x20
HARDWARE_THERMAL: Final = 0x40
POWER_BRAKE: Final = 0x80

# nvmlGpuFabricState and its health summary. Source: NVML reference.
FABRIC_COMPLETED: Final = 3
_FABRIC_HEALTHY: Final = 1

# The fabric's health mask: fields of two bits each, then the configuration in four. Source: NVML
# reference.
_FABRIC_FIELDS: Final = (0, 2, 4, 6)
"""Where degraded bandwidth, route recovery, unhealthy route and access timeout begin."""
_FABRIC_FINE: Final = (0, 2)
"""Not supported, and not so; 1 is so, and 3 nobody has explained."""
_FABRIC_CONFIGURATION: Final = 8
_FABRIC_CONFIGURATION_WRONG: Final = 2
"""This or more names what is wrong; 0 is not supported, 1 is nothing wrong."""

_C2C_UP: Final = 1
LINK_DOWN: Final = 0
LINKS_UP: Final = (1, 2, 3)
"""Active, asleep to save power, and up without traffic."""
LINK_STATES: Final = (LINK_DOWN, *LINKS_UP)

_HISTOGRAM_BINS: Final = 5
"""Banks by spare rows left: max, high, partial, low, none. Source: NVML reference."""

_MOST_PCIE_GENERATION: Final = 6


def _level_of(value: Value) -> float | None:
    """A number; of a histogram of spare rows its last bin, the banks without any."""
    if isinstance(value, tuple) and len(value) == _HISTOGRAM_BINS:
        return number_of(value[-1])
    return number_of(value)


@dataclass(frozen=True, slots=True)
class LatchCheck:
    """A flag or a counter that only grows; `threshold` names its number, else any non-zero.

    `proves_reset`: nothing but a reset of the GPU makes it good again.
    """

    reason: str
    signals: tuple[Signal, ...]
    threshold: str = ""
    bad_when_zero: bool = False
    proves_reset: bool = True

    def bad(self, values: Mapping[Signal, Value], thresholds: Thresholds) -> bool | None:
        """Whether the sum of its signals is at the limit."""
        numbers = [n for s in self.signals if (n := _level_of(values.get(s))) is not None]
        if not numbers:
            return None
        if self.bad_when_zero:
            return sum(numbers) == 0
        limit = thresholds[self.threshold].value if self.threshold else 1
        return sum(numbers) >= limit

    def evidence(self, values: Mapping[Signal, Value]) -> str:
        """The readings as `signal=value`."""
        return " ".join(f"{s.value}={values[s]}" for s in self.signals if s in values)


@dataclass(frozen=True, slots=True)
class GaugeCheck:
    """A noisy reading; `domain` marks a finding of the NVLink domain."""

    reason: str
    measure: Callable[[Sample], Measured | None]
    domain: bool = field(default=False)


LATCHES: Final = (
    LatchCheck("RowRemapFailure", (Signal.REMAP_FAILURE,), "RowRemapFailure"),
    LatchCheck("RowRemapPending", (Signal.REMAP_PENDING, Signal.BANK_REMAP_PENDING), "RowRemapPending"),
    LatchCheck("RowRemapMany", (Signal.REMAPPED_ROWS_UNCORRECTABLE,), "RowRemapMany"),
    LatchCheck("EccUncorrectableVolatile", (Signal.ECC_UNCORRECTED_VOLATILE,), "EccUncorrectableVolatile"),
    LatchCheck("EccSramThreshold", (Signal.SRAM_THRESHOLD_EXCEEDED,), "EccSramThreshold"),
    LatchCheck("RetiredPagesPending", (Signal.RETIREMENT_PENDING,), "RetiredPagesPending"),
    LatchCheck("RetiredPagesMany", (Signal.RETIRED_PAGES_SINGLE_BIT, Signal.RETIRED_PAGES_DOUBLE_BIT), "RetiredPagesMany"),
    LatchCheck("MemoryUnrepairable", (Signal.UNREPAIRABLE_MEMORY,)),
    LatchCheck("MemorySparesExhausted", (Signal.REMAP_HISTOGRAM, Signal.BANK_GROUPS_EXHAUSTED), "MemorySparesExhausted"),
    LatchCheck("RepairPending", (Signal.CHANNEL_REPAIR_PENDING, Signal.TPC_REPAIR_PENDING), "RepairPending"),
    LatchCheck("NVLinkRecoveryFailed", (Signal.NVLINK_RECOVERIES_FAILED,), proves_reset=False),
    LatchCheck("InfoRomCorrupt", (Signal.INFOROM_VALID,), bad_when_zero=True),
)  # fmt: skip


def _pcie_width(sample: Sample) -> Measured | None:
    now, most = sample.number(Signal.PCIE_WIDTH), sample.last(Signal.PCIE_WIDTH_MAX)
    if now is None or not most or now <= 0:
        return None
    limit = sample.thresholds["PCIeWidthDegraded"]
    evidence = f"pcie_width_lanes={now:g} of {most:g}"
    return Measured(
        most - now >= limit.value, most - now <= limit.clear, "PCIeWidthDegraded", evidence
    )


def _pcie_generation(sample: Sample) -> Measured | None:
    """Only under load: an idle GPU lowers the generation to save power."""
    now, most = sample.number(Signal.PCIE_GENERATION), sample.last(Signal.PCIE_GENERATION_MAX)
    use = sample.last(Signal.UTILIZATION)
    if now is None or not most or now <= 0 or use is None:
        return None
    if use < sample.thresholds["PCIeLoadUtilization"].value or sample.last(
        Signal.PERFORMANCE_STATE
    ):
        return None
    limit = sample.thresholds["PCIeGenDegraded"]
    evidence = f"pcie_generation={now:g} of {most:g} at {use:g} % use"
    return Measured(
        most - now >= limit.value, most - now <= limit.clear, "PCIeGenDegraded", evidence
    )


def _pcie_replays(sample: Sample) -> Measured | None:
    """By the best generation of the link: it rests at a lower one as soon as traffic ends."""
    rate = sample.rates.get(Signal.PCIE_REPLAYS)
    lanes = sample.last(Signal.PCIE_WIDTH)
    generation = max(sample.best_generation, sample.last(Signal.PCIE_GENERATION_MAX) or 0.0)
    rests = generation <= 1 and not sample.last(Signal.PCIE_GENERATION_MAX)  # as far as one knows
    if rate is None or not generation or not lanes or rests:
        return None
    name = f"PCIeReplayRateGen{min(int(generation), _MOST_PCIE_GENERATION)}"
    if name not in sample.thresholds.thresholds:
        return None
    per_lane = rate * 60 / lanes
    bad = per_lane > sample.thresholds[name].value
    return Measured(bad, not bad, name, f"pcie_replays {per_lane:.2f} per lane and minute")


def _links(sample: Sample) -> Measured | None:
    if sample.links_down is None:
        return None
    limit = sample.thresholds["NVLinkDown"]
    return Measured(
        sample.links_down >= limit.value,
        sample.links_down <= limit.clear,
        "NVLinkDown",
        f"nvlink_states: {sample.links_down} of the design's links down",
    )


def _unknown_links(sample: Sample) -> Measured | None:
    """A state of a link that this version does not know is neither up nor down."""
    states = sample.values.get(Signal.NVLINK_STATES)
    if not isinstance(states, tuple) or not states:
        return None
    unknown = sum(link is not None and link not in LINK_STATES for link in states)
    limit = sample.thresholds["NVLinkStateUnknown"]
    evidence = f"nvlink_states: {unknown} of {len(states)} links in a state that is not known"
    return Measured(unknown >= limit.value, unknown <= limit.clear, "NVLinkStateUnknown", evidence)


RETRAINS: Final = (
    Signal.NVLINK_RECOVERIES,
    Signal.NVLINK_REPLAYS,
    Signal.NVLINK_INTEGRITY_ERRORS,
    Signal.NVLINK_RECEIVE_ERRORS,
    Signal.NVLINK_MALFORMED_PACKETS,
    Signal.NVLINK_DROPPED_PACKETS,
    Signal.NVLINK_REMOTE_ERRORS,
)
"""What a sound NVLink never counts."""


def _link_errors(sample: Sample) -> Measured | None:
    flits = sample.rates.get(Signal.NVLINK_CRC_ERRORS)
    data = sample.rates.get(Signal.NVLINK_CRC_DATA_ERRORS)
    retrains = [rate for signal in RETRAINS if (rate := sample.rates.get(signal)) is not None]
    if flits is None and data is None and not retrains:
        return None
    crc = (flits or 0) + (data or 0)
    per_minute = sum(retrains) * 60
    crc_limit, recovery = (
        sample.thresholds["NVLinkErrorRate"],
        sample.thresholds["NVLinkRecoveryRate"],
    )
    return Measured(
        crc >= crc_limit.value or per_minute >= recovery.value,
        crc <= crc_limit.clear and per_minute <= recovery.clear,
        "NVLinkErrorRate",
        f"nvlink: {crc:.1f} CRC errors a second, {per_minute:.1f} recoveries or bad packets a minute",
    )


def _bit_errors(sample: Sample) -> Measured | None:
    """What error correction leaves wrong on the worst link; the driver's ratio, not a rate of
    ours.
    """
    ratios = {
        signal: ratio
        for signal in (Signal.NVLINK_EFFECTIVE_BER, Signal.NVLINK_SYMBOL_BER)
        if (ratio := sample.number(signal)) is not None and 0 <= ratio <= 1
    }
    if not ratios:
        return None
    limit, worst = sample.thresholds["NVLinkBitErrors"], max(ratios.values())
    evidence = " ".join(f"{signal.value}={ratio:g}" for signal, ratio in ratios.items())
    return Measured(worst >= limit.value, worst <= limit.clear, "NVLinkBitErrors", evidence)


def _c2c_links(sample: Sample) -> Measured | None:
    """A chip-to-chip link down beside one that is up; all down is a board that uses none."""
    states = sample.values.get(Signal.C2C_STATES)
    if not isinstance(states, tuple) or not any(states):
        return None
    down = sum(state is not None and state != _C2C_UP for state in states)
    limit = sample.thresholds["C2CLinkDown"]
    return Measured(
        down >= limit.value,
        down <= limit.clear,
        "C2CLinkDown",
        f"c2c_states: {down} of {len(states)} links down",
    )


def _c2c_errors(sample: Sample) -> Measured | None:
    rate = sample.rates.get(Signal.C2C_ERRORS)
    if rate is None:
        return None
    limit = sample.thresholds["C2CErrorRate"]
    return Measured(
        rate >= limit.value,
        rate <= limit.clear,
        "C2CErrorRate",
        f"c2c_errors: {rate:.1f} a second",
    )


def _fabric_state(sample: Sample) -> Measured | None:
    """Registered is good; what never gets there, or is in a state that nobody knows, is not."""
    state = sample.number(Signal.FABRIC_STATE)
    if state is None or state == 0:
        return None
    if state != FABRIC_COMPLETED and sample.booting:
        return None
    status = sample.last(Signal.FABRIC_STATUS) or 0
    good = state == FABRIC_COMPLETED and status == 0
    return Measured(
        not good, good, "FabricStateFailed", f"fabric_state={state:g} fabric_status={status:g}"
    )


def _fabric_health(sample: Sample) -> Measured | None:
    """By the driver's own summary; drivers before it (R580) give the mask alone."""
    summary = sample.number(Signal.FABRIC_HEALTH_SUMMARY)
    if summary:
        bad = summary != _FABRIC_HEALTHY
        return Measured(bad, not bad, "FabricDegraded", f"fabric_health_summary={summary:g}")
    mask = sample.number(Signal.FABRIC_HEALTH_MASK)
    if not mask or mask < 0 or sample.last(Signal.FABRIC_HEALTH_SUMMARY):
        return None
    bits = int(mask)
    configuration = bits >> _FABRIC_CONFIGURATION & 0b1111
    bad = configuration >= _FABRIC_CONFIGURATION_WRONG or any(
        bits >> field & 0b11 not in _FABRIC_FINE for field in _FABRIC_FIELDS
    )
    return Measured(bad, not bad, "FabricDegraded", f"fabric_health_mask={bits:#x}")


GAUGES: Final = (
    GaugeCheck("ThermalSlowdown", clocks(
        HARDWARE_THERMAL | SOFTWARE_THERMAL, "ThermalSlowdown",
        times=(Signal.HW_THERMAL_SLOWDOWN_TIME, Signal.SW_THERMAL_SLOWDOWN_TIME),
    )),
    GaugeCheck("PowerBrake", clocks(POWER_BRAKE, "PowerBrake", times=(Signal.POWER_BRAKE_TIME,))),
    GaugeCheck("HardwareSlowdown", clocks(
        HARDWARE_SLOWDOWN, "HardwareSlowdown", unless=HARDWARE_THERMAL | POWER_BRAKE
    )),
    GaugeCheck("TemperatureMargin", margin_left),
    GaugeCheck("MemoryTemperature", memory_temperature),
    GaugeCheck("PCIeWidthDegraded", _pcie_width),
    GaugeCheck("PCIeGenDegraded", _pcie_generation),
    GaugeCheck("PCIeReplayRate", _pcie_replays),
    GaugeCheck("NVLinkDown", _links),
    GaugeCheck("NVLinkStateUnknown", _unknown_links),
    GaugeCheck("NVLinkErrorRate", _link_errors),
    GaugeCheck("NVLinkBitErrors", _bit_errors),
    GaugeCheck("C2CLinkDown", _c2c_links),
    GaugeCheck("C2CErrorRate", _c2c_errors),
    GaugeCheck("FabricStateFailed", _fabric_state, domain=True),
    GaugeCheck("FabricDegraded", _fabric_health, domain=True),
)  # fmt: skip
