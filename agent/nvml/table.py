"""What is asked of the driver: one row per field or call, with who can answer it and how often.

Rows name pynvml's constants and symbols, never numbers: field numbers move between versions of the
binding. Nothing is asked below a row's driver branch or outside its architectures. Read by
`poller` and `events`; pure data.
"""

from __future__ import annotations

from typing import NamedTuple

from agent.nvml.messages import NvmlEventKind, Tier
from rules.catalog.signals import Signal

PERIODS_S = {Tier.FAST: 15.0, Tier.MEDIUM: 60.0, Tier.SLOW: 3600.0}

KNOWN, TURING, AMPERE, HOPPER, BLACKWELL = 1, 6, 7, 9, 10
"""Architecture numbers as nvmlDeviceGetArchitecture gives them (8 is Ada; 0 stands for unknown).
"""
LATEST = 1 << 30
FABRIC_V3_BRANCH = 580


class FieldRow(NamedTuple):
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


class CallRow(NamedTuple):
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


class EventRow(NamedTuple):
    """An event type to register for, where the GPU supports it."""

    kind: NvmlEventKind
    constant: str
    branch: int = 0


_F, _M, _L = Tier.FAST, Tier.MEDIUM, Tier.SLOW
_DEV = "NVML_FI_DEV_"

