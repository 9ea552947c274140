"""The checks on readings as tables: which signal, what is bad, what is good again.

Read by ``judge_readings``. Numbers stand in ``rules.thresholds``, meanings in
``rules.reason_table``; a check answers None where its signals are absent or say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rules.observation import Value
from rules.signals import Signal
from rules.thresholds import Rules

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
_FABRIC_NOT_STARTED: Final = 1
FABRIC_COMPLETED: Final = 3
_FABRIC_FAILED: Final = frozenset({_FABRIC_NOT_STARTED, 4, 5, 6})
"""From 4 on as DCGM spells it: failed, not recognised, NVML too old. Source: DCGM header."""
_FABRIC_UNHEALTHY: Final = 2
_FABRIC_LIMITED: Final = 3

# The fabric's health mask: fields of two bits each, then the configuration in four. Source: NVML
# reference.
_FABRIC_FIELDS: Final = (0, 2, 4, 6)
"""Where degraded bandwidth, route recovery, unhealthy route and access timeout begin."""
_FABRIC_TRUE: Final = 1
_FABRIC_CONFIGURATION: Final = 8
_FABRIC_CONFIGURATION_WRONG: Final = 2
"""This or more names what is wrong; 0 is not supported, 1 is nothing wrong."""

_HISTOGRAM_BINS: Final = 5
"""Banks by spare rows left: max, high, partial, low, none. Source: NVML reference."""

_NANOSECONDS: Final = 1e9

_NO_TEMPERATURE: Final = 150
"""No silicon works at this many degrees Celsius: a reading of it is a broken sensor's."""
_LOWEST_SLOWDOWN: Final = 85
"""Where the driver names no slowdown temperature: no data-centre GPU slows down below this many
degrees Celsius. Source: gpuward, from published thermal limits."""

_LARGEST: Final = float(1 << 64)
"""No counter of the driver is wider than 64 bits."""

_MOST_PCIE_GENERATION: Final = 6


def number_of(value: Value) -> float | None:
    """A reading as a number; None for what is absent, no number, or none that exists."""
    if isinstance(value, int | float) and abs(value) <= _LARGEST:  # NaN fails this, too
        return float(value)
    return None


def _level_of(value: Value) -> float | None:
    """The same for a histogram of spare rows, too: its last bin, the banks without any."""
    if isinstance(value, tuple) and len(value) == _HISTOGRAM_BINS:
        return number_of(value[-1])
    return number_of(value)


class Measured(NamedTuple):
    """One reading against one threshold."""

    bad: bool
    good: bool
    threshold: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One poll: its ``values``, the last ``known`` ones, rates per second, links down.

    ``best_generation`` is the highest PCIe generation its link was ever seen at.
    """

    values: Mapping[Signal, Value]
    known: Mapping[Signal, Value]
    rates: Mapping[Signal, float]
    links_down: int | None
    rules: Rules
    best_generation: float = 0.0

    def number(self, signal: Signal) -> float | None:
        """A number of this poll; None when absent or not asked."""
        return number_of(self.values.get(signal))

    def last(self, signal: Signal) -> float | None:
        """The latest number of a signal that is polled less often."""
        return number_of(self.known.get(signal))


@dataclass(frozen=True, slots=True)
class LatchCheck:
    """A flag or a counter that only grows; ``threshold`` names its number, else any non-zero."""

    reason: str
    signals: tuple[Signal, ...]
    threshold: str = ""
    bad_when_zero: bool = False

    def bad(self, values: Mapping[Signal, Value], rules: Rules) -> bool | None:
        """Whether the sum of its signals is at the limit."""
        numbers = [n for s in self.signals if (n := _level_of(values.get(s))) is not None]
        if not numbers:
            return None
        if self.bad_when_zero:
            return sum(numbers) == 0
        limit = rules[self.threshold].value if self.threshold else 1
        return sum(numbers) >= limit

    def evidence(self, values: Mapping[Signal, Value]) -> str:
        """The readings as ``signal=value``."""
        return " ".join(f"{s.value}={values[s]}" for s in self.signals if s in values)


@dataclass(frozen=True, slots=True)
class GaugeCheck:
    """A noisy reading; ``domain`` marks a finding of the NVLink domain."""

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
    LatchCheck("InfoRomCorrupt", (Signal.INFOROM_VALID,), bad_when_zero=True),
)  # fmt: skip


def _clocks(
    mask: int, threshold: str, *, unless: int = 0, times: tuple[Signal, ...] = ()
) -> Callable[[Sample], Measured | None]:
    """A slowdown that is on now, or that took too large a share of the time since the last poll."""

    def measure(sample: Sample) -> Measured | None:
        reasons = sample.number(Signal.CLOCK_EVENT_REASONS)
        if reasons is None:
            return None
        bits = int(reasons)
        limit = sample.rules["SlowdownShare"]
        share = max((sample.rates.get(time, 0.0) for time in times), default=0.0) / _NANOSECONDS
        on = bool(bits & mask) and not bits & unless
        evidence = f"clock_event_reasons={bits:#x}"
        if share:
            evidence += f", {share:.0%} of the time since the last reading"
        return Measured(
            on or share >= limit.value, not on and share <= limit.clear, threshold, evidence
        )

    return measure


def _margin(sample: Sample) -> Measured | None:
    """Degrees left to hardware slowdown: the fewer of T.Limit's and the two temperatures'.

    A T.Limit that is used up is believed only where the temperature is near slowdown, too.
    """
    left: list[float] = []
    evidence = []
    temperature, slowdown = _temperature(sample), sample.last(Signal.SLOWDOWN_TEMPERATURE)
    if temperature is not None and slowdown:
        left.append(slowdown - temperature)
        evidence.append(
            f"temperature_celsius={temperature:g} slowdown_temperature_celsius={slowdown:g}"
        )
    limit = sample.rules["TemperatureMargin"]
    margin = sample.number(Signal.THERMAL_MARGIN)
    if margin is not None:
        by_limit = margin - (sample.last(Signal.SLOWDOWN_MARGIN) or 0.0)
        cool = _is_cool(sample, temperature, slowdown)
        if by_limit > limit.value or not cool:
            left.append(by_limit)
            evidence.append(f"thermal_margin_celsius={margin:g} ({by_limit:g} above slowdown)")
        elif not left:
            said = f"thermal_margin_celsius={margin:g} at {temperature:g} degrees"
            return Measured(False, True, "TemperatureMargin", said)
    if not left:
        return None
    fewest = min(left)
    return Measured(
        fewest <= limit.value, fewest >= limit.clear, "TemperatureMargin", ", ".join(evidence)
    )


def _temperature(sample: Sample) -> float | None:
    """The GPU's temperature, if it is one that a working GPU can have."""
    now = sample.number(Signal.TEMPERATURE)
    return now if now is not None and 0 < now < _NO_TEMPERATURE else None


