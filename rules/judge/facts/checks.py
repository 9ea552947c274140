"""The tables of checks on GPU readings: which signals, when they are bad, when good again.

The limits are in `rules.catalog.thresholds`, the meanings in `rules.catalog.reasons`. A check
returns None if its signals are absent.
"""

from collections.abc import Callable
from typing import Final

from rules.catalog import reasons
from rules.catalog.reason import ClosesKind, Reason
from rules.catalog.signals import LOWEST_COMPUTE_STATE, Signal
from rules.catalog.thresholds import Threshold
from rules.judge import recording
from rules.judge.facts import checks_fabric, checks_heat, checks_network, standing
from rules.judge.facts.standing import Check, CheckResult, Sample
from rules.judge.incident import Scope
from rules.judge.memory import Latch
from rules.judge.observation import PortCounter, Value
from rules.judge.state import GpuView, NodeState

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
RELIABILITY: Final = 0x400

_C2C_UP: Final = 1
LINK_DOWN: Final = 0
_TRAFFIC_DISABLED: Final = 3
LINKS_UP: Final = (1, 2, _TRAFFIC_DISABLED)
"""Active, in low power, and up without traffic."""
LINK_STATES: Final = (LINK_DOWN, *LINKS_UP)

RECOVERY_FAILED: Final = "NVLinkRecoveryFailed"
DRAIN_AND_RESET: Final = 4
"""The recovery action that asks for a reset once the GPU is empty. Source: NVML reference."""
_MEMORY_ERROR_XIDS: Final = frozenset({48, 94})
_ROW_REMAP_FAILED_XID: Final = 64

_HISTOGRAM_BINS: Final = 5
"""Banks by spare rows left: max, high, partial, low, none. Source: NVML reference."""

_MOST_PCIE_GENERATION: Final = 6


def _level_of(value: Value) -> float | None:
    """Return a reading as a number; of a histogram of spare rows the banks without any."""
    if isinstance(value, tuple) and len(value) == _HISTOGRAM_BINS:
        return standing.number_of(value[-1])
    return standing.number_of(value)


def _flag(
    reason: str,
    *signals: Signal,
    bad: Callable[[float, Threshold], bool] = lambda total, limit: total >= limit.value,
    heavier: Callable[[NodeState, GpuView], Reason | None] | None = None,
    caused_by: int | None = None,
) -> Check[Sample]:
    """Return the check of a flag or a counter that only grows: bad by the sum of its signals."""

    def measure(sample: Sample, limit: Threshold) -> CheckResult | None:
        if sample.values.keys().isdisjoint(signals):
            return None
        numbers = [n for s in signals if (n := _level_of(sample.values.get(s))) is not None]
        read = (f"{s.value}={sample.values[s]}" for s in signals if s in sample.values)
        return standing.flag(bad(sum(numbers), limit), " ".join(read)) if numbers else None

    return Check(
        reason=reason,
        measure=measure,
        memory=Latch,
        renews=True,
        heavier=heavier,
        caused_by=caused_by,
    )


def _pending_after_error(state: NodeState, view: GpuView) -> Reason | None:
    """Return the heavier row of a pending remap after a memory error, or if the driver asks."""
    after_error = any(
        incident.concerns(view.gpu_id)
        and not _MEMORY_ERROR_XIDS.isdisjoint(incident.xids)
        and incident.closed_by not in (recording.BEFORE_START, ClosesKind.RESET, ClosesKind.REBOOT)
        for incident in state.incidents
    )
    asked = view.action == DRAIN_AND_RESET
    return reasons.REASONS["RowRemapPendingAfterError"] if after_error or asked else None


FLAGS: Final = (
    _flag("RowRemapFailure", Signal.REMAP_FAILURE, caused_by=_ROW_REMAP_FAILED_XID),
    _flag("RowRemapPending", Signal.REMAP_PENDING, Signal.BANK_REMAP_PENDING,
          heavier=_pending_after_error),
    _flag("RowRemapMany", Signal.REMAPPED_ROWS_UNCORRECTABLE),
    _flag("EccUncorrectableVolatile", Signal.ECC_UNCORRECTED_VOLATILE),
    _flag("EccSramThreshold", Signal.SRAM_THRESHOLD_EXCEEDED),
    _flag("RetiredPagesPending", Signal.RETIREMENT_PENDING),
    _flag("RetiredPagesMany", Signal.RETIRED_PAGES_SINGLE_BIT, Signal.RETIRED_PAGES_DOUBLE_BIT),
    _flag("MemoryUnrepairable", Signal.UNREPAIRABLE_MEMORY),
    _flag("MemorySparesExhausted", Signal.REMAP_HISTOGRAM, Signal.BANK_GROUPS_EXHAUSTED),
    _flag("RepairPending", Signal.CHANNEL_REPAIR_PENDING, Signal.TPC_REPAIR_PENDING),
    _flag(RECOVERY_FAILED, Signal.NVLINK_RECOVERIES_FAILED),
    _flag("InfoRomCorrupt", Signal.INFOROM_VALID, bad=lambda total, _: total == 0),
)  # fmt: skip
"""Checks that a second bad reading raises and no good reading closes."""