FIELDS = (
    FieldRow(Signal.RECOVERY_ACTION, _DEV + "GET_GPU_RECOVERY_ACTION", _F, branch=565),
    FieldRow(Signal.MEMORY_TEMPERATURE, _DEV + "MEMORY_TEMP", _F, first=AMPERE),
    FieldRow(Signal.POWER, _DEV + "POWER_INSTANT", _F, branch=535, scale=0.001),
    FieldRow(
        Signal.HW_THERMAL_SLOWDOWN_TIME,
        _DEV + "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
        _F,
        branch=570,
    ),
    FieldRow(
        Signal.SW_THERMAL_SLOWDOWN_TIME,
        _DEV + "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
        _F,
        branch=570,
    ),
    FieldRow(
        Signal.POWER_BRAKE_TIME,
        _DEV + "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
        _F,
        branch=570,
    ),
    FieldRow(Signal.ECC_MODE, _DEV + "ECC_CURRENT", _M),
    FieldRow(Signal.ECC_MODE_PENDING, _DEV + "ECC_PENDING", _M),
    FieldRow(Signal.ECC_CORRECTED_VOLATILE, _DEV + "ECC_SBE_VOL_TOTAL", _M),
    FieldRow(Signal.ECC_UNCORRECTED_VOLATILE, _DEV + "ECC_DBE_VOL_TOTAL", _M),
    FieldRow(Signal.ECC_CORRECTED_AGGREGATE, _DEV + "ECC_SBE_AGG_TOTAL", _M),
    FieldRow(Signal.ECC_UNCORRECTED_AGGREGATE, _DEV + "ECC_DBE_AGG_TOTAL", _M),
    FieldRow(Signal.DRAM_CORRECTED_VOLATILE, _DEV + "ECC_SBE_VOL_DEV", _M),
    FieldRow(Signal.DRAM_UNCORRECTED_VOLATILE, _DEV + "ECC_DBE_VOL_DEV", _M),
    FieldRow(Signal.DRAM_CORRECTED_AGGREGATE, _DEV + "ECC_SBE_AGG_DEV", _M),
    FieldRow(Signal.DRAM_UNCORRECTED_AGGREGATE, _DEV + "ECC_DBE_AGG_DEV", _M),
    FieldRow(Signal.REMAPPED_ROWS_CORRECTABLE, _DEV + "REMAPPED_COR", _M, first=AMPERE),
    FieldRow(Signal.REMAPPED_ROWS_UNCORRECTABLE, _DEV + "REMAPPED_UNC", _M, first=AMPERE),
    FieldRow(Signal.REMAP_PENDING, _DEV + "REMAPPED_PENDING", _M, first=AMPERE),
    FieldRow(Signal.REMAP_FAILURE, _DEV + "REMAPPED_FAILURE", _M, first=AMPERE),
    FieldRow(
        Signal.BANK_REMAPS_ACTIVE, _DEV + "ACTIVE_BANK_REMAPPINGS", _M, branch=615, first=HOPPER
    ),
    FieldRow(
        Signal.BANK_REMAP_PENDING, _DEV + "PENDING_BANK_REMAPPING", _M, branch=615, first=HOPPER
    ),
    FieldRow(
        Signal.BANK_GROUPS_EXHAUSTED,
        _DEV + "BANK_REMAPPER_HISTOGRAM_NONE",
        _M,
        branch=615,
        first=HOPPER,
    ),
    FieldRow(Signal.RETIRED_PAGES_SINGLE_BIT, _DEV + "RETIRED_SBE", _M, last=TURING),
    FieldRow(Signal.RETIRED_PAGES_DOUBLE_BIT, _DEV + "RETIRED_DBE", _M, last=TURING),
    FieldRow(Signal.RETIREMENT_PENDING, _DEV + "RETIRED_PENDING", _M, last=TURING),
    FieldRow(Signal.PCIE_REPLAYS, _DEV + "PCIE_REPLAY_COUNTER", _M),
    FieldRow(
        Signal.PCIE_CORRECTABLE_ERRORS, _DEV + "PCIE_COUNT_CORRECTABLE_ERRORS", _M, branch=535
    ),
    FieldRow(Signal.PCIE_NON_FATAL_ERRORS, _DEV + "PCIE_COUNT_NON_FATAL_ERROR", _M, branch=535),
    FieldRow(Signal.PCIE_FATAL_ERRORS, _DEV + "PCIE_COUNT_FATAL_ERROR", _M, branch=535),
    FieldRow(Signal.NVLINK_STATES, _DEV + "NVLINK_GET_STATE", _M, first=HOPPER, per_link=True),
    FieldRow(
        Signal.NVLINK_CRC_ERRORS, _DEV + "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", _M, last=HOPPER - 1
    ),
    FieldRow(
        Signal.NVLINK_CRC_DATA_ERRORS,
        _DEV + "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        _M,
        first=KNOWN,
        last=HOPPER - 1,
    ),
    FieldRow(Signal.NVLINK_REPLAYS, _DEV + "NVLINK_REPLAY_ERROR_COUNT_TOTAL", _M, last=HOPPER - 1),
    FieldRow(
        Signal.NVLINK_RECOVERIES, _DEV + "NVLINK_RECOVERY_ERROR_COUNT_TOTAL", _M, last=HOPPER - 1
    ),
    FieldRow(
        Signal.NVLINK_CRC_ERRORS,
        _DEV + "NVLINK_ERROR_DL_CRC",
        _M,
        first=HOPPER,
        last=HOPPER,
        per_link=True,
    ),
    FieldRow(
        Signal.NVLINK_REPLAYS,
        _DEV + "NVLINK_ERROR_DL_REPLAY",
        _M,
        first=HOPPER,
        last=HOPPER,
        per_link=True,
    ),
    FieldRow(
        Signal.NVLINK_RECOVERIES,
        _DEV + "NVLINK_ERROR_DL_RECOVERY",
        _M,
        first=HOPPER,
        last=HOPPER,
        per_link=True,
    ),
    *(
        FieldRow(
            signal, _DEV + "NVLINK_COUNT_" + name, _M, branch=560, first=BLACKWELL, per_link=True
        )
        for signal, name in (
            (Signal.NVLINK_RECEIVE_ERRORS, "RCV_ERRORS"),
            (Signal.NVLINK_MALFORMED_PACKETS, "MALFORMED_PACKET_ERRORS"),
            (Signal.NVLINK_DROPPED_PACKETS, "BUFFER_OVERRUN_ERRORS"),
            (Signal.NVLINK_REMOTE_ERRORS, "RCV_REMOTE_ERRORS"),
            (Signal.NVLINK_INTEGRITY_ERRORS, "LOCAL_LINK_INTEGRITY_ERRORS"),
            (Signal.NVLINK_RECOVERIES, "LINK_RECOVERY_EVENTS"),
            (Signal.NVLINK_RECOVERIES_FAILED, "LINK_RECOVERY_FAILED_EVENTS"),
            (Signal.NVLINK_SYMBOL_ERRORS, "SYMBOL_ERRORS"),
            (Signal.NVLINK_EFFECTIVE_ERRORS, "EFFECTIVE_ERRORS"),
            (Signal.NVLINK_EFFECTIVE_BER, "EFFECTIVE_BER"),
            (Signal.NVLINK_SYMBOL_BER, "SYMBOL_BER"),
        )
    ),
    FieldRow(Signal.C2C_ERRORS, _DEV + "C2C_LINK_ERROR_INTR", _M, branch=570, first=HOPPER),
    FieldRow(
        Signal.SLOWDOWN_MARGIN, _DEV + "TEMPERATURE_SLOWDOWN_TLIMIT", _L, branch=550, first=AMPERE
    ),
)