def _is_cool(sample: Sample, temperature: float | None, slowdown: float | None) -> bool:
    """Whether nothing here can be near its slowdown, whatever a margin says."""
    if temperature is None:
        return False
    memory = sample.last(Signal.MEMORY_TEMPERATURE)
    hottest = max(temperature, memory if memory is not None else temperature)
    return hottest <= (slowdown or _LOWEST_SLOWDOWN) - sample.rules["TemperatureDoubt"].value


def _memory_temperature(sample: Sample) -> Measured | None:
    now = sample.number(Signal.MEMORY_TEMPERATURE)
    most = sample.last(Signal.MEMORY_MAX_TEMPERATURE)
    if now is None or not most:
        return None
    limit = sample.rules["MemoryTemperature"]
    evidence = f"memory_temperature_celsius={now:g} of {most:g}"
    return Measured(
        most - now <= limit.value, most - now >= limit.clear, "MemoryTemperature", evidence
    )


def _pcie_width(sample: Sample) -> Measured | None:
    now, most = sample.number(Signal.PCIE_WIDTH), sample.last(Signal.PCIE_WIDTH_MAX)
    if now is None or not most or now <= 0:
        return None
    limit = sample.rules["PCIeWidthDegraded"]
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
    if use < sample.rules["PCIeLoadUtilization"].value or sample.last(Signal.PERFORMANCE_STATE):
        return None
    limit = sample.rules["PCIeGenDegraded"]
    evidence = f"pcie_generation={now:g} of {most:g} at {use:g} % use"
    return Measured(
        most - now >= limit.value, most - now <= limit.clear, "PCIeGenDegraded", evidence
    )


def _pcie_replays(sample: Sample) -> Measured | None:
    """By the best generation of the link: it rests at a lower one as soon as traffic ends."""
    rate = sample.rates.get(Signal.PCIE_REPLAYS)
    lanes = sample.last(Signal.PCIE_WIDTH)
    generation = max(sample.best_generation, sample.last(Signal.PCIE_GENERATION_MAX) or 0.0)
    if rate is None or not generation or not lanes:
        return None
    name = f"PCIeReplayRateGen{min(int(generation), _MOST_PCIE_GENERATION)}"
    if name not in sample.rules.thresholds:
        return None
    per_lane = rate * 60 / lanes
    bad = per_lane > sample.rules[name].value
    return Measured(bad, not bad, name, f"pcie_replays {per_lane:.2f} per lane and minute")


def _links(sample: Sample) -> Measured | None:
    if sample.links_down is None:
        return None
    limit = sample.rules["NVLinkDown"]
    return Measured(
        sample.links_down >= limit.value,
        sample.links_down <= limit.clear,
        "NVLinkDown",
        f"nvlink_states: {sample.links_down} of the design's links down",
    )


