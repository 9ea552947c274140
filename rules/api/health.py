"""GPUNodeHealth as it travels: what an agent publishes about its node and reads back at start.

The agent encodes these types, the remediator decodes them, the CRD in `daemonset/crds/` is
checked against them. Strings that may grow with a new agent (`class`, `recommendedAction`,
`reason`, source names) stay plain strings, so that an older reader never loses a newer health
status.
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


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the objects on the wire: camelCase names; write them through `plain`."""


def plain(value: Any) -> Any:
    """The wire value as JSON builtins, without fields that are empty (None, "", [], {}).

    False and 0 are words and stay, and so does everything inside a free-form object: there an
    empty value means what its owner says (`key=` of a label selector). The API server refuses null
    where the schema has no `nullable`, so every writer of these types must send this form.
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
    """The pod whose readiness says that the health status is alive."""

    pod: str = ""
    pod_uid: str = msgspec.field(name="podUID", default="")
    heartbeat: str = ""


class Cursor(Wire, frozen=True):
    """How far the kernel log of which boot has been judged."""

    boot_id: str = msgspec.field(name="bootID", default="")
    kmsg_seq: int = -1


class ExpectedGpus(Wire, frozen=True):
    """How many GPUs the node should have, and who reports it."""

    count: int = 0
    source: str = "Learned"


class SourceStatus(Wire, frozen=True):
    """One collector: kernel log, NVML, dcgm-exporter, PCI, udev."""

    name: str
    state: str
    reason: str = ""
    since: str = ""


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
    """One fault with its life: opened once, kept by id, closed by named evidence."""

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
    """What happened to one GPU (UUID, else address; `node` for the node) and how often lately."""

    gpu: str = ""
    what: str = ""
    last_seen: str = ""
    seen: tuple[str, ...] = ()


class HealthStatus(Wire, frozen=True):
    """`status` of a GPUNodeHealth: the entire health status and all state a restarted agent
    needs.
    """

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
    """The remediator's word, so that a list of health statuses shows it: since when nobody renews
    this one. The next health status of the agent replaces it.
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


MAX_GPUS: Final = 64
"""More than any node has; a larger claim is a mistake and is not believed."""
_COUNT: Final = re.compile(r"\d{1,2}")


def annotated_count(annotation: str) -> int | None:
    """The number that it says; None where it is none from 0 to `MAX_GPUS`."""
    said = _COUNT.fullmatch(annotation.strip())
    return int(said[0]) if said and int(said[0]) <= MAX_GPUS else None