_SRAM = (
    Signal.SRAM_CORRECTED_VOLATILE,
    Signal.SRAM_UNCORRECTED_VOLATILE,
    Signal.SRAM_CORRECTED_AGGREGATE,
    Signal.SRAM_UNCORRECTED_AGGREGATE,
    Signal.SRAM_THRESHOLD_EXCEEDED,
)
_FABRIC = (
    Signal.FABRIC_STATE,
    Signal.FABRIC_STATUS,
    Signal.FABRIC_CLIQUE,
    Signal.FABRIC_CLUSTER,
    Signal.FABRIC_HEALTH_MASK,
)
_THRESHOLDS = (
    Signal.SLOWDOWN_TEMPERATURE,
    Signal.SHUTDOWN_TEMPERATURE,
    Signal.MEMORY_MAX_TEMPERATURE,
)

CALLS = (
    CallRow((Signal.TEMPERATURE,), "nvmlDeviceGetTemperature", "temperature_old", _F, until=565),
    CallRow((Signal.TEMPERATURE,), "nvmlDeviceGetTemperatureV", "temperature", _F, branch=565),
    CallRow((Signal.THERMAL_MARGIN,), "nvmlDeviceGetMarginTemperature", "margin", _F, branch=570),
    CallRow(
        (Signal.CLOCK_EVENT_REASONS,),
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "clock_reasons_old",
        _F,
        until=535,
    ),
    CallRow(
        (Signal.CLOCK_EVENT_REASONS,),
        "nvmlDeviceGetCurrentClocksEventReasons",
        "clock_reasons",
        _F,
        branch=535,
    ),
    CallRow((Signal.POWER,), "nvmlDeviceGetPowerUsage", "power_old", _F, until=535),
    CallRow(_SRAM, "nvmlDeviceGetSramEccErrorStatus", "sram", _M, branch=550, first=AMPERE),
    CallRow(
        (Signal.REMAP_HISTOGRAM,),
        "nvmlDeviceGetRowRemapperHistogram",
        "remap_histogram",
        _M,
        first=AMPERE,
    ),
    CallRow(
        (Signal.CHANNEL_REPAIR_PENDING, Signal.TPC_REPAIR_PENDING),
        "nvmlDeviceGetRepairStatus",
        "repair",
        _M,
        branch=580,
        first=HOPPER,
    ),
    CallRow(
        (Signal.UNREPAIRABLE_MEMORY,),
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        "unrepairable_memory",
        _M,
        branch=590,
        first=AMPERE,
    ),
    CallRow(
        (Signal.PCIE_GENERATION,), "nvmlDeviceGetCurrPcieLinkGeneration", "pcie_generation", _M
    ),
    CallRow(
        (Signal.PCIE_GENERATION_MAX,),
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "pcie_generation_max",
        _M,
    ),
    CallRow((Signal.PCIE_WIDTH,), "nvmlDeviceGetCurrPcieLinkWidth", "pcie_width", _M),
    CallRow((Signal.PCIE_WIDTH_MAX,), "nvmlDeviceGetMaxPcieLinkWidth", "pcie_width_max", _M),
    CallRow((Signal.PERFORMANCE_STATE,), "nvmlDeviceGetPerformanceState", "performance_state", _M),
    CallRow((Signal.UTILIZATION,), "nvmlDeviceGetUtilizationRates", "utilization", _M),
    CallRow((Signal.SM_CLOCK,), "nvmlDeviceGetClockInfo", "sm_clock", _M),
    CallRow((Signal.PERSISTENCE_MODE,), "nvmlDeviceGetPersistenceMode", "persistence", _M),
    CallRow((Signal.MIG_MODE,), "nvmlDeviceGetMigMode", "mig_mode", _M, first=AMPERE),
    CallRow(
        (Signal.NVLINK_STATES,), "nvmlDeviceGetNvLinkState", "link_states", _M, last=HOPPER - 1
    ),
    CallRow(
        (Signal.C2C_STATES,),
        "nvmlDeviceGetFieldValues",
        "c2c_states",
        _M,
        branch=535,
        first=HOPPER,
    ),
    CallRow(
        _FABRIC,
        "nvmlDeviceGetGpuFabricInfoV",
        "fabric_v2",
        _M,
        branch=550,
        until=FABRIC_V3_BRANCH,
        first=HOPPER,
    ),
    CallRow(
        (*_FABRIC, Signal.FABRIC_HEALTH_SUMMARY),
        "nvmlDeviceGetGpuFabricInfoV",
        "fabric_v3",
        _M,
        branch=FABRIC_V3_BRANCH,
        first=HOPPER,
    ),
    CallRow(_THRESHOLDS, "nvmlDeviceGetTemperatureThreshold", "thresholds", _L),
    CallRow((Signal.INFOROM_VALID,), "nvmlDeviceValidateInforom", "inforom_valid", _L),
    CallRow((Signal.INFOROM_IMAGE,), "nvmlDeviceGetInforomImageVersion", "inforom_image", _L),
)

