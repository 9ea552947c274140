"""The state of a node's assessment: one frozen value, bounded in size.

`initial` or `judge.restore.restore` create it and `judge.judge` changes it, passing a `Judging`
(state, time, thresholds) from check to check. The published object and a new poll of the node
restore it, so nothing is kept on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, structs
from msgspec import field as kept

from rules.api import timestamps
from rules.api.health import ExpectedGpus, Topology
from rules.catalog import signals
from rules.catalog.signals import Signal
from rules.catalog.thresholds import Thresholds
from rules.judge.expected_gpus import Learned, expected_gpus
from rules.judge.incident import Finding, GpuId, Incident
from rules.judge.memory import NODE, Gauge, Ledger, Memory, noted, owner_key, total
from rules.judge.observation import (
    DcgmSeen,
    GpuSeen,
    PciFunction,
    PodResourcesSeen,
    PortCounter,
    Service,
    SourceName,
    SourceState,
    TopologySeen,
    Value,
)
from rules.text import pci_address

MAX_GPUS: Final = 64
MAX_REPEATS: Final = 128
MAX_ADDRESSES: Final = 64
MAX_PORT_CHARS: Final = 64

_REPORTED_S: Final = 20.0
"""An event makes the next poll early; otherwise it comes within 15 s. Source: gpuward."""

START_GRACE_S: Final = 30.0
"""How long a data source may take to report after the agent's start. NVML initializes in seconds
and is polled every 15 s. Source: gpuward."""


Checks: TypeAlias = Mapping[str, Memory]
"""The memory of checks, by reason."""


class SourceView(Struct, frozen=True, kw_only=True):
    """The last reported state of a data source."""

    state: SourceState
    reason: str = ""
    since: float = 0.0


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """The last value of a counter and its time, from which a rate is computed."""

    at: float
    value: float


class GpuView(Struct, frozen=True, kw_only=True):
    """One GPU: its identity, its last readings, and the memory of its checks.

    `answered_at` is the last poll that it answered, `read_at` the last poll. `action` is the
    driver's recovery action, `action_seen` a polled value that needs a second read. `lost` counts
    lost polls: the last at `lost_at`, without a break since `lost_since`. `reported_at` is when
    the driver reported a change, `unavailable_at` when it reported the GPU unavailable.
    `reset_at` is the latest evidence of a reset. `best_generation` is the highest PCIe generation
    of its link. `links_up` counts the polls in a row, since the last NVLink error, that found all
    NVLinks up.
    """

    seen: GpuSeen
    enumerated: bool = False
    answered_at: float = 0.0
    read_at: float = 0.0
    values: Mapping[Signal, Value] = kept(default_factory=dict)
    action: int | None = None
    action_seen: int | None = None
    reset_pending: bool = False
    reset_at: float = 0.0
    lost: Gauge = kept(default_factory=Gauge)
    lost_at: float = 0.0
    lost_since: float = 0.0
    reported_at: float = 0.0
    unavailable_at: float = 0.0
    checks: Checks = kept(default_factory=dict)
    counters: Mapping[Signal, Counter] = kept(default_factory=dict)
    best_generation: float = 0.0
    links_up: int = 0

    @property
    def gpu_id(self) -> GpuId:
        """The UUID and address of the GPU."""
        return GpuId(self.seen.uuid, self.pci)

    @property
    def pci(self) -> str:
        """The plain address; empty when the driver does not report it."""
        return pci_address.plain_address(self.seen.pci) if self.seen.pci else ""


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """A burst of Xid 13 or 31 on one GPU that began at `at`.

    At `due_at` it is assessed with earlier bursts, by the places (GPC, TPC) that its lines name.
    """

    xid: int
    gpu_id: GpuId
    at: float
    due_at: float
    places: tuple[tuple[int, int], ...] = ()


class StandDown(msgspec.Struct, frozen=True, kw_only=True):
    """A request to release the GPUs; `expired` when it lasted too long."""

    reason: str
    since: float
    expired: bool = False


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the node from its Node object and the host."""

    name: str = ""
    uid: str = ""
    boot_id: str = ""
    booted_at: float = 0.0
    instance_type: str = ""
    product_uuid: str = ""
    expected_annotation: str = ""
    repaired: str = ""
    shared_fabric: bool = False
    """An annotation declares that the fabric has partitions: some GPUs may be in none."""
    cpu_numa_nodes: tuple[int, ...] = ()

    @property
    def repaired_at(self) -> float:
        """When an operator reported the repair; 0 without a report."""
        return timestamps.parse_time(self.repaired.partition(" ")[0]) or 0.0


