"""GPUNodeHealth: the health status that an agent publishes and reads back at start.

The agent encodes these types, the remediator decodes them, and the CRD in `daemonset/crds/` is
checked against them. Values that newer agents may extend (`class`, `recommendedAction`, `reason`,
source names) are plain strings, so that an older reader accepts them.
"""

import functools
import re
from typing import Any, Final

import msgspec

MAX_INCIDENTS = 64
MAX_EVIDENCE = 5
MAX_EVIDENCE_BYTES = 512
MAX_OBJECT_BYTES = 64 * 1024
MAX_SEEN_RUNNING = 80
MAX_READ_GPUS = 16
"""GPUs with published readings."""
MAX_HOLDERS = 128
MAX_HELD = 64
"""GPUs or devices of one pod; more than any node has."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of API types: camelCase field names. Encode them with `plain`."""


def plain(value: Any) -> Any:
    """Return the value as JSON types, without empty fields (None, "", [], {}).

    False and 0 stay, and so does everything inside a free-form object, where an empty value has a
    meaning (`key=` of a label selector). The API server refuses null in fields without `nullable`,
    so all writers of these types use this function.
    """
    kind: Any = type(value)
    if kind in _ALREADY_PLAIN:
        return value
    if isinstance(value, msgspec.Struct):
        sent: dict[str, Any] = {}
        for name, encoded in _fields_of(kind):
            found = getattr(value, name)
            if found is msgspec.UNSET:
                continue
            item = found if type(found) in _ALREADY_PLAIN else plain(found)
            if item not in _EMPTY:
                sent[encoded] = item
        return sent
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return msgspec.to_builtins(value)


@functools.cache
def _fields_of(kind: Any) -> tuple[tuple[str, str], ...]:
    return tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


_ALREADY_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


class PublisherPod(Wire, frozen=True):
    """The agent pod whose readiness shows that the health status is current."""

    pod: str = ""
    pod_uid: str = msgspec.field(name="podUID", default="")
    heartbeat: str = ""


class Cursor(Wire, frozen=True):
    """The last kernel log record that was evaluated, and its boot."""

    boot_id: str = msgspec.field(name="bootID", default="")
    kmsg_seq: int = -1


class ExpectedGpus(Wire, frozen=True):
    """How many GPUs the node should have, and the source of that number."""

    count: int = 0
    source: str = "Learned"


class SourceStatus(Wire, frozen=True):
    """One collector: kernel log, NVML, dcgm-exporter, PCI, udev."""

    name: str
    state: str
    reason: str = ""
    since: str = ""


class GpuReadings(Wire, frozen=True):
    """The last readings of a GPU with an active incident; None is a value without data."""

    read_at: str = ""
    temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    power_watts: int | None = None
    power_limit_watts: int | None = None
    clock_event_reasons: tuple[str, ...] = ()
    ecc_correctable: int | None = None
    ecc_uncorrectable: int | None = None
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None


class GpuStatus(Wire, frozen=True):
    """One GPU as the agent knows it."""

    uuid: str = ""
    index: int = -1
    pci: str = ""
    serial: str = ""
    product: str = ""
    board: str = ""
    vbios: str = ""
    module_id: int | None = None
    health: str = "Unknown"
    reason: str = ""
    recovery_action: str = ""
    reset_pending: bool = False
    reset_at: str = ""
    mig_mode: str = ""
    readings: GpuReadings | None = None


class Topology(Wire, frozen=True):
    """The node's design topology; it does not flip when a link fails."""

    interconnect: str = ""
    nvlink_domain: str = ""
    links: str = ""
    numa: str = ""


class MigInstance(Wire, frozen=True):
    """The GPU instance and compute instance a line named."""

    gi: int | None = None
    ci: int | None = None


class NvidiaAction(Wire, frozen=True):
    """NVIDIA's two recommendation columns for the Xid, verbatim codes."""

    immediate: str = ""
    investigatory: str = ""


class IncidentStatus(Wire, frozen=True):
    """One fault from its first occurrence to the evidence that closes it."""

    id: str
    reason: str
    klass: str = msgspec.field(name="class", default="")
    severity: str = "Info"
    level: str = "Report"
    recommended_action: str = "None"
    scope: str = "GPU"
    gpus: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    mig: MigInstance | None = None
    links: tuple[int, ...] = ()
    ports: tuple[str, ...] = ()
    xids: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    nvidia: NvidiaAction | None = None
    active: bool = False
    first_seen: str = ""
    last_seen: str = ""
    count: int = 1
    held_since: str = ""
    mended_by: str = ""
    interrupted_by: str = ""
    driver_answer: str = ""
    least_action: str = ""
    closes_on: str = ""
    closed_at: str = ""
    closed_by: str = ""
    evidence: tuple[str, ...] = ()


class LedgerEntry(Wire, frozen=True):
    """Recent events of one GPU (UUID, else address; `node` for the node)."""

    gpu: str = ""
    what: str = ""
    last_seen: str = ""
    seen: tuple[str, ...] = ()


class HeldDevice(Wire, frozen=True):
    """A device that Dynamic Resource Allocation assigned; its ResourceSlice has the GPU UUID."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    claim: str = ""


class Holder(Wire, frozen=True):
    """A pod and its GPUs. The kubelet reports no UID.

    The pod is the one on this node with this name whose `status.startTime` is before `read_at`.
    Both times are from the clock of the node. A pod that started in the same second or later may
    be a successor of the same name: the next list decides.
    """

    namespace: str = ""
    pod: str = ""
    gpus: tuple[str, ...] = ()
    devices: tuple[HeldDevice, ...] = ()


class Holders(Wire, frozen=True):
    """The pods that hold GPUs of the node, as its kubelet reports them.

    `complete` is False if the kubelet did not answer, a device could not be resolved to a GPU, or
    the list is cut; `reason` names the cause.
    """

    read_at: str = ""
    complete: bool = False
    reason: str = ""
    pods: tuple[Holder, ...] = ()


class HealthStatus(Wire, frozen=True):
    """`status` of a GPUNodeHealth, with the state that a restarted agent needs."""

    publisher: PublisherPod = PublisherPod()
    node_uid: str = msgspec.field(name="nodeUID", default="")
    boot_id: str = msgspec.field(name="bootID", default="")
    observed_at: str = ""
    agent_version: str = ""
    rules_version: str = ""
    driver_version: str = ""
    virtualization: str = "none"
    cursor: Cursor = Cursor()
    health: str = "Unknown"
    silent_since: str = ""
    """Since when the agent does not renew this status, written by the remediator. The agent's next
    status replaces it.
    """
    reason: str = ""
    message: str = ""
    gpus_healthy: str = ""
    expected_gpus: ExpectedGpus = msgspec.field(name="expectedGPUs", default=ExpectedGpus())
    sources: tuple[SourceStatus, ...] = ()
    seen_running: tuple[str, ...] = ()
    gpus: tuple[GpuStatus, ...] = ()
    topology: Topology = Topology()
    incidents: tuple[IncidentStatus, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    dropped: int = 0
    holders: Holders | None = None
    """None while no active incident asks for a cordon or drain, or without the kubelet's API."""


MAX_GPUS: Final = 64
"""More than any node has; a larger number is rejected."""
_COUNT: Final = re.compile(r"\d{1,2}")


def annotated_count(annotation: str) -> int | None:
    """Return the number in the annotation; None if it is not from 0 to `MAX_GPUS`."""
    found = _COUNT.fullmatch(annotation.strip())
    return int(found[0]) if found and int(found[0]) <= MAX_GPUS else None
