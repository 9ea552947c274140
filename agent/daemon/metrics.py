"""The agent's metrics: GPU health and signals from judgement's state, and how the agent itself
does.

One custom collector, scraped by `agent.daemon.http` from its own thread. It reads the frozen state
that the main loop last made, so a scrape costs the loop nothing and never sees half of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.daemon.metrics_table import CLOCK_EVENTS, FAMILIES, GPU_LABELS, LISTS, ROWS, ListRow
from agent.daemon.stats import XidCounts
from agent.kernel_log.record import RecordCounts
from agent.publish.publish import PublishReport
from agent.version import VERSION
from rules.catalog.signals import Signal
from rules.judge.observation import SourceName, SourceState
from rules.judge.present import gone_from_pci, present_values
from rules.judge.state import GpuView, NodeState, identify
from rules.publish.verdict import Health, Verdict

HEALTHS: Final = tuple(health.value for health in Health)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a scrape reads; made by the main loop's side on demand, from frozen values."""

    state: NodeState
    verdict: Verdict
    records: RecordCounts
    heard_at: Mapping[SourceName, float]
    xids: XidCounts
    publishing: PublishReport
    dcgm_bad_lines: int


class AgentCollector(Collector):
    """Turns a snapshot into metrics."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """All metrics of the agent but its histograms."""
        now = self._snapshot()
        yield from _node(now)
        yield from _gpus(now)
        yield from _signals(now.state)
        yield _aer(now.state)
        yield _services(now.state)
        yield from _incidents(now)
        yield from _sources(now)
        yield from _agent(now)

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are unique by construction, and a scrape at registration is too early."""
        return ()


def exposition(registry: CollectorRegistry) -> bytes:
    """The page that `/metrics` answers."""
    return generate_latest(registry)


def _node(now: Snapshot) -> Iterator[Metric]:
    info = InfoMetricFamily("gpuward_agent_build", "Version of the agent and its rules.")
    info.add_metric([], {"version": VERSION})
    yield info
    health = GaugeMetricFamily(
        "gpuward_node_health",
        "1 for the node's present health, 0 for the others.",
        labels=["health"],
    )
    for word in HEALTHS:
        health.add_metric([word], float(now.verdict.health.value == word))
    yield health
    yield GaugeMetricFamily(
        "gpuward_node_gpus_expected",
        "GPUs that this node should have.",
        value=now.verdict.gpus_expected,
    )
    healthy = GaugeMetricFamily(
        "gpuward_node_gpus_healthy", "GPUs that are healthy or degraded; absent while unknown."
    )
    if now.verdict.gpus_healthy is not None:
        healthy.add_metric([], now.verdict.gpus_healthy)
    yield healthy


def _gpus(now: Snapshot) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "gpuward_gpu_info",
        "What is known about a GPU; always 1.",
        labels=[*GPU_LABELS, "product", "serial", "vbios", "driver"],
    )
    health = GaugeMetricFamily(
        "gpuward_gpu_health",
        "1 for the GPU's present health, 0 for the others.",
        labels=[*GPU_LABELS, "health"],
    )
    for key, view in now.state.gpus.items():
        labels = _labels(view)
        seen = view.seen
        info.add_metric([*labels, seen.product, seen.serial, seen.vbios, now.state.driver], 1)
        judged = now.verdict.gpus.get(key)
        word = judged.health.value if judged is not None else Health.UNKNOWN.value
        for candidate in HEALTHS:
            health.add_metric([*labels, candidate], float(candidate == word))
    yield info
    yield health


def _signals(state: NodeState) -> Iterator[Metric]:
    families: dict[str, Metric] = {}
    for name, family in FAMILIES.items():
        made = CounterMetricFamily if family.counter else GaugeMetricFamily
        families[name] = made(name, family.help, labels=[*GPU_LABELS, *family.labels])
    clock = GaugeMetricFamily(
        "gpuward_gpu_clock_event",
        "1 while this keeps the GPU's clocks down, by reason.",
        labels=[*GPU_LABELS, "reason"],
    )
    lists = {
        signal: GaugeMetricFamily(row.name, row.help, labels=[*GPU_LABELS, row.label])
        for signal, row in LISTS.items()
    }
    for view in state.gpus.values():
        labels = _labels(view)
        for signal, value in present_values(state, view).items():
            row = ROWS.get(signal)
            if row is not None and isinstance(value, int | float):
                families[row.family].add_metric(  # type: ignore[attr-defined]  # of both families, not of their base
                    [*labels, *row.labels], value * row.factor
                )
            elif signal is Signal.CLOCK_EVENT_REASONS and isinstance(value, int):
                for bit, reason in CLOCK_EVENTS.items():
                    clock.add_metric([*labels, reason], float(bool(value & bit)))
            elif signal in LISTS and isinstance(value, tuple):
                _add_list(lists[signal], LISTS[signal], labels, value)
    yield from families.values()
    yield clock
    yield from lists.values()


def _add_list(
    family: GaugeMetricFamily, row: ListRow, labels: list[str], value: tuple[int | None, ...]
) -> None:
    places = row.places or tuple(map(str, range(len(value))))
    for place, number in zip(places, value, strict=False):
        if number is not None:
            family.add_metric([*labels, place], float(number in row.up if row.up else number))


