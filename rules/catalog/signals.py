"""The signals of a GPU: the names of all readings that collectors report and rules read.

`agent/nvml` and `agent/sources/dcgm.py` report them, `rules` checks them, metrics are named after
them. Their meaning, unit and sources are in `data/signals.csv`.

A reading is a number (`gauge`, `counter`), 0 or 1 (`flag`), a code or a text (`enum`), or a list,
depending on `shape`. What could not be read is absent, not zero, with the NVML return code.
"""

from enum import StrEnum
from typing import NamedTuple

LOWEST_COMPUTE_STATE = 2
"""Data center GPUs compute in performance state P0, workstation and GeForce cards in P2."""


class SignalKind(StrEnum):
    """How a signal changes, which determines how rules read it (N of M, second read, rate)."""

    GAUGE = "gauge"
    COUNTER = "counter"
    FLAG = "flag"
    ENUM = "enum"


class SignalShape(StrEnum):
    """Whether a reading is one value or a list, and the meaning of the list's index."""

    SCALAR = "scalar"
    PER_LINK = "per_link"
    HISTOGRAM = "histogram"


class Signal(StrEnum):
    """The signals by their published names. `signal_table` documents each one."""

    PRESENCE = "presence"
    RECOVERY_ACTION = "recovery_action"

    TEMPERATURE = "temperature_celsius"
    MEMORY_TEMPERATURE = "memory_temperature_celsius"
    THERMAL_MARGIN = "thermal_margin_celsius"
    SLOWDOWN_TEMPERATURE = "slowdown_temperature_celsius"
    SHUTDOWN_TEMPERATURE = "shutdown_temperature_celsius"
    MEMORY_MAX_TEMPERATURE = "memory_max_temperature_celsius"
    SLOWDOWN_MARGIN = "slowdown_margin_celsius"

    POWER = "power_watts"
    POWER_LIMIT = "power_limit_watts"
    POWER_LIMIT_DEFAULT = "power_limit_default_watts"
    SM_CLOCK = "sm_clock_megahertz"
    CLOCK_EVENT_REASONS = "clock_event_reasons"
    HW_THERMAL_SLOWDOWN_TIME = "hw_thermal_slowdown_nanoseconds"
    SW_THERMAL_SLOWDOWN_TIME = "sw_thermal_slowdown_nanoseconds"
    POWER_BRAKE_TIME = "power_brake_nanoseconds"
    PERFORMANCE_STATE = "performance_state"
    UTILIZATION = "utilization_percent"
    PERSISTENCE_MODE = "persistence_mode"

    ECC_MODE = "ecc_mode"
    ECC_MODE_PENDING = "ecc_mode_pending"
    ECC_CORRECTED_VOLATILE = "ecc_corrected_volatile"
    ECC_UNCORRECTED_VOLATILE = "ecc_uncorrected_volatile"
    ECC_CORRECTED_AGGREGATE = "ecc_corrected_aggregate"
    ECC_UNCORRECTED_AGGREGATE = "ecc_uncorrected_aggregate"
    DRAM_CORRECTED_VOLATILE = "dram_corrected_volatile"
    DRAM_UNCORRECTED_VOLATILE = "dram_uncorrected_volatile"
    DRAM_CORRECTED_AGGREGATE = "dram_corrected_aggregate"
    DRAM_UNCORRECTED_AGGREGATE = "dram_uncorrected_aggregate"
    SRAM_CORRECTED_VOLATILE = "sram_corrected_volatile"
    SRAM_UNCORRECTED_VOLATILE = "sram_uncorrected_volatile"
    SRAM_CORRECTED_AGGREGATE = "sram_corrected_aggregate"
    SRAM_UNCORRECTED_AGGREGATE = "sram_uncorrected_aggregate"
    SRAM_THRESHOLD_EXCEEDED = "sram_threshold_exceeded"

    REMAPPED_ROWS_CORRECTABLE = "remapped_rows_correctable"
    REMAPPED_ROWS_UNCORRECTABLE = "remapped_rows_uncorrectable"
    REMAP_PENDING = "remap_pending"
    REMAP_FAILURE = "remap_failure"
    REMAP_HISTOGRAM = "remap_histogram"
    BANK_REMAPS_ACTIVE = "bank_remaps_active"
    BANK_REMAP_PENDING = "bank_remap_pending"
    BANK_GROUPS_EXHAUSTED = "bank_groups_exhausted"
    UNREPAIRABLE_MEMORY = "unrepairable_memory"
    CHANNEL_REPAIR_PENDING = "channel_repair_pending"
    TPC_REPAIR_PENDING = "tpc_repair_pending"
    RETIRED_PAGES_SINGLE_BIT = "retired_pages_single_bit"
    RETIRED_PAGES_DOUBLE_BIT = "retired_pages_double_bit"
    RETIREMENT_PENDING = "retirement_pending"

    PCIE_GENERATION = "pcie_generation"
    PCIE_GENERATION_MAX = "pcie_generation_max"
    PCIE_WIDTH = "pcie_width_lanes"
    PCIE_WIDTH_MAX = "pcie_width_max_lanes"
    PCIE_REPLAYS = "pcie_replays"
    PCIE_CORRECTABLE_ERRORS = "pcie_correctable_errors"
    PCIE_NON_FATAL_ERRORS = "pcie_non_fatal_errors"
    PCIE_FATAL_ERRORS = "pcie_fatal_errors"

    NVLINK_STATES = "nvlink_states"
    NVLINK_CRC_ERRORS = "nvlink_crc_errors"
    NVLINK_CRC_DATA_ERRORS = "nvlink_crc_data_errors"
    NVLINK_REPLAYS = "nvlink_replays"
    NVLINK_RECOVERIES = "nvlink_recoveries"
    NVLINK_RECEIVE_ERRORS = "nvlink_receive_errors"
    NVLINK_MALFORMED_PACKETS = "nvlink_malformed_packets"
    NVLINK_DROPPED_PACKETS = "nvlink_dropped_packets"
    NVLINK_REMOTE_ERRORS = "nvlink_remote_errors"
    NVLINK_INTEGRITY_ERRORS = "nvlink_integrity_errors"
    NVLINK_RECOVERIES_FAILED = "nvlink_recoveries_failed"
    NVLINK_SYMBOL_ERRORS = "nvlink_symbol_errors"
    NVLINK_EFFECTIVE_ERRORS = "nvlink_effective_errors"
    NVLINK_EFFECTIVE_BER = "nvlink_effective_bit_error_ratio"
    NVLINK_SYMBOL_BER = "nvlink_symbol_bit_error_ratio"
    NVLINK_RAW_BER = "nvlink_raw_bit_error_ratio"
    NVLINK_RETRANSMITTED_BLOCKS = "nvlink_retransmitted_blocks"
    C2C_STATES = "c2c_states"
    C2C_ERRORS = "c2c_errors"

    FABRIC_STATE = "fabric_state"
    FABRIC_STATUS = "fabric_status"
    FABRIC_CLIQUE = "fabric_clique"
    FABRIC_CLUSTER = "fabric_cluster"
    FABRIC_HEALTH_MASK = "fabric_health_mask"
    FABRIC_HEALTH_SUMMARY = "fabric_health_summary"

    INFOROM_VALID = "inforom_valid"
    INFOROM_IMAGE = "inforom_image"
    MIG_MODE = "mig_mode"


