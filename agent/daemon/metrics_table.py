"""Which metric each GPU signal becomes: name, unit, labels, help, in one table.

The rows are `agent/data/gpu_metrics.json`, read by `agent.daemon.gpu_metrics` alone. Base units
and Prometheus' naming: seconds, hertz, ratios of 1, and `_total` for what only grows. A signal
without a row is judged but not exported.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.catalog.data_file import data_file
from rules.catalog.signals import Signal


class Family(msgspec.Struct, frozen=True):
    """One metric: its help, its type and the labels it has besides those of the GPU.

    `flag` is a count or flag of what is broken or waits: 0 on a sound GPU. `fixed` never changes
    while the GPU is the same.
    """

    help: str
    counter: bool = False
    labels: tuple[str, ...] = ()
    flag: bool = False
    fixed: bool = False


class Row(msgspec.Struct, frozen=True):
    """One signal in a metric; `factor` converts to base units.

    `lasting` counters are in the basic set at 0 too: alerts compare them with a week ago, and what
    was not there then is not known to have been 0.
    """

    family: str
    labels: tuple[str, ...] = ()
    factor: float = 1.0
    lasting: bool = False


class ListRow(msgspec.Struct, frozen=True):
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


class _MetricsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    families: dict[str, Family]
    rows: dict[Signal, Row]
    lists: dict[Signal, ListRow]


_FILE: Final = msgspec.json.decode(data_file("gpu_metrics.json", "agent"), type=_MetricsFile)
FAMILIES: Final = _FILE.families
ROWS: Final = _FILE.rows
LISTS: Final = _FILE.lists

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
