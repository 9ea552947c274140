"""Which metric each GPU signal becomes: name, unit, labels, help, in one table.

Read by `agent.daemon.gpu_metrics` alone. Base units and Prometheus' naming: seconds, hertz, ratios
of 1, and `_total` for what only grows. A signal without a row is judged but not exported.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rules.catalog.signals import Signal


class Family(NamedTuple):
    """One metric: its help, its type and the labels it has besides those of the GPU.

    `flag` is a count or flag of what is broken or waits: 0 on a sound GPU. `fixed` never changes
    while the GPU is the same.
    """

    help: str
    counter: bool = False
    labels: tuple[str, ...] = ()
    flag: bool = False
    fixed: bool = False


class Row(NamedTuple):
    """One signal in a metric; `factor` converts to base units.

    `lasting` counters are in the basic set at 0 too: alerts compare them with a week ago, and what
    was not there then is not known to have been 0.
    """

    family: str
    labels: tuple[str, ...] = ()
    factor: float = 1.0
    lasting: bool = False


class ListRow(NamedTuple):
    """One metric of a reading that is a list: a series for each place.

    `places` names them (else their number does); `up` are the states that count as 1. The basic
    set leaves out the places that are as they should be: up, or else 0 or `usual`.
    """

    name: str
    help: str
    label: str
    places: tuple[str, ...] = ()
    up: tuple[int, ...] = ()
    usual: frozenset[int] = frozenset()


GPU_LABELS: Final = ("uuid", "pci", "index")

FAMILIES: Final[dict[str, Family]] = {
    "gpuward_gpu_temperature_celsius": Family("Temperature by sensor.", labels=("sensor",)),
    "gpuward_gpu_temperature_limit_celsius": Family(
        "Temperature at which the GPU slows down, shuts down or its memory is out of range.",
        labels=("limit",),
        fixed=True,
    ),
    "gpuward_gpu_thermal_margin_celsius": Family(
        "Distance to the nearest slowdown threshold; falls as the GPU gets hotter."
    ),
    "gpuward_gpu_power_watts": Family("Power drawn by the board."),
    "gpuward_gpu_sm_clock_hertz": Family("Clock of the multiprocessors."),
    "gpuward_gpu_utilization_ratio": Family("Share of time with a kernel running."),
    "gpuward_gpu_slowdown_seconds": Family(
        "Time spent slowed down since the driver was loaded, by cause.",
        counter=True,
        labels=("cause",),
    ),
    "gpuward_gpu_ecc_errors": Family(
        "ECC errors by memory, since the driver was loaded (volatile) or ever (aggregate).",
        counter=True,
        labels=("memory", "kind", "scope"),
    ),
    "gpuward_gpu_sram_threshold_exceeded": Family(
        "1 when uncorrectable SRAM errors went over the vendor's threshold.", flag=True
    ),
    "gpuward_gpu_remapped_rows": Family(
        "Memory rows that were replaced, by cause.", counter=True, labels=("cause",)
    ),
    "gpuward_gpu_repair_pending": Family(
        "1 when a repair waits for a GPU reset, by what is repaired.",
        labels=("repair",),
        flag=True,
    ),
    "gpuward_gpu_row_remap_failed": Family("1 when a row could not be replaced.", flag=True),
    "gpuward_gpu_unrepairable_memory": Family("1 when memory is beyond repair.", flag=True),
    "gpuward_gpu_remapped_banks": Family("Memory banks that were replaced.", counter=True),
    "gpuward_gpu_bank_groups_exhausted": Family(
        "Groups of memory banks without a spare bank.", flag=True
    ),
    "gpuward_gpu_retired_pages": Family(
        "Memory pages taken out of use, by cause.", counter=True, labels=("cause",)
    ),
    "gpuward_gpu_pcie_generation": Family("PCIe generation, now and at most.", labels=("value",)),
    "gpuward_gpu_pcie_lanes": Family("PCIe lanes, now and at most.", labels=("value",)),
    "gpuward_gpu_pcie_replays": Family("PCIe packets that were sent again.", counter=True),
    "gpuward_gpu_pcie_errors": Family("PCIe errors by kind.", counter=True, labels=("kind",)),
    "gpuward_gpu_nvlink_errors": Family(
        "NVLink errors of all links, by kind.", counter=True, labels=("kind",)
    ),
    "gpuward_gpu_nvlink_bit_error_ratio": Family(
        "Share of bits (effective) or symbols that error correction leaves wrong, worst NVLink.",
        labels=("kind",),
        flag=True,
    ),
    "gpuward_gpu_c2c_errors": Family("CRC errors of all links between GPU and CPU.", counter=True),
    "gpuward_gpu_recovery_action": Family(
        "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain peers, 4 drain and reset."
    ),
    "gpuward_gpu_fabric_state": Family(
        "Registration with the fabric: 0 not supported, 1 not started, 2 in progress, 3 completed."
    ),
}

ROWS: Final[dict[Signal, Row]] = {
    Signal.TEMPERATURE: Row("gpuward_gpu_temperature_celsius", ("gpu",)),
    Signal.MEMORY_TEMPERATURE: Row("gpuward_gpu_temperature_celsius", ("memory",)),
    Signal.SLOWDOWN_TEMPERATURE: Row("gpuward_gpu_temperature_limit_celsius", ("slowdown",)),
    Signal.SHUTDOWN_TEMPERATURE: Row("gpuward_gpu_temperature_limit_celsius", ("shutdown",)),
    Signal.MEMORY_MAX_TEMPERATURE: Row("gpuward_gpu_temperature_limit_celsius", ("memory",)),
    Signal.THERMAL_MARGIN: Row("gpuward_gpu_thermal_margin_celsius"),
    Signal.POWER: Row("gpuward_gpu_power_watts"),
    Signal.SM_CLOCK: Row("gpuward_gpu_sm_clock_hertz", factor=1e6),
    Signal.UTILIZATION: Row("gpuward_gpu_utilization_ratio", factor=0.01),
    Signal.HW_THERMAL_SLOWDOWN_TIME: Row(
        "gpuward_gpu_slowdown_seconds", ("hardware_thermal",), 1e-9
    ),
    Signal.SW_THERMAL_SLOWDOWN_TIME: Row(
        "gpuward_gpu_slowdown_seconds", ("software_thermal",), 1e-9
    ),
    Signal.POWER_BRAKE_TIME: Row("gpuward_gpu_slowdown_seconds", ("power_brake",), 1e-9),
    Signal.ECC_CORRECTED_VOLATILE: Row("gpuward_gpu_ecc_errors", ("all", "corrected", "volatile")),
    Signal.ECC_UNCORRECTED_VOLATILE: Row(
        "gpuward_gpu_ecc_errors", ("all", "uncorrected", "volatile")
    ),
    Signal.ECC_CORRECTED_AGGREGATE: Row(
        "gpuward_gpu_ecc_errors", ("all", "corrected", "aggregate")
    ),
    Signal.ECC_UNCORRECTED_AGGREGATE: Row(
        "gpuward_gpu_ecc_errors", ("all", "uncorrected", "aggregate"), lasting=True
    ),
    Signal.DRAM_CORRECTED_AGGREGATE: Row(
        "gpuward_gpu_ecc_errors", ("dram", "corrected", "aggregate")
    ),
    Signal.DRAM_UNCORRECTED_AGGREGATE: Row(
        "gpuward_gpu_ecc_errors", ("dram", "uncorrected", "aggregate")
    ),
    Signal.SRAM_CORRECTED_AGGREGATE: Row(
        "gpuward_gpu_ecc_errors", ("sram", "corrected", "aggregate")
    ),
    Signal.SRAM_UNCORRECTED_AGGREGATE: Row(
        "gpuward_gpu_ecc_errors", ("sram", "uncorrected", "aggregate")
    ),
    Signal.SRAM_THRESHOLD_EXCEEDED: Row("gpuward_gpu_sram_threshold_exceeded"),
    Signal.REMAPPED_ROWS_CORRECTABLE: Row(
        "gpuward_gpu_remapped_rows", ("correctable",), lasting=True
    ),
    Signal.REMAPPED_ROWS_UNCORRECTABLE: Row(
        "gpuward_gpu_remapped_rows", ("uncorrectable",), lasting=True
    ),
    Signal.REMAP_PENDING: Row("gpuward_gpu_repair_pending", ("row",)),
    Signal.BANK_REMAP_PENDING: Row("gpuward_gpu_repair_pending", ("bank",)),
    Signal.CHANNEL_REPAIR_PENDING: Row("gpuward_gpu_repair_pending", ("channel",)),
    Signal.TPC_REPAIR_PENDING: Row("gpuward_gpu_repair_pending", ("tpc",)),
    Signal.RETIREMENT_PENDING: Row("gpuward_gpu_repair_pending", ("page",)),
    Signal.REMAP_FAILURE: Row("gpuward_gpu_row_remap_failed"),
    Signal.UNREPAIRABLE_MEMORY: Row("gpuward_gpu_unrepairable_memory"),
    Signal.RETIRED_PAGES_SINGLE_BIT: Row("gpuward_gpu_retired_pages", ("single_bit",)),
    Signal.RETIRED_PAGES_DOUBLE_BIT: Row("gpuward_gpu_retired_pages", ("double_bit",)),
    Signal.BANK_REMAPS_ACTIVE: Row("gpuward_gpu_remapped_banks"),
    Signal.BANK_GROUPS_EXHAUSTED: Row("gpuward_gpu_bank_groups_exhausted"),
    Signal.PCIE_GENERATION: Row("gpuward_gpu_pcie_generation", ("now",)),
    Signal.PCIE_GENERATION_MAX: Row("gpuward_gpu_pcie_generation", ("max",)),
    Signal.PCIE_WIDTH: Row("gpuward_gpu_pcie_lanes", ("now",)),
    Signal.PCIE_WIDTH_MAX: Row("gpuward_gpu_pcie_lanes", ("max",)),
    Signal.PCIE_REPLAYS: Row("gpuward_gpu_pcie_replays"),
    Signal.PCIE_CORRECTABLE_ERRORS: Row("gpuward_gpu_pcie_errors", ("correctable",)),
    Signal.PCIE_NON_FATAL_ERRORS: Row("gpuward_gpu_pcie_errors", ("non_fatal",)),
    Signal.PCIE_FATAL_ERRORS: Row("gpuward_gpu_pcie_errors", ("fatal",)),
    Signal.NVLINK_CRC_ERRORS: Row("gpuward_gpu_nvlink_errors", ("crc",)),
    Signal.NVLINK_CRC_DATA_ERRORS: Row("gpuward_gpu_nvlink_errors", ("crc_data",)),
    Signal.NVLINK_REPLAYS: Row("gpuward_gpu_nvlink_errors", ("replay",)),
    Signal.NVLINK_RECOVERIES: Row("gpuward_gpu_nvlink_errors", ("recovery",)),
    Signal.NVLINK_RECEIVE_ERRORS: Row("gpuward_gpu_nvlink_errors", ("receive",)),
    Signal.NVLINK_MALFORMED_PACKETS: Row("gpuward_gpu_nvlink_errors", ("malformed",)),
    Signal.NVLINK_DROPPED_PACKETS: Row("gpuward_gpu_nvlink_errors", ("dropped",)),
    Signal.NVLINK_REMOTE_ERRORS: Row("gpuward_gpu_nvlink_errors", ("remote",)),
    Signal.NVLINK_EFFECTIVE_BER: Row("gpuward_gpu_nvlink_bit_error_ratio", ("effective",)),
    Signal.NVLINK_SYMBOL_BER: Row("gpuward_gpu_nvlink_bit_error_ratio", ("symbol",)),
    Signal.NVLINK_INTEGRITY_ERRORS: Row("gpuward_gpu_nvlink_errors", ("integrity",)),
    Signal.NVLINK_RECOVERIES_FAILED: Row("gpuward_gpu_nvlink_errors", ("recovery_failed",)),
    Signal.NVLINK_SYMBOL_ERRORS: Row("gpuward_gpu_nvlink_errors", ("symbol",)),
    Signal.NVLINK_EFFECTIVE_ERRORS: Row("gpuward_gpu_nvlink_errors", ("effective",)),
    Signal.C2C_ERRORS: Row("gpuward_gpu_c2c_errors"),
    Signal.RECOVERY_ACTION: Row("gpuward_gpu_recovery_action"),
    Signal.FABRIC_STATE: Row("gpuward_gpu_fabric_state"),
}

LISTS: Final[dict[Signal, ListRow]] = {
    Signal.NVLINK_STATES: ListRow(
        "gpuward_gpu_nvlink_up", "1 while the NVLink is up.", "link", up=(1, 2, 3)
    ),
    Signal.C2C_STATES: ListRow(
        "gpuward_gpu_c2c_up", "1 while the link between GPU and CPU is up.", "link", up=(1,)
    ),
    Signal.REMAP_HISTOGRAM: ListRow(
        "gpuward_gpu_row_remap_banks",
        "Memory banks by how many of their spare rows are left.",
        "spare",
        places=("max", "high", "partial", "low", "none"),
        usual=frozenset({0}),
    ),
}

NVLINK_COUNTS: Final[dict[str, str]] = {
    "gpuward_gpu_nvlinks_expected": "NVLinks that the GPU has by design; absent where "
    "there are none.",
    "gpuward_gpu_nvlinks_up": "NVLinks that are up; absent where there are none.",
}

CLOCK_EVENTS: Final = {
    0x01: "idle",
    0x02: "application_clocks",
    0x04: "software_power_cap",
    0x08: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of NVML's clock event reasons (nvml.h, nvmlClocksEventReason)."""


def is_basic(row: Row, value: float) -> bool:
    """Whether the basic set has a series for this value: not for what has not happened."""
    family = FAMILIES[row.family]
    return not family.fixed and (value != 0 or row.lasting or not (family.counter or family.flag))
