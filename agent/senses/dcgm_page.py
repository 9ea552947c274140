"""Reads one page of dcgm-exporter into signals, line by line.

Pure: called with text that `agent.senses.dcgm` fetched. Only lines of fields that a signal knows
are parsed, since the parser is slow and one bad label would cost the whole page; a line it cannot
read is counted. Both generations of field and label names are understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from rules.catalog.signals import (
    BIT_ERROR_RATIOS,
    Signal,
    SignalInfo,
    SignalKind,
    SignalShape,
    bit_error_ratio,
    dcgm_signals,
    signal_table,
)
from rules.judge.observation import DcgmSeen, Value
from rules.text.pci_address import normal_pci

ENERGY_PREFIX: Final = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
"""No signal of its own: it rises as long as somebody reads it, and tells nothing else. Newer
exporters put units behind a name."""
XID_FIELDS: Final = ("DCGM_FI_DEV_XID_ERROR", "DCGM_FI_DEV_XID_ERRORS")
UUID_LABELS: Final = ("UUID", "gpu_uuid", "uuid")
PCI_LABELS: Final = ("pci_bus_id", "pciBusId")
HOST_LABELS: Final = ("Hostname", "hostname")
DRIVER_LABEL: Final = "DCGM_FI_DRIVER_VERSION"
INSTANCE_LABELS: Final = ("GPU_I_ID", "gpu_i_id")
LINK_LABELS: Final = ("nvlink",)
RATIO_SUFFIX: Final = "_RATIO"
PERCENT: Final = "percent"
"""DCGM 4.6 exports ratios of 1 where older ones exported per cent."""
PACKED_SUFFIXES: Final = ("_BER", "_BER_RAW")
"""Bit error ratios as the driver packs them; beside them DCGM exports them unpacked."""

MAX_GPUS: Final = 64
MAX_LINE_CHARS: Final = 4096

BLANK_64: Final = 0x7FFFFFFFFFFFFFF0
BLANK_32: Final = 0x7FFFFFF0
BLANK_FLOAT: Final = 140737488355328.0
"""DCGM's marks for "no value" begin here (dcgm_structs.h); old exporters print them."""


class _Page(msgspec.Struct):
    """What has been read of a page so far."""

    gpus: dict[str, dict[Signal, Value]] = msgspec.field(default_factory=dict)
    counts: dict[tuple[str, Signal], dict[str, dict[str, float]]] = msgspec.field(
        default_factory=dict
    )
    """What each field counted on each link (or on none) of a GPU."""
    xids: dict[str, int] = msgspec.field(default_factory=dict)
    instance_xids: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)
    pci: dict[str, str] = msgspec.field(default_factory=dict)
    hosts: dict[str, None] = msgspec.field(default_factory=dict)
    energy: dict[str, float] = msgspec.field(default_factory=dict)
    driver: str = ""
    bad_lines: int = 0


@cache
def _fields() -> Mapping[str, Signal]:
    return dcgm_signals()


@cache
def _table() -> Mapping[Signal, SignalInfo]:
    return signal_table()


def read_page(text: str, at: float) -> tuple[DcgmSeen, int]:
    """What the page says, and how many of its relevant lines could not be read."""
    page = _Page()
    fields = _fields()
    for line in text.split("\n"):
        name = line[: line.find("{")] if "{" in line else line.partition(" ")[0]
        if name in XID_FIELDS or name in fields or name.startswith(ENERGY_PREFIX):
            _read_line(page, line, name)
    seen = DcgmSeen(
        at=at,
        gpus=page.gpus,
        xids=page.xids,
        instance_xids=page.instance_xids,
        pci=page.pci,
        driver=page.driver,
        hosts=tuple(page.hosts),
        energy=page.energy,
    )
    return seen, page.bad_lines


def _read_line(page: _Page, line: str, name: str) -> None:
    try:
        if len(line) > MAX_LINE_CHARS:
            raise ValueError("line too long")
        (family,) = text_string_to_metric_families(f"{line.rstrip()}\n")
        (sample,) = family.samples
    except (ValueError, IndexError, KeyError, TypeError):
        # Whatever the parser trips over: it promises ValueError and raises others too.
        page.bad_lines += 1
        return
    labels = sample.labels
    uuid = _first(labels, UUID_LABELS)
    if not uuid or (uuid not in page.gpus and len(page.gpus) >= MAX_GPUS):
        # NVSwitch, CPU and other entities, which no signal is about.
        return
    values = page.gpus.setdefault(uuid, {})
    if address := _first(labels, PCI_LABELS):
        page.pci[uuid] = normal_pci(address)
    if host := _first(labels, HOST_LABELS):
        page.hosts[host] = None
    page.driver = labels.get(DRIVER_LABEL, page.driver)
    value = _value(sample.value)
    if name in XID_FIELDS:
        if isinstance(value, int):
            _note_xid(page, uuid, _first(labels, INSTANCE_LABELS), value)
        return
    if name.startswith(ENERGY_PREFIX):
        if isinstance(value, int | float) and value > 0:
            page.energy[uuid] = max(value, page.energy.get(uuid, 0))
        return
    signal = _fields()[name]
    if _first(labels, INSTANCE_LABELS):
        # A share of a GPU: its readings are not the GPU's.
        return
    info = _table()[signal]
    if name.endswith(RATIO_SUFFIX) and info.unit == PERCENT and value is not None:
        value = round(sample.value * 100, 3)
    elif signal in BIT_ERROR_RATIOS and name.endswith(PACKED_SUFFIXES) and value is not None:
        value = bit_error_ratio(sample.value)
    if signal in BIT_ERROR_RATIOS and isinstance(value, int | float):
        known = values.get(signal)
        value = max(value, known) if isinstance(known, int | float) else value
    if info.kind is SignalKind.COUNTER and isinstance(value, int | float):
        value = _count(page, (uuid, signal), name, _first(labels, LINK_LABELS), value)
    elif info.shape is SignalShape.HISTOGRAM and isinstance(value, int):
        value = (None, None, None, None, value)  # the last bin is all that is exported
    values[signal] = value


def _count(
    page: _Page, key: tuple[str, Signal], name: str, link: str, value: int | float
) -> int | float:
    """One counter from its series: links add up, the rest says the same thing again.

    A GPU that several pods share has its series once for each of them, and an exporter may be
    told to export two fields that count the same.
    """
    names = page.counts.setdefault(key, {})
    links = names.setdefault(name, {})
    links[link] = max(value, links.get(link, value))
    return max(sum(counted.values()) for counted in names.values())


def _note_xid(page: _Page, uuid: str, instance: str, xid: int) -> None:
    if not instance:
        page.xids[uuid] = max(xid, page.xids.get(uuid, 0))
    elif instance.isascii() and instance.isdecimal() and len(instance) < 4:
        key = (uuid, int(instance))
        page.instance_xids[key] = max(xid, page.instance_xids.get(key, 0))
    else:
        page.bad_lines += 1


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _value(value: float) -> Value:
    """The number, or None for what DCGM and Prometheus use to say that there is none."""
    if value != value or value in (float("inf"), float("-inf")):
        return None
    if value >= BLANK_64 - 1024 or BLANK_FLOAT <= value < BLANK_FLOAT + 16:
        return None
    if float(value).is_integer():
        whole = int(value)
        return None if BLANK_32 <= whole <= BLANK_32 + 0xF else whole
    return value