def _pcie_width(sample: Sample, limit: Threshold) -> CheckResult | None:
    now, most = sample.number(Signal.PCIE_WIDTH), sample.last(Signal.PCIE_WIDTH_MAX)
    if now is None or not most or now <= 0:
        return None
    return standing.above(limit, most - now, f"pcie_width_lanes={now:g} of {most:g}")


def _pcie_generation(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Check the PCIe generation, only under load in compute states: an idle link saves power.

    Workstation and GeForce cards compute in state 2.
    """
    now, most = sample.number(Signal.PCIE_GENERATION), sample.last(Signal.PCIE_GENERATION_MAX)
    use = sample.last(Signal.UTILIZATION)
    if now is None or not most or now <= 0 or use is None:
        return None
    state = sample.last(Signal.PERFORMANCE_STATE) or 0
    if use < sample.thresholds["PCIeLoadUtilization"].value or state > LOWEST_COMPUTE_STATE:
        return None
    evidence = f"pcie_generation={now:g} of {most:g} at {use:g} % use in P{state:g}"
    return standing.above(limit, most - now, evidence)


def _pcie_replays(sample: Sample, _: Threshold) -> CheckResult | None:
    """Check PCIe replays by the best generation of the link: an idle link uses a lower one."""
    rate = sample.rates.get(Signal.PCIE_REPLAYS)
    width = sample.last(Signal.PCIE_WIDTH)
    generation = max(sample.best_generation, sample.last(Signal.PCIE_GENERATION_MAX) or 0.0)
    idle = generation <= 1 and not sample.last(Signal.PCIE_GENERATION_MAX)
    if rate is None or not generation or not width or idle:
        return None
    name = f"PCIeReplayRateGen{min(int(generation), _MOST_PCIE_GENERATION)}"
    if name not in sample.thresholds.thresholds:
        return None
    replays = rate * 60 / width
    bad = replays > sample.thresholds[name].value
    return CheckResult(bad, not bad, f"pcie_replays {replays:.2f} per lane and minute", name)


def _links(sample: Sample, limit: Threshold) -> CheckResult | None:
    if sample.links_down is None:
        return None
    evidence = f"nvlink_states: {sample.links_down} of the design's links down{_named(sample)}"
    return standing.above(limit, sample.links_down, evidence)


def _named(sample: Sample) -> str:
    """Return which links are down; empty if they include links that the GPU lacks by design."""
    states = sample.values.get(Signal.NVLINK_STATES)
    if not isinstance(states, tuple) or not sample.links_down:
        return ""
    down = [number for number, link in enumerate(states) if link == LINK_DOWN]
    if len(down) != sample.links_down:
        return ""
    return f" (link{'s' if len(down) > 1 else ''} {', '.join(map(str, down))})"


def _unknown_links(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Check for link states that this version does not know: neither up nor down."""
    states = sample.values.get(Signal.NVLINK_STATES)
    if not isinstance(states, tuple) or not states:
        return None
    unknown = sum(link is not None and link not in LINK_STATES for link in states)
    evidence = f"nvlink_states: {unknown} of {len(states)} links in a state that is not known"
    return standing.above(limit, unknown, evidence)


def _disabled_links(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Check for links that are up without traffic; a GPU without a partition uses none."""
    states = sample.values.get(Signal.NVLINK_STATES)
    if not isinstance(states, tuple) or not states or sample.booting:
        return None
    if checks_fabric.without_partition(sample.known):
        return None
    disabled = [number for number, link in enumerate(states) if link == _TRAFFIC_DISABLED]
    evidence = f"nvlink_states: {len(disabled)} of {len(states)} links carry no traffic"
    return standing.above(limit, len(disabled), evidence)


RETRAINS: Final = (
    Signal.NVLINK_RECOVERIES,
    Signal.NVLINK_REPLAYS,
    Signal.NVLINK_INTEGRITY_ERRORS,
    Signal.NVLINK_RECEIVE_ERRORS,
    Signal.NVLINK_MALFORMED_PACKETS,
    Signal.NVLINK_DROPPED_PACKETS,
    Signal.NVLINK_REMOTE_ERRORS,
)
"""Counters that stay at zero on a good NVLink."""


def _link_errors(sample: Sample, limit: Threshold) -> CheckResult | None:
    flits = sample.rates.get(Signal.NVLINK_CRC_ERRORS)
    data = sample.rates.get(Signal.NVLINK_CRC_DATA_ERRORS)
    retrains = [rate for signal in RETRAINS if (rate := sample.rates.get(signal)) is not None]
    if flits is None and data is None and not retrains:
        return None
    crc = (flits or 0) + (data or 0)
    per_minute = sum(retrains) * 60
    recovery = sample.thresholds["NVLinkRecoveryRate"]
    return CheckResult(
        crc >= limit.value or per_minute >= recovery.value,
        crc <= limit.clear and per_minute <= recovery.clear,
        f"nvlink: {crc:.1f} CRC errors a second, {per_minute:.1f} recoveries or bad packets a "
        "minute",
    )


def _bit_errors(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Check the driver's bit error ratio after error correction, of the worst link."""
    ratios = {
        signal: ratio
        for signal in (Signal.NVLINK_EFFECTIVE_BER, Signal.NVLINK_SYMBOL_BER)
        if (ratio := sample.number(signal)) is not None and 0 <= ratio <= 1
    }
    if not ratios:
        return None
    evidence = " ".join(f"{signal.value}={ratio:g}" for signal, ratio in ratios.items())
    return standing.above(limit, max(ratios.values()), evidence)


def _c2c_links(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Check for a C2C link down while another is up; with all down the board uses none."""
    states = sample.values.get(Signal.C2C_STATES)
    if not isinstance(states, tuple) or not any(states):
        return None
    down = sum(state is not None and state != _C2C_UP for state in states)
    return standing.above(limit, down, f"c2c_states: {down} of {len(states)} links down")


def _c2c_errors(sample: Sample, limit: Threshold) -> CheckResult | None:
    rate = sample.rates.get(Signal.C2C_ERRORS)
    return (
        None if rate is None else standing.above(limit, rate, f"c2c_errors: {rate:.1f} a second")
    )


def _gauge(
    reason: str,
    measure: Callable[[Sample, Threshold], CheckResult | None],
    scope: Scope = Scope.GPU,
) -> Check[Sample]:
    """Return the check of a noisy reading: N bad of M raise it, as many good close it."""
    return Check(reason=reason, measure=measure, scope=scope)


GAUGES: Final = (
    _gauge("ThermalSlowdown", checks_heat.clocks(
        HARDWARE_THERMAL | SOFTWARE_THERMAL,
        times=(Signal.HW_THERMAL_SLOWDOWN_TIME, Signal.SW_THERMAL_SLOWDOWN_TIME),
    )),
    _gauge("PowerBrake", checks_heat.clocks(POWER_BRAKE, times=(Signal.POWER_BRAKE_TIME,))),
    _gauge(
        "HardwareSlowdown",
        checks_heat.clocks(HARDWARE_SLOWDOWN, unless=HARDWARE_THERMAL | POWER_BRAKE),
    ),
    _gauge("ReliabilitySlowdown", checks_heat.alone(RELIABILITY)),
    _gauge("PowerLimitLow", checks_heat.power_limit),
    _gauge("TemperatureMargin", checks_heat.margin_left),
    _gauge("MemoryTemperature", checks_heat.memory_temperature),
    _gauge("PCIeWidthDegraded", _pcie_width),
    _gauge("PCIeGenDegraded", _pcie_generation),
    _gauge("PCIeReplayRate", _pcie_replays),
    _gauge("NVLinkDown", _links),
    _gauge("NVLinkStateUnknown", _unknown_links),
    _gauge("NVLinkTrafficDisabled", _disabled_links),
    _gauge("NVLinkErrorRate", _link_errors),
    _gauge("NVLinkBitErrors", _bit_errors),
    _gauge("C2CLinkDown", _c2c_links),
    _gauge("C2CErrorRate", _c2c_errors),
    _gauge("FabricStateFailed", checks_fabric.registered, Scope.DOMAIN),
    _gauge("FabricRegistrationPending", checks_fabric.registering),
    _gauge("FabricDegraded", checks_fabric.health, Scope.DOMAIN),
    _gauge("FabricManagerDisconnected", checks_fabric.manager, Scope.DOMAIN),
    _gauge("FabricPartitionUnassigned", checks_fabric.partition),
)  # fmt: skip

PORTS: Final = tuple(
    Check(reason=reason, measure=measure, scope=Scope.NODE)
    for reason, measure in (
        ("NetworkPortMissing", checks_network.missing),
        ("NetworkDeviceFileMissing", checks_network.device_files),
        ("NetworkLinkFlaps", checks_network.flaps),
        ("NetworkLinkRecovery", checks_network.rate(PortCounter.LINK_RECOVERIES, per_s=60)),
        ("NetworkSymbolErrors", checks_network.per_hour(PortCounter.SYMBOL_ERRORS)),
        ("NetworkReceiveErrors", checks_network.rate(PortCounter.RECEIVE_ERRORS)),
        ("RoceSlowRestart", checks_network.rate(PortCounter.SLOW_RESTARTS)),
        ("EfaPacketDrops", checks_network.rate(PortCounter.EFA_DROPS)),
        ("EfaRequestErrors", checks_network.rate(
            PortCounter.EFA_READ_ERRORS, PortCounter.EFA_WRITE_ERRORS, per_s=60)),
        ("EfaConnectionErrors", checks_network.rate(
            PortCounter.EFA_TIMEOUTS, PortCounter.EFA_IMPAIRED, PortCounter.EFA_UNRESPONSIVE)),
        ("EfaCommandsLost", checks_network.per_hour(PortCounter.EFA_COMMANDS_LOST)),
    )
)  # fmt: skip
"""Checks of each network port, with one incident of the node for all ports."""