def _link_errors(sample: Sample) -> Measured | None:
    crc = sample.rates.get(Signal.NVLINK_CRC_ERRORS)
    retrains = [
        rate
        for signal in (
            Signal.NVLINK_RECOVERIES,
            Signal.NVLINK_REPLAYS,
            Signal.NVLINK_RECOVERIES_FAILED,
            Signal.NVLINK_INTEGRITY_ERRORS,
            Signal.NVLINK_RECEIVE_ERRORS,
        )
        if (rate := sample.rates.get(signal)) is not None
    ]
    if crc is None and not retrains:
        return None
    per_minute = sum(retrains) * 60
    crc_limit, recovery = sample.rules["NVLinkErrorRate"], sample.rules["NVLinkRecoveryRate"]
    return Measured(
        (crc or 0) >= crc_limit.value or per_minute >= recovery.value,
        (crc or 0) <= crc_limit.clear and per_minute <= recovery.clear,
        "NVLinkErrorRate",
        f"nvlink: {crc or 0:.1f} CRC errors a second, {per_minute:.1f} recoveries or bad packets a minute",
    )


def _c2c_links(sample: Sample) -> Measured | None:
    """A chip-to-chip link down beside one that is up; all down is a board that uses none."""
    states = sample.values.get(Signal.C2C_STATES)
    if not isinstance(states, tuple) or not any(states):
        return None
    down = sum(state == 0 for state in states)
    limit = sample.rules["C2CLinkDown"]
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
    limit = sample.rules["C2CErrorRate"]
    return Measured(
        rate >= limit.value,
        rate <= limit.clear,
        "C2CErrorRate",
        f"c2c_errors: {rate:.1f} a second",
    )


def _fabric_state(sample: Sample) -> Measured | None:
    state = sample.number(Signal.FABRIC_STATE)
    if state is None or state == 0:
        return None
    status = sample.last(Signal.FABRIC_STATUS) or 0
    bad = state in _FABRIC_FAILED or (state == FABRIC_COMPLETED and status != 0)
    good = state == FABRIC_COMPLETED and status == 0
    return Measured(
        bad, good, "FabricStateFailed", f"fabric_state={state:g} fabric_status={status:g}"
    )


def _fabric_health(sample: Sample) -> Measured | None:
    """By the driver's own summary; drivers before it (R580) give the mask alone."""
    summary = sample.number(Signal.FABRIC_HEALTH_SUMMARY)
    if summary:
        bad = summary in (_FABRIC_UNHEALTHY, _FABRIC_LIMITED)
        return Measured(bad, not bad, "FabricDegraded", f"fabric_health_summary={summary:g}")
    mask = sample.number(Signal.FABRIC_HEALTH_MASK)
    if not mask or mask < 0 or sample.last(Signal.FABRIC_HEALTH_SUMMARY):
        return None
    bits = int(mask)
    configuration = bits >> _FABRIC_CONFIGURATION & 0b1111
    bad = configuration >= _FABRIC_CONFIGURATION_WRONG or any(
        bits >> field & 0b11 == _FABRIC_TRUE for field in _FABRIC_FIELDS
    )
    return Measured(bad, not bad, "FabricDegraded", f"fabric_health_mask={bits:#x}")


GAUGES: Final = (
    GaugeCheck("ThermalSlowdown", _clocks(
        HARDWARE_THERMAL | SOFTWARE_THERMAL, "ThermalSlowdown",
        times=(Signal.HW_THERMAL_SLOWDOWN_TIME, Signal.SW_THERMAL_SLOWDOWN_TIME),
    )),
    GaugeCheck("PowerBrake", _clocks(POWER_BRAKE, "PowerBrake", times=(Signal.POWER_BRAKE_TIME,))),
    GaugeCheck("HardwareSlowdown", _clocks(
        HARDWARE_SLOWDOWN, "HardwareSlowdown", unless=HARDWARE_THERMAL | POWER_BRAKE
    )),
    GaugeCheck("TemperatureMargin", _margin),
    GaugeCheck("MemoryTemperature", _memory_temperature),
    GaugeCheck("PCIeWidthDegraded", _pcie_width),
    GaugeCheck("PCIeGenDegraded", _pcie_generation),
    GaugeCheck("PCIeReplayRate", _pcie_replays),
    GaugeCheck("NVLinkDown", _links),
    GaugeCheck("NVLinkErrorRate", _link_errors),
    GaugeCheck("C2CLinkDown", _c2c_links),
    GaugeCheck("C2CErrorRate", _c2c_errors),
    GaugeCheck("FabricStateFailed", _fabric_state, domain=True),
    GaugeCheck("FabricDegraded", _fabric_health, domain=True),
)  # fmt: skip
