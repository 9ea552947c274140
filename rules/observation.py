"""What the senses hand to judgement: named, frozen facts without an opinion.

The agent's edge builds these and feeds them to ``rules.judge.judge`` one by one; nothing here
decides, reads a clock or touches a device. ``at`` is always wall time in seconds since the
epoch: of the fact itself where it carries one (a kernel line), else of its observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rules.kernel_line import KernelLine
    from rules.signals import Signal

Value: TypeAlias = "int | float | str | None"
"""A reading; None says Absent: asked for, and this GPU or driver does not have it."""


class SourceName(StrEnum):
    """The senses; the words go into ``sources[].name`` and into metrics."""

    KERNEL_LOG = "kernel-log"
    NVML = "nvml"
    DCGM = "dcgm-exporter"
    PCI = "pci"
    UDEV = "udev"
    HOST = "host"


class SourceState(StrEnum):
    """Whether a sense works: Absent is by configuration or nature, Released on request."""

    UP = "Up"
    DOWN = "Down"
    ABSENT = "Absent"
    RELEASED = "Released"


class EventKind(StrEnum):
    """What an NVML event says; ``GpuEvent.data`` holds the number that came with it."""

    XID = "Xid"
    RECOVERY_ACTION = "RecoveryAction"
    UNAVAILABLE = "Unavailable"
    POISON = "Poison"
    POISON_FATAL = "PoisonFatal"
    DRAM_RETIREMENT = "DramRetirement"
    DRAM_RETIREMENT_FAILURE = "DramRetirementFailure"
    SBE_STORM = "SbeStorm"
    ECC_DOUBLE_BIT = "EccDoubleBit"
    MIG_CHANGE = "MigChange"
    DRIVER_BIND = "DriverBind"
    DRIVER_UNBIND = "DriverUnbind"


class Remote(StrEnum):
    """What sits at the far end of an NVLink."""

    GPU = "GPU"
    SWITCH = "Switch"
    CPU = "CPU"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLineSeen:
    """One recognised record of the kernel log, from the kernel facility.

    ``sequence`` counts within ``boot_id``; ``lookback`` marks a record written before the agent
    started reading.
    """

    at: float
    sequence: int
    boot_id: str
    lookback: bool
    line: KernelLine


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGap:
    """Records were overwritten before they were read; ``sequence`` is the last one lost."""

    at: float
    lost: int
    boot_id: str = ""
    sequence: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRead:
    """The kernel log is read up to ``sequence`` (records that were not recognised included)."""

    at: float
    boot_id: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChanged:
    """A sense started, stopped or let go; ``reason`` is a CamelCase code, empty when Up."""

    at: float
    source: SourceName
    state: SourceState
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLinkSeen:
    """One NVLink of one GPU; ``remote_pci`` is empty when the driver did not say."""

    link: int
    active: bool
    remote: Remote = Remote.UNKNOWN
    remote_pci: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeen:
    """One GPU as NVML enumerates it.

    ``pci`` is lower case ``dddd:bb:dd.f`` or ``dddd:bb:dd``; ``architecture`` is NVML's word in
    lower case (``hopper``); ``numa_node`` -1 when unknown; ``ancestors`` maps the index of
    another GPU to the PCIe level between them (NVML's GpuTopologyLevel); ``cluster_uuid`` empty
    or all zero when there is no NVLink domain.
    """

    uuid: str
    index: int
    pci: str
    serial: str = ""
    product: str = ""
    board: str = ""
    vbios: str = ""
    module_id: int | None = None
    architecture: str = ""
    mig_enabled: bool | None = None
    mig_instances: int = 0
    numa_node: int = -1
    cpu_affinity: str = ""
    links: tuple[NvLinkSeen, ...] = ()
    ancestors: Mapping[int, int] = field(default_factory=dict)
    cluster_uuid: str = ""
    clique: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything NVML enumerates, taken at (re)initialisation and after a MIG change.

    ``excluded`` are PCI addresses that the driver was told to leave out; ``cpu_numa_nodes`` the
    NUMA nodes that have CPUs.
    """

    at: float
    driver: str
    virtualization: str = "none"
    gpus: tuple[GpuSeen, ...] = ()
    excluded: tuple[str, ...] = ()
    cpu_numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One poll of one GPU; signals that were not asked for are missing from ``values``."""

    at: float
    gpu: str
    values: Mapping[Signal, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvent:
    """The driver pushed an event; ``gpu`` is a UUID, or a PCI address where that is all it has."""

    at: float
    gpu: str
    kind: EventKind
    data: int = 0
    gi: int | None = None
    ci: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """An NVML call returned an error ``code``; ``gpu`` is empty where the call names none.

    ``call`` is the NVML function without its prefix; ``Init`` while the driver is initialised,
    whose failure means that there is no NVML at all.
    """

    at: float
    gpu: str
    call: str
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHung:
    """An NVML call has not returned for ``waited_s``; the next answer of any kind ends it."""

    at: float
    call: str
    waited_s: float
    gpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """One PCI function of vendor 10de as sysfs shows it.

    ``device_class`` is the upper 16 bits of the class (0x0300 VGA, 0x0302 3D controller, 0x0680
    bridge); ``config_space_ok`` is False when it reads all ones, None when it was not read.
    """

    address: str
    vendor: int
    device_class: int
    driver: str = ""
    config_space_ok: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PciSeen:
    """All NVIDIA functions on the PCI bus at one moment."""

    at: float
    functions: tuple[PciFunction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevNodesSeen:
    """The minor numbers of ``/dev/nvidia<N>`` at one moment."""

    at: float
    minors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmSeen:
    """One good page of dcgm-exporter: signals by GPU UUID, addresses normalised to NVML's form.

    ``hosts`` are the host names the page carries; whether the page is this node's is judged from
    them and from the UUIDs.
    """

    at: float
    gpus: Mapping[str, Mapping[Signal, Value]]
    pci: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """The Node object as the API server has it, cut to what judgement reads."""

    at: float
    name: str
    uid: str
    boot_id: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProcess:
    """A process of the driver's world in a bad state: ``D`` (uninterruptible) or ``Z`` (zombie)."""

    pid: int
    name: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeen:
    """What the host says about itself.

    ``services`` maps a service (``nvidia-fabricmanager``) to ``running``, ``stopped`` or
    ``absent``; ``product_uuid`` is the DMI product UUID, empty when unreadable.
    """

    at: float
    product_uuid: str = ""
    processes: tuple[HostProcess, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed: sent when ``next_deadline`` is due."""

    at: float


Observation: TypeAlias = (
    KernelLineSeen
    | KernelGap
    | KernelRead
    | SourceChanged
    | Inventory
    | Readings
    | GpuEvent
    | CallFailed
    | CallHung
    | PciSeen
    | DevNodesSeen
    | DcgmSeen
    | NodeSeen
    | HostSeen
    | Tick
)
