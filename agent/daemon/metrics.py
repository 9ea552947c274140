"""The agent's metrics: health and signals of the GPUs, incidents, data sources, publishing.

One custom collector, scraped in threads of `agent.daemon.http`. It reads the immutable state that
the main loop made last, so a scrape never blocks the loop and never reads a partial change.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent import settings
from agent.daemon.gpu_metrics import GPU_LABELS, HEALTHS, gauge, gpu_labels, gpu_metrics
from agent.publish.publish import PublishReport
from agent.sources.kernel_record import RecordCounts
from rules.judge.health_status import Assessment
from rules.judge.observation import SourceName, SourceState
from rules.judge.state import NodeState, identify

# No `_created` series: the process metrics have the start time.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types there

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
MAX_AWAITING = 1024


class XidCounts(msgspec.Struct):
    """Counts of Xids and SXids by PCI address and number; bounded: log lines are untrusted."""

    by_pci: dict[tuple[str, str, int], int] = msgspec.field(default_factory=dict)
    limit: int = 2048

    def add(self, kind: str, pci: str, number: int) -> None:
        """Count one line."""
        key = (kind, pci, number)
        if key in self.by_pci or len(self.by_pci) < self.limit:
            self.by_pci[key] = self.by_pci.get(key, 0) + 1


class Latencies:
    """Histograms of the time from reading a kernel line to observed, decided and published.

    `observed` and `decided` are only exported in the full set (`--metrics full`).
    """

    def __init__(self, registry: CollectorRegistry, *, full: bool) -> None:
        def histogram(step: str, help_text: str, *, exported: bool = full) -> Histogram:
            return Histogram(
                f"gpuward_kernel_line_{step}_seconds",
                help_text,
                buckets=LATENCY_BUCKETS_S,
                registry=registry if exported else None,
            )

        self.observed = histogram(
            "observed", "From reading a kernel line to the main loop receiving it."
        )
        self.decided = histogram("decided", "From reading a kernel line to its health status.")
        self.published = histogram(
            "published",
            "From reading a kernel line that changed the health status to the API server's "
            "acceptance.",
            exported=True,
        )
        self._awaiting: deque[tuple[int, float]] = deque(maxlen=MAX_AWAITING)

    def changed_health(self, serial: int, line_at: float) -> None:
        """Record that a line read at `line_at` (wall) changed the health status `serial`."""
        self._awaiting.append((serial, line_at))

    def accepted(self, serial: int, at: float) -> None:
        """Record that the API server accepted this health status, which includes earlier ones."""
        while self._awaiting and self._awaiting[0][0] <= serial:
            _, line_at = self._awaiting.popleft()
            self.published.observe(max(0.0, at - line_at))


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The immutable values that one scrape reads."""

    state: NodeState
    assessment: Assessment
    records: RecordCounts
    heard_at: Mapping[SourceName, float]
    xids: XidCounts
    publishing: PublishReport
    dcgm_bad_lines: int


class AgentCollector(Collector):
    """Turns a snapshot into the full or the basic set of metrics (`agent.daemon.gpu_metrics`)."""

    def __init__(self, snapshot: Callable[[], Snapshot], *, full: bool) -> None:
        self._snapshot = snapshot
        self._full = full

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics except the histograms."""
        now = self._snapshot()
        yield from _node(now)
        yield from gpu_metrics(now.state, now.assessment, full=self._full)
        yield _services(now.state)
        yield from _incidents(now)
        yield from _sources(now)
        yield from _agent(now)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registration does not scrape; the names are unique."""
        return ()


def _node(now: Snapshot) -> Iterator[Metric]:
    info = InfoMetricFamily("gpuward_agent_build", "Version of the agent and its rules.")
    info.add_metric([], {"version": settings.VERSION})
    yield info
    health, usable = now.assessment.health.value, now.assessment.gpus_healthy
    yield gauge(
        "gpuward_node_health",
        "1 for the node's current health, 0 for the others.",
        ["health"],
        (([each], float(health == each)) for each in HEALTHS),
    )
    yield gauge(
        "gpuward_node_gpus_expected",
        "GPUs that this node should have.",
        rows=[((), now.assessment.gpus_expected)],
    )
    yield gauge(
        "gpuward_node_gpus_healthy",
        "GPUs that are healthy or degraded; absent while unknown.",
        rows=[] if usable is None else [((), usable)],
    )


def _services(state: NodeState) -> Metric:
    return gauge(
        "gpuward_host_service_running",
        "1 while the driver's service runs on the host; absent if the host's processes are not "
        "visible.",
        ["service"],
        (
            ([service.value], float(view.running))
            for service, view in state.services.items()
            if view.running is not None
        ),
    )


def _incidents(now: Snapshot) -> Iterator[Metric]:
    counts: dict[tuple[str, ...], int] = {}
    for incident in now.state.incidents:
        if not incident.active:
            continue
        row = incident.row
        for gpu in _concerned(now.state, incident.gpus, incident.pci):
            key = (*gpu, row.reason, str(row.severity), str(row.level))
            counts[key] = counts.get(key, 0) + 1
    yield gauge(
        "gpuward_incident_active",
        "Active incidents of a GPU by reason.",
        (*GPU_LABELS, "reason", "severity", "level"),
        counts.items(),
    )
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
    sources = sorted(now.state.sources.items())
    yield gauge(
        "gpuward_source_up",
        "1 while the data source works, 0 while it fails; absent for one that is off.",
        ["source"],
        (
            ([name.value], float(view.state is SourceState.UP))
            for name, view in sources
            if view.state is not SourceState.ABSENT
        ),
    )
    yield gauge(
        "gpuward_source_info",
        "State and reason of the data source; always 1.",
        ["source", "state", "reason"],
        (([name.value, view.state.value, view.reason], 1) for name, view in sources),
    )
    yield gauge(
        "gpuward_source_last_success_timestamp_seconds",
        "When the data source last reported something.",
        ["source"],
        (([name.value], at) for name, at in sorted(now.heard_at.items())),
    )


def _agent(now: Snapshot) -> Iterator[Metric]:
    records = CounterMetricFamily(
        "gpuward_kernel_records", "Kernel log records by result.", labels=["result"]
    )
    for result in ("read", "recognised", "malformed", "refused", "lost"):
        records.add_metric([result], getattr(now.records, result))
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
    yield gauge(
        "gpuward_publish_failures",
        "Failed attempts to publish since the last success.",
        rows=[((), now.publishing.failures)],
    )
    accepted_at = now.publishing.accepted_at
    yield gauge(
        "gpuward_publish_accepted_timestamp_seconds",
        "When the API server last accepted a health status; absent before the first.",
        rows=[] if accepted_at is None else [((), accepted_at)],
    )


def _concerned(
    state: NodeState, gpus: Iterable[str], pci: Iterable[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the labels of each GPU of an incident; empty ones for an incident of the node."""
    found = {tuple(_of(state, *identify(state, gpu, ""))) for gpu in gpus}
    found |= {tuple(_at_address(state, address)) for address in pci}
    yield from sorted(found) or [("", "", "")]


def _at_address(state: NodeState, pci: str) -> list[str]:
    return _of(state, *identify(state, "", pci)) if pci else ["", "", ""]


def _of(state: NodeState, uuid: str, pci: str) -> list[str]:
    view = state.gpus.get(uuid)
    return gpu_labels(view) if view is not None else [uuid, pci, ""]