EVENTS = (
    EventRow(NvmlEventKind.XID, "nvmlEventTypeXidCriticalError"),
    EventRow(NvmlEventKind.DOUBLE_BIT_ECC, "nvmlEventTypeDoubleBitEccError"),
    EventRow(NvmlEventKind.MIG_CONFIG_CHANGE, "nvmlEventMigConfigChange", branch=450),
    EventRow(NvmlEventKind.SINGLE_BIT_STORM, "nvmlEventTypeSingleBitEccErrorStorm", branch=560),
    EventRow(NvmlEventKind.DRAM_RETIREMENT, "nvmlEventTypeDramRetirementEvent", branch=560),
    EventRow(
        NvmlEventKind.DRAM_RETIREMENT_FAILURE, "nvmlEventTypeDramRetirementFailure", branch=560
    ),
    EventRow(NvmlEventKind.NON_FATAL_POISON, "nvmlEventTypeNonFatalPoisonError", branch=560),
    EventRow(NvmlEventKind.FATAL_POISON, "nvmlEventTypeFatalPoisonError", branch=560),
    EventRow(NvmlEventKind.GPU_UNAVAILABLE, "nvmlEventTypeGpuUnavailableError", branch=565),
    EventRow(NvmlEventKind.RECOVERY_ACTION, "nvmlEventTypeGpuRecoveryAction", branch=565),
)

SYSTEM_EVENTS_BRANCH = 575
SYSTEM_EVENTS = (
    EventRow(
        NvmlEventKind.DRIVER_UNBIND, "nvmlSystemEventTypeGpuDriverUnbind", SYSTEM_EVENTS_BRANCH
    ),
    EventRow(NvmlEventKind.DRIVER_BIND, "nvmlSystemEventTypeGpuDriverBind", SYSTEM_EVENTS_BRANCH),
)

CONFIRMED = frozenset(
    (
        Signal.PRESENCE,
        Signal.RECOVERY_ACTION,
        Signal.ECC_UNCORRECTED_VOLATILE,
        Signal.ECC_UNCORRECTED_AGGREGATE,
        Signal.DRAM_UNCORRECTED_VOLATILE,
        Signal.DRAM_UNCORRECTED_AGGREGATE,
        Signal.SRAM_UNCORRECTED_VOLATILE,
        Signal.SRAM_UNCORRECTED_AGGREGATE,
        Signal.SRAM_THRESHOLD_EXCEEDED,
        Signal.REMAPPED_ROWS_UNCORRECTABLE,
        Signal.REMAP_PENDING,
        Signal.REMAP_FAILURE,
        Signal.REMAP_HISTOGRAM,
        Signal.BANK_REMAP_PENDING,
        Signal.BANK_GROUPS_EXHAUSTED,
        Signal.UNREPAIRABLE_MEMORY,
        Signal.CHANNEL_REPAIR_PENDING,
        Signal.TPC_REPAIR_PENDING,
        Signal.RETIRED_PAGES_SINGLE_BIT,
        Signal.RETIRED_PAGES_DOUBLE_BIT,
        Signal.RETIREMENT_PENDING,
        Signal.NVLINK_STATES,
        Signal.C2C_STATES,
        Signal.FABRIC_STATE,
        Signal.FABRIC_HEALTH_MASK,
        Signal.INFOROM_VALID,
    )
)
"""Flags, monotonic counters and states: a change is read once more at once, not a period later."""