def _aer(state: NodeState) -> Metric:
    errors = CounterMetricFamily(
        "gpuward_pcie_aer_errors",
        "PCIe errors that the kernel counted on the GPU since it found it, by kind.",
        labels=[*GPU_LABELS, "kind"],
    )
    for view in state.gpus.values():
        if view.aer is None or gone_from_pci(state, view.pci, since=0.0):
            continue
        for kind in ("correctable", "nonfatal", "fatal"):
            count = getattr(view.aer, kind)
            if count is not None:
                errors.add_metric([*_labels(view), kind], count)
    return errors


def _services(state: NodeState) -> Metric:
    running = GaugeMetricFamily(
        "gpuward_host_service_running",
        "1 while the driver's service runs on the host; no series where processes are out of sight.",
        labels=["service"],
    )
    for service, view in state.services.items():
        if view.running is not None:
            running.add_metric([service.value], float(view.running))
    return running


def _incidents(now: Snapshot) -> Iterator[Metric]:
    active = GaugeMetricFamily(
        "gpuward_incident_active",
        "Active incidents; a GPU of several counts for each.",
        labels=[*GPU_LABELS, "reason", "severity", "level"],
    )
    counts: dict[tuple[str, ...], int] = {}
    for incident in now.state.incidents:
        if not incident.active:
            continue
        row = incident.row
        for gpu in _concerned(now.state, incident.gpus, incident.pci):
            key = (*gpu, row.reason, str(row.severity), str(row.level))
            counts[key] = counts.get(key, 0) + 1
    for key, count in counts.items():
        active.add_metric(list(key), count)
    yield active
    for kind, help_text in (
        ("xid", "Xids that the kernel log reported since the agent started."),
        ("sxid", "NVSwitch errors that the kernel log reported since the agent started."),
    ):
        family = CounterMetricFamily(f"gpuward_{kind}", help_text, labels=[*GPU_LABELS, kind])
        for (counted, pci, number), count in tuple(now.xids.by_pci.items()):
            if counted == kind:
                labels = _at_address(now.state, pci)
                family.add_metric([*labels, str(number)], count)
        yield family


def _sources(now: Snapshot) -> Iterator[Metric]:
    up = GaugeMetricFamily(
        "gpuward_source_up",
        "1 while the source works, 0 while it does not; no series for one that is off.",
        labels=["source"],
    )
    info = GaugeMetricFamily(
        "gpuward_source_info",
        "State of the source and why; always 1.",
        labels=["source", "state", "reason"],
    )
    heard = GaugeMetricFamily(
        "gpuward_source_last_success_timestamp_seconds",
        "When the source last reported something.",
        labels=["source"],
    )
    for name, view in sorted(now.state.sources.items()):
        if view.state is not SourceState.ABSENT:
            up.add_metric([name.value], float(view.state is SourceState.UP))
        info.add_metric([name.value, view.state.value, view.reason], 1)
    yield up
    yield info
    for name, at in sorted(now.heard_at.items()):
        heard.add_metric([name.value], at)
    yield heard


def _agent(now: Snapshot) -> Iterator[Metric]:
    records = CounterMetricFamily(
        "gpuward_kernel_records", "Kernel log records by what became of them.", labels=["result"]
    )
    counts = now.records
    for result, value in (
        ("read", counts.read),
        ("recognised", counts.recognised),
        ("malformed", counts.malformed),
        ("refused", counts.refused),
        ("lost", counts.lost),
    ):
        records.add_metric([result], value)
    yield records
    yield CounterMetricFamily(
        "gpuward_dcgm_bad_lines",
        "Lines of dcgm-exporter's page that could not be read.",
        value=now.dcgm_bad_lines,
    )
    yield CounterMetricFamily(
        "gpuward_publish_writes",
        "Writes that the API server accepted.",
        value=now.publishing.writes,
    )
    yield GaugeMetricFamily(
        "gpuward_publish_failures",
        "Failed attempts to publish since the last success.",
        value=now.publishing.failures,
    )
    accepted = GaugeMetricFamily(
        "gpuward_publish_accepted_timestamp_seconds",
        "When the API server last accepted a verdict; absent before the first.",
    )
    if now.publishing.accepted_at is not None:
        accepted.add_metric([], now.publishing.accepted_at)
    yield accepted


def _labels(view: GpuView) -> list[str]:
    index = str(view.seen.index) if view.seen.index >= 0 else ""
    return [view.seen.uuid, view.pci, index]


def _concerned(
    state: NodeState, gpus: Iterable[str], pci: Iterable[str]
) -> Iterator[tuple[str, ...]]:
    """The labels of each GPU an incident names; of none for one of the whole node."""
    found = {tuple(_of(state, *identify(state, gpu, ""))) for gpu in gpus}
    found |= {tuple(_at_address(state, address)) for address in pci}
    yield from sorted(found) or [("", "", "")]


def _at_address(state: NodeState, pci: str) -> list[str]:
    return _of(state, *identify(state, "", pci)) if pci else ["", "", ""]


def _of(state: NodeState, uuid: str, pci: str) -> list[str]:
    view = state.gpus.get(uuid)
    return _labels(view) if view is not None else [uuid, pci, ""]