BIT_ERROR_RATIOS = frozenset(
    (Signal.NVLINK_EFFECTIVE_BER, Signal.NVLINK_SYMBOL_BER, Signal.NVLINK_RAW_BER)
)
"""Signals that the driver packs; the worst of several links counts."""


def bit_error_ratio(packed: float) -> float:
    """Return NVLink's packed bit error ratio as a number.

    Four bits are the mantissa, eight bits a negative exponent of ten. 4095 (1.5e-254) means no
    error. Source: nvml.h.
    """
    bits = int(packed)
    return (bits >> 8 & 0xF) * 10.0 ** -(bits & 0xFF)


class SourceState(StrEnum):
    """The state of a data source: Absent by configuration or hardware, Released on request."""

    UP = "Up"
    DOWN = "Down"
    ABSENT = "Absent"
    RELEASED = "Released"


class EventKind(StrEnum):
    """The kinds of driver events; only the data of `XID` and `OPERATIONAL` is used, an Xid."""

    XID = "xid"
    DOUBLE_BIT_ECC = "double_bit_ecc"
    SINGLE_BIT_STORM = "single_bit_storm"
    DRAM_RETIREMENT = "dram_retirement"
    DRAM_RETIREMENT_FAILURE = "dram_retirement_failure"
    NON_FATAL_POISON = "non_fatal_poison"
    FATAL_POISON = "fatal_poison"
    GPU_UNAVAILABLE = "gpu_unavailable"
    RECOVERY_ACTION = "recovery_action"
    MIG_CONFIG_CHANGE = "mig_config_change"
    OPERATIONAL = "operational"
    """A GPU Operational Event."""


class SignalInfo(NamedTuple):
    """The kind, unit, meaning and sources of a signal.

    `nvml` names the NVML call or field constant, `dcgm` the dcgm-exporter fields with the same
    value, newest name first (DCGM 4.6 renamed most of them).
    """

    kind: SignalKind
    unit: str
    meaning: str
    nvml: str
    dcgm: tuple[str, ...] = ()
    shape: SignalShape = SignalShape.SCALAR


def signal_table() -> dict[Signal, SignalInfo]:
    """Return the documentation of every signal, from `data/signals.csv`."""
    # Imported here: the NVML child needs the names only and must stay small.
    import csv

    from rules.catalog.data_file import data_file

    text = data_file("signals.csv").decode()
    return {
        Signal(row["signal"]): SignalInfo(
            kind=SignalKind(row["kind"]),
            shape=SignalShape(row["shape"]),
            unit=row["unit"],
            meaning=row["meaning"],
            nvml=row["nvml"],
            dcgm=tuple(row["dcgm"].split()),
        )
        for row in csv.DictReader(text.splitlines())
    }


def dcgm_signals() -> dict[str, Signal]:
    """Return every dcgm-exporter field name, old and new, with its signal."""
    return {name: signal for signal, info in signal_table().items() for name in info.dcgm}


def driver_branch(version: str | None) -> int | None:
    """Return 580 for `580.82.07`; None if the version does not start with a number."""
    head = (version or "").lstrip("rRvV").partition(".")[0]
    return int(head) if head.isascii() and head.isdigit() and len(head) <= 4 else None