class PortView(msgspec.Struct, frozen=True, kw_only=True):
    """A network port: whether it was ever active, since when it is down, good polls since.

    `active` is its last known state. `missing_since`: when it was first absent. `counters` has the
    last values, read since `counted_since`, `recent` their increases within the last hour, and
    `checks` the memory of its checks.
    """

    was_active: bool = False
    active: bool = False
    down_since: float | None = None
    good_polls: int = 0
    missing_since: float | None = None
    counted_since: float | None = None
    counters: Mapping[PortCounter, Counter] = kept(default_factory=dict)
    recent: Ledger = kept(default_factory=dict)
    checks: Mapping[str, Gauge] = kept(default_factory=dict)


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    """A service of the host: whether it runs (None: unknown), whether it ran in this boot."""

    running: bool | None = None
    ran: bool = False


class NodeState(Struct, frozen=True, kw_only=True):
    """The entire state. `configured` is the expected number of GPUs by configuration.

    `bridges` holds, by plain address of each GPU that the PCI bus ever showed, the full addresses
    of the bridges above it. Only such a GPU can be missing from the bus.
    """

    started_at: float
    configured: int | None = None
    node: NodeFacts = NodeFacts()
    cursor_boot: str = ""
    cursor_seq: int = -1
    sources: Mapping[SourceName, SourceView] = kept(default_factory=dict)
    restored_sources: frozenset[SourceName] = frozenset()
    driver: str = ""
    virtualization: str = "none"
    gpus: Mapping[str, GpuView] = kept(default_factory=dict)
    address_uuids: Mapping[str, str] = kept(default_factory=dict)
    before_boot: Mapping[str, GpuSeen] = kept(default_factory=dict)
    """The GPU at each plain address in the previous boot, with the serial number that a return to
    the vendor needs."""
    excluded: tuple[str, ...] = ()
    functions: tuple[PciFunction, ...] = ()
    bridges: Mapping[str, tuple[str, ...]] = kept(default_factory=dict)
    pci_at: float = 0.0
    inventory_at: float = 0.0
    missing: Gauge = kept(default_factory=Gauge)
    missing_at: float = 0.0
    learned: Learned = kept(default_factory=Learned)
    topology: TopologySeen | None = None
    published_topology: Topology = kept(default_factory=Topology)
    stand_down: StandDown | None = None
    stood_down_until: float = 0.0
    incidents: tuple[Incident, ...] = ()
    dropped: int = 0
    repeats: tuple[Repeat, ...] = ()
    checks: Checks = kept(default_factory=dict)
    services: Mapping[Service, ServiceView] = kept(default_factory=dict)
    ports: Mapping[str, PortView] = kept(default_factory=dict)
    records_lost_at: float | None = None
    """When kernel records were last found overwritten before the agent read them."""
    unprinted: tuple[Finding, ...] = ()
    """Xids of NVML events without a line in the kernel log yet."""
    dcgm_xids: Mapping[tuple[str, int | None], int] = kept(default_factory=dict)
    dcgm_page: DcgmSeen | None = None
    dcgm_changed_at: float | None = None
    """When the values of the page last changed; None before the first page."""
    ledger: Ledger = kept(default_factory=dict)
    pod_resources: PodResourcesSeen | None = None

    def source(self, name: SourceName) -> SourceState | None:
        """Return the state of a data source; None while it has not reported."""
        view = self.sources.get(name)
        return view.state if view else None

    @property
    def standing_down(self) -> bool:
        """Whether the GPUs are released on request now."""
        return self.stand_down is not None and not self.stand_down.expired

    @property
    def view_source(self) -> SourceName | None:
        """The source of GPU readings: NVML, dcgm-exporter where NVML is off, or None."""
        if self.source(SourceName.NVML) is not SourceState.ABSENT:
            return SourceName.NVML
        spoken = self.source(SourceName.DCGM)
        return None if spoken in (None, SourceState.ABSENT) else SourceName.DCGM

    @property
    def expected(self) -> ExpectedGpus:
        """The number of GPUs that this node should have."""
        return expected_gpus(self.configured, self.node.expected_annotation, self.learned)

    @property
    def branch(self) -> int | None:
        """The driver's major number."""
        return signals.driver_branch(self.driver)


