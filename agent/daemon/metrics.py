"""The agent's metrics: GPU health and signals from judgement's state, and how the agent itself
does.

One custom collector, scraped by `agent.daemon.http` from its own thread. It reads the frozen state
that the main loop last made, so a scrape costs the loop nothing and never sees half of a change.
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

# A second series per histogram that says when this process began: process metrics say it too.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types there

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
MAX_AWAITING = 1024


class XidCounts(msgspec.Struct):
    """Xids and SXids seen, by PCI address and number; bounded, since the lines are hostile."""

    by_pci: dict[tuple[str, str, int], int] = msgspec.field(default_factory=dict)
    limit: int = 2048

    def add(self, kind: str, pci: str, number: int) -> None:
        """Count one line."""
        key = (kind, pci, number)
        if key in self.by_pci or len(self.by_pci) < self.limit:
            self.by_pci[key] = self.by_pci.get(key, 0) + 1


class Latencies:
    """How long a kernel line takes: read to observed, decided, published.

    The steps on the way are measured always and exported in the full set only (`--metrics`).
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
            "observed", "From reading a kernel line to the main loop taking it up."
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
        """The health status of this serial number is due to a line read at `line_at` (wall)."""
        self._awaiting.append((serial, line_at))

    def accepted(self, serial: int, at: float) -> None:
        """The API server has this health status, and with it all earlier ones."""
        while self._awaiting and self._awaiting[0][0] <= serial:
            _, line_at = self._awaiting.popleft()
            self.published.observe(max(0.0, at - line_at))


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a scrape reads; made by the main loop's side on demand, from frozen values."""

    state: NodeState
    verdict: Assessment
    records: RecordCounts
    heard_at: Mapping[SourceName, float]
    xids: XidCounts
    publishing: PublishReport
    dcgm_bad_lines: int


class AgentCollector(Collector):
    """Turns a snapshot into metrics: the full set, or the basic one
    (`agent.daemon.gpu_metrics`).
    """

    def __init__(self, snapshot: Callable[[], Snapshot], *, full: bool) -> None:
        self._snapshot = snapshot
        self._full = full

    def collect(self) -> Iterator[Metric]:
        """All metrics of the agent but its histograms."""
        now = self._snapshot()
        yield from _node(now)
        yield from gpu_metrics(now.state, now.verdict, full=self._full)
        yield _services(now.state)
        yield from _incidents(now)
        yield from _sources(now)
        yield from _agent(now)

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are unique by construction, and a scrape at registration is too early."""
        return ()


def _node(now: Snapshot) -> Iterator[Metric]:
    info = InfoMetricFamily("gpuward_agent_build", "Version of the agent and its rules.")
    info.add_metric([], {"version": settings.VERSION})
    yield info
    health, usable = now.verdict.health.value, now.verdict.gpus_healthy
    yield gauge(
        "gpuward_node_health",
        "1 for the node's present health, 0 for the others.",
        ["health"],
        (([word], float(health == word)) for word in HEALTHS),
    )
    yield gauge(
        "gpuward_node_gpus_expected",
        "GPUs that this node should have.",
        rows=[((), now.verdict.gpus_expected)],
    )
    yield gauge(
        "gpuward_node_gpus_healthy",
        "Usable GPUs: those that are healthy or degraded; absent while unknown.",
        rows=[] if usable is None else [((), usable)],
    )


def _services(state: NodeState) -> Metric:
    return gauge(
        "gpuward_host_service_running",
        "1 while the driver's service runs on the host; no series where processes are out of "
        "sight.",
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
        "Active incidents; a GPU of several counts for each.",
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
        "1 while the source works, 0 while it does not; no series for one that is off.",
        ["source"],
        (
            ([name.value], float(view.state is SourceState.UP))
            for name, view in sources
            if view.state is not SourceState.ABSENT
        ),
    )
    yield gauge(
        "gpuward_source_info",
        "State of the source and why; always 1.",
        ["source", "state", "reason"],
        (([name.value, view.state.value, view.reason], 1) for name, view in sources),
    )
    yield gauge(
        "gpuward_source_last_success_timestamp_seconds",
        "When the source last reported something.",
        ["source"],
        (([name.value], at) for name, at in sorted(now.heard_at.items())),
    )


def _agent(now: Snapshot) -> Iterator[Metric]:
    records = CounterMetricFamily(
        "gpuward_kernel_records", "Kernel log records by what became of them.", labels=["result"]
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
    """The labels of each GPU an incident names; of none for one of the entire node."""
    found = {tuple(_of(state, *identify(state, gpu, ""))) for gpu in gpus}
    found |= {tuple(_at_address(state, address)) for address in pci}
    yield from sorted(found) or [("", "", "")]


def _at_address(state: NodeState, pci: str) -> list[str]:
    return _of(state, *identify(state, "", pci)) if pci else ["", "", ""]


def _of(state: NodeState, uuid: str, pci: str) -> list[str]:
    view = state.gpus.get(uuid)
    return gpu_labels(view) if view is not None else [uuid, pci, ""]
