"""The metrics of each GPU: its health and its readings.

Called by `agent.daemon.metrics` at each scrape. The full set (`--metrics full`) has a series for
every reading. The basic set has flags that are raised, counters above 0, links that are down and
the number of links.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from rules.catalog.data_file import data_file
from rules.catalog.signals import Signal
from rules.judge import present
from rules.judge.facts import checks
from rules.judge.health_status import Assessment, Health
from rules.judge.observation import Value
from rules.judge.state import GpuView, NodeState


class Family(msgspec.Struct, frozen=True):
    """One metric: its help, its type and its labels in addition to those of the GPU.

    A `flag` is 0 on a healthy GPU. A `fixed` value never changes for a GPU.
    """

    help: str
    counter: bool = False
    labels: tuple[str, ...] = ()
    flag: bool = False
    fixed: bool = False


class Row(msgspec.Struct, frozen=True):
    """One signal in a metric; `factor` converts to base units.

    The basic set has `lasting` counters at 0 too, because alerts compare them with their value a
    week ago.
    """

    family: str
    labels: tuple[str, ...] = ()
    factor: float = 1.0
    lasting: bool = False


class ListRow(msgspec.Struct, frozen=True):
    """One metric of a reading that is a list: a series for each place.

    `places` are the label values, default the index. `up` are the states that count as 1. The
    basic set omits the places in their normal state: up, or else 0 or `usual`.
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
    "gpuward_gpu_nvlinks_expected": "NVLinks that the GPU has by design; absent if it has none.",
    "gpuward_gpu_nvlinks_up": "NVLinks that are up; absent if the GPU has none.",
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
    """Whether the basic set has a series for this value."""
    family = FAMILIES[row.family]
    return not family.fixed and (value != 0 or row.lasting or not (family.counter or family.flag))


HEALTHS: Final = tuple(health.value for health in Health)


def gpu_labels(view: GpuView) -> list[str]:
    """Return the values of GPU_LABELS for a GPU."""
    index = str(view.seen.index) if view.seen.index >= 0 else ""
    return [view.seen.uuid, view.pci, index]


def gpu_metrics(state: NodeState, assessment: Assessment, *, full: bool) -> Iterator[Metric]:
    """Yield the metrics of all GPUs, except their incidents and Xids."""
    yield from _identity_and_health(state, assessment, full=full)
    yield from _signals(state, full=full)


def gauge(
    name: str,
    text: str,
    labels: Iterable[str] = (),
    rows: Iterable[tuple[Sequence[str], float]] = (),
) -> GaugeMetricFamily:
    """Return a gauge with these values by label values."""
    family = GaugeMetricFamily(name, text, labels=list(labels))
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _identity_and_health(
    state: NodeState, assessment: Assessment, *, full: bool
) -> Iterator[Metric]:
    info = gauge(
        "gpuward_gpu_info",
        "What is known about a GPU; always 1.",
        (*GPU_LABELS, "product", "serial", "vbios", "driver"),
    )
    health = gauge(
        "gpuward_gpu_health",
        "1 for the GPU's current health, 0 for the others.",
        (*GPU_LABELS, "health"),
    )
    for key, view in state.gpus.items():
        labels = gpu_labels(view)
        seen = view.seen
        info.add_metric([*labels, seen.product, seen.serial, seen.vbios, state.driver], 1)
        judged = assessment.gpus.get(key)
        current = judged.health.value if judged is not None else Health.UNKNOWN.value
        for candidate in HEALTHS if full else (current,):
            health.add_metric([*labels, candidate], float(candidate == current))
    yield info
    yield health


def _signals(state: NodeState, *, full: bool) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for name, family in FAMILIES.items():
        made = CounterMetricFamily if family.counter else GaugeMetricFamily
        families[name] = made(name, family.help, labels=[*GPU_LABELS, *family.labels])
    read = gauge(
        "gpuward_gpu_read",
        "1 while the GPU is read. A missing series is then 0 or not supported by the GPU.",
        GPU_LABELS,
    )
    clock = gauge(
        "gpuward_gpu_clock_event",
        "1 while this reason reduces the GPU's clocks.",
        (*GPU_LABELS, "reason"),
    )
    counts = [gauge(name, text, GPU_LABELS) for name, text in NVLINK_COUNTS.items()]
    lists = {s: gauge(row.name, row.help, (*GPU_LABELS, row.label)) for s, row in LISTS.items()}
    for view in state.gpus.values():
        labels, values = gpu_labels(view), present.present_values(state, view)
        if values:
            read.add_metric(labels, 1)
        for signal, value in values.items():
            row = ROWS.get(signal)
            if row is not None and isinstance(value, int | float):
                if full or is_basic(row, value):
                    families[row.family].add_metric([*labels, *row.labels], value * row.factor)
            elif signal is Signal.CLOCK_EVENT_REASONS and isinstance(value, int):
                for bit, reason in CLOCK_EVENTS.items():
                    if full or value & bit:
                        clock.add_metric([*labels, reason], float(bool(value & bit)))
            elif signal in LISTS and isinstance(value, tuple):
                left_out = frozenset[int]() if full else _usual_places(state, view, signal)
                _add_list(lists[signal], LISTS[signal], labels, value, left_out)
        for family_, number in zip(counts, _nvlink_counts(state, view, values), strict=False):
            family_.add_metric(labels, number)
    yield read
    yield from families.values()
    yield clock
    yield from counts
    yield from lists.values()


def _add_list(
    family: GaugeMetricFamily,
    row: ListRow,
    labels: list[str],
    value: tuple[int | None, ...],
    left_out: frozenset[int],
) -> None:
    places = row.places or tuple(map(str, range(len(value))))
    for number, (place, read) in enumerate(zip(places, value, strict=False)):
        if read is not None and number not in left_out:
            family.add_metric([*labels, place], float(read in row.up if row.up else read))


def _usual_places(state: NodeState, view: GpuView, signal: Signal) -> frozenset[int]:
    """Return the places of a list that the basic set omits."""
    row, value = LISTS[signal], view.values.get(signal)
    if not isinstance(value, tuple):
        return frozenset()
    if not row.up:
        return frozenset(n for n, read in enumerate(value) if not read) | row.usual
    well = frozenset(n for n, read in enumerate(value) if read in row.up)
    if signal is Signal.NVLINK_STATES:
        used = _used_links(state, view)
        return well if used is None else well | (frozenset(range(len(value))) - used)
    # A board with all links down uses none.
    return well or frozenset(range(len(value)))


def _used_links(state: NodeState, view: GpuView) -> frozenset[int] | None:
    """Return the NVLinks that should be up; None if the design is unknown."""
    if view.seen.mig_mode:
        return frozenset()  # with MIG on, links are off by design
    links = present.links_by_design(state, view.seen.uuid)
    return None if links is None else frozenset(links)


def _nvlink_counts(
    state: NodeState, view: GpuView, values: Mapping[Signal, Value]
) -> tuple[int, ...]:
    """Return how many NVLinks should be up and are up, as in NVLINK_COUNTS; empty if none."""
    states = values.get(Signal.NVLINK_STATES)
    if not isinstance(states, tuple):
        return ()
    used = _used_links(state, view)
    expected = len(used) if used is not None else sum(link is not None for link in states)
    return (expected, sum(link in checks.LINKS_UP for link in states)) if expected else ()