def initial(
    now: float, *, boot_id: str = "", configured: int | None = None, node_name: str = ""
) -> NodeState:
    """Return the state of a node without any data, in the boot that the kernel names.

    `configured` is the expected number of GPUs if the configuration sets one.
    """
    facts = NodeFacts(name=node_name, boot_id=boot_id)
    return NodeState(started_at=now, configured=configured, node=facts)


def with_gpu(state: NodeState, view: GpuView) -> NodeState:
    """Return the state with the view of one GPU replaced; at most 64 GPUs are kept."""
    key = view.seen.uuid or view.pci
    if not key or (key not in state.gpus and len(state.gpus) >= MAX_GPUS):
        return state
    return structs.replace(state, gpus={**state.gpus, key: view})


def find_gpu(state: NodeState, gpu: str, pci: str = "") -> GpuView | None:
    """Return a GPU by UUID or by address."""
    if gpu in state.gpus:
        return state.gpus[gpu]
    if not pci:
        return None
    address = pci_address.plain_address(pci)
    matches = [view for view in state.gpus.values() if view.pci == address]
    return max(matches, key=lambda view: (view.enumerated, view.answered_at), default=None)


def functions_at(state: NodeState, address: str) -> tuple[PciFunction, ...]:
    """Return the PCI functions at a plain address."""
    return tuple(
        each for each in state.functions if pci_address.plain_address(each.address) == address
    )


def just_reported(at: float, now: float) -> bool:
    """Whether an event of the driver at that time is recent enough to confirm a reading now."""
    return bool(at) and abs(now - at) <= _REPORTED_S


def identify(state: NodeState, gpu: str, pci: str) -> GpuId:
    """Return UUID and address of a GPU, each completed from the other if known."""
    address = pci_address.plain_address(pci) if pci else ""
    view = find_gpu(state, gpu, address)
    if view is not None:
        return GpuId(view.seen.uuid or gpu, view.pci or address)
    if gpu and not address:
        # No GPU has this UUID any more: use its last known address.
        address = next((at for at, uuid in state.address_uuids.items() if uuid == gpu), "")
    return GpuId(gpu or state.address_uuids.get(address, ""), address)


class Judging(msgspec.Struct, frozen=True):
    """The state, the time of the assessment (wall seconds) and the thresholds."""

    state: NodeState
    now: float
    thresholds: Thresholds

    def then(self, state: NodeState) -> Judging:
        """Return a copy with another state."""
        return Judging(state, self.now, self.thresholds)

    def replace(self, **changes: Any) -> Judging:
        """Return a copy with these fields of the state changed."""
        return self.then(structs.replace(self.state, **changes))

    def with_incident(self, changed: Incident) -> Judging:
        """Return a copy with the incident of this ID replaced."""
        incidents = (changed if i.id == changed.id else i for i in self.state.incidents)
        return self.replace(incidents=tuple(incidents))

    def with_gpu(self, view: GpuView) -> Judging:
        """Return a copy with the view of one GPU replaced."""
        return self.then(with_gpu(self.state, view))

    def current(self, view: GpuView) -> GpuView:
        """Return the current view of the same GPU."""
        return self.state.gpus.get(view.seen.uuid or view.pci, view)

    def note(
        self,
        gpu_id: GpuId,
        what: str,
        at: float,
        window: str,
        *,
        count: int = 1,
        apart_s: float = 0.0,
        family: str = "",
    ) -> Judging:
        """Return a copy with a sighting in the ledger, for rules that count within `window`."""
        known = self.state.ledger
        ledger = noted(
            known,
            owner_key(*gpu_id),
            what,
            at,
            self.thresholds[window].value,
            since=self.state.node.repaired_at,
            count=count,
            apart_s=apart_s,
            family=family,
        )
        return self if ledger is known else self.replace(ledger=ledger)

    def times(self, names: tuple[str, ...], what: str, window: str) -> int:
        """Return the number of sightings within `window`, under any of the names of one GPU.

        A repair that an operator reported restarts the count.
        """
        since = max(self.now - self.thresholds[window].value, self.state.node.repaired_at)
        return total(self.state.ledger, names or (NODE,), what, since, self.now)

    def remember(self, reason: str, memory: Memory, view: GpuView | None = None) -> Judging:
        """Return a copy with the memory of a check of a GPU or of the node."""
        if view is None:
            checks = {**self.state.checks, reason: memory}
            return self.replace(checks=checks)
        return self.with_gpu(structs.replace(view, checks={**view.checks, reason: memory}))
