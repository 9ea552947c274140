"""Observations: the typed inputs of `rules.judge.judge.judge` from the agent's data sources.

`at` is wall time in seconds since the epoch: of the fact itself if it has one (a kernel line),
else of its observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from rules.catalog.signals import EventKind as EventKind
from rules.catalog.signals import Signal
from rules.catalog.signals import SourceState as SourceState

if TYPE_CHECKING:
    from rules.kernel_log.record import KernelLine

Value: TypeAlias = int | float | str | tuple[int | None, ...] | None
"""A reading. None means that this GPU or driver does not support it.

Tuples are per link (None: that link could not be read) or a histogram; see
`rules.catalog.signals`.
"""


NVIDIA_VENDOR: Final = 0x10DE
GPU_CLASSES: Final = frozenset({0x0300, 0x0302})
"""PCI class of a VGA controller and of a 3D controller. Source: PCI codes and IDs."""
NVSWITCH_CLASS: Final = 0x0680
"""PCI class of an NVSwitch: a bridge of another kind. Source: PCI codes and IDs."""


class SourceName(StrEnum):
    """The data sources; the values are published in `sources[].name` and in metrics."""

    KERNEL_LOG = "kernel-log"
    NVML = "nvml"
    DCGM = "dcgm-exporter"
    PCI = "pci"
    UDEV = "udev"
    HOST = "host"
    POD_RESOURCES = "pod-resources"


class Service(StrEnum):
    """The driver's services on the host, by the names of their units."""

    FABRIC_MANAGER = "nvidia-fabricmanager"
    PERSISTENCED = "nvidia-persistenced"
    IMEX = "nvidia-imex"


class KernelLineSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One recognized record of the kernel log, from the kernel facility.

    `sequence` counts within `boot_id`; `lookback` flags a record written before the
    agent started reading.
    """

    at: float
    sequence: int
    boot_id: str
    lookback: bool
    line: KernelLine


class KernelGap(msgspec.Struct, frozen=True, kw_only=True):
    """Records were overwritten before they were read; `sequence` is the last one lost."""

    at: float
    lost: int
    boot_id: str = ""
    sequence: int = -1


class KernelRead(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel log is read up to `sequence` (records that were not recognized included)."""

    at: float
    boot_id: str
    sequence: int


class SourceChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A data source started, stopped or was released; `reason` is a CamelCase code, empty when Up.

    A hung NVML call is `Down` with reason `CallHung`.
    """

    at: float
    source: SourceName
    state: SourceState
    reason: str = ""


class GpuSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML enumerates it; a lost one may have no `uuid`.

    `pci` is lower case `dddd:bb:dd.f` or `dddd:bb:dd`; `architecture` NVML's number
    (6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell).
    """

    uuid: str
    index: int
    pci: str
    serial: str = ""
    product: str = ""
    board: str = ""
    vbios: str = ""
    module_id: int | None = None
    minor: int | None = None
    architecture: int | None = None
    mig_mode: bool | None = None
    mig_devices: tuple[str, ...] = ()
    """UUIDs of its MIG devices."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Everything NVML enumerates, read at (re)initialization and after a MIG change.

    `excluded` are PCI addresses that the driver is configured to exclude.
    """

    at: float
    driver: str
    virtualization: str = "none"
    gpus: tuple[GpuSeen, ...] = ()
    excluded: tuple[str, ...] = ()


class TopologySeen(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The connections between the GPUs; rows and columns follow `gpus` (UUID, else PCI).

    `links[i][j]` has the values of `nvidia-smi topo -m` (X, NV18, PIX, SYS). `remotes[i]` names
    the remote end of each NVLink of that GPU: `gpu`, `switch`, `npu`, `unknown`, or empty without
    a link. `numa` is each GPU's NUMA node.
    """

    at: float
    gpus: tuple[str, ...]
    links: tuple[tuple[str, ...], ...]
    remotes: tuple[tuple[str, ...], ...] = ()
    clusters: tuple[str, ...] = ()
    cliques: tuple[int | None, ...] = ()
    numa: tuple[int | None, ...] = ()


class Readings(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One poll of one GPU; signals that were not read are missing from `values`."""

    at: float
    gpu: str
    values: Mapping[Signal, Value]
    pci: str = ""


class GpuEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An event of the driver; `gpu` and `pci` are empty if it names no GPU.

    `detail` is a line about a GPU Operational Event.
    """

    at: float
    kind: EventKind
    data: int = 0
    detail: str = ""
    gpu: str = ""
    pci: str = ""
    gi: int | None = None
    ci: int | None = None


class CallFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An NVML call returned an error `code`: about the driver, or else about one GPU.

    `gpu` and `pci` are also empty if the GPU could not be identified. `call` is the NVML function
    (`nvmlInit_v2`).
    """

    at: float
    call: str
    code: int
    gpu: str = ""
    pci: str = ""
    of_driver: bool = False


class PciFunction(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI function of vendor 10de as sysfs shows it.

    `device_class` is the upper 16 bits of the class. `config_space_ok` is False when it reads all
    ones, None when it was not read. `upstream` are the full addresses of the bridges above it, the
    root port first.
    """

    address: str
    vendor: int
    device_class: int
    driver: str = ""
    config_space_ok: bool | None = None
    upstream: tuple[str, ...] = ()


class PciSeen(msgspec.Struct, frozen=True, kw_only=True):
    """All NVIDIA functions on the PCI bus at one moment."""

    at: float
    functions: tuple[PciFunction, ...]


class DcgmSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One page of dcgm-exporter: signals by GPU UUID, addresses in NVML's format.

    `xids` is the last Xid of each GPU, `instance_xids` that of each MIG instance, by UUID of the
    GPU and number of the GPU instance. `energy` is the energy in mJ that each GPU has used since
    its driver was loaded, if exported.
    """

    at: float
    gpus: Mapping[str, Mapping[Signal, Value]]
    xids: Mapping[str, int] = msgspec.field(default_factory=dict)
    instance_xids: Mapping[tuple[str, int], int] = msgspec.field(default_factory=dict)
    pci: Mapping[str, str] = msgspec.field(default_factory=dict)
    driver: str = ""
    energy: Mapping[str, float] = msgspec.field(default_factory=dict)


class AssignedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of Dynamic Resource Allocation; `claim` is in the namespace of the pod."""

    driver: str
    pool: str
    device: str
    claim: str


class PodDevices(msgspec.Struct, frozen=True, kw_only=True):
    """One pod and its devices: (resource, device ID) of device plugins, and those of DRA."""

    namespace: str
    pod: str
    plugin: tuple[tuple[str, str], ...] = ()
    dra: tuple[AssignedDevice, ...] = ()


class PodResourcesSeen(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The pods with devices, as the kubelet reports them; `cut` if there were too many."""

    at: float
    pods: tuple[PodDevices, ...]
    cut: bool = False


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the Node object that the assessment reads."""

    at: float
    name: str
    uid: str
    boot_id: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)


class PortCounter(StrEnum):
    """An error counter of a network port: its path below the port's folder in sysfs.

    Source: Linux `Documentation/ABI/stable/sysfs-class-infiniband`, and the driver efa.
    """

    SYMBOL_ERRORS = "counters/symbol_error"
    LINK_RECOVERIES = "counters/link_error_recovery"
    LINK_DOWNED = "counters/link_downed"
    RECEIVE_ERRORS = "counters/port_rcv_errors"
    SLOW_RESTARTS = "hw_counters/roce_slow_restart"
    EFA_DROPS = "hw_counters/rx_drops"
    EFA_READ_ERRORS = "hw_counters/rdma_read_wr_err"
    EFA_WRITE_ERRORS = "hw_counters/rdma_write_wr_err"
    EFA_TIMEOUTS = "hw_counters/retrans_timeout_events"
    EFA_IMPAIRED = "hw_counters/impaired_remote_conn_events"
    EFA_UNRESPONSIVE = "hw_counters/unresponsive_remote_events"
    EFA_COMMANDS_LOST = "../../hw_counters/no_completion_cmds"
    CARRIER_DOWN = "carrier_down_count"
    """Of the network interface; only of ports with link layer Ethernet."""


class NetworkPort(msgspec.Struct, frozen=True, kw_only=True):
    """One port of an InfiniBand, RoCE or EFA adapter (`mlx5_0/1`).

    `active`: whether its link is up; None if the adapter does not answer. `missing_files` names
    the device files (`uverbs`, `umad`) that it lacks; None if unknown. `counters` has the error
    counters that the port has.
    """

    name: str
    active: bool | None
    missing_files: tuple[str, ...] | None = None
    counters: Mapping[PortCounter, int] = msgspec.field(default_factory=dict)


class HostSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the host.

    `product_uuid` is the DMI product UUID, empty when unreadable; `booted_at` the wall time of
    this boot, 0 when unknown; `cpu_numa_nodes` the NUMA nodes with CPUs; `ports` those of the
    InfiniBand, RoCE and EFA adapters. `ports_move`: a port may be in the network namespace of a
    pod, where it is not visible. `services` maps each service to whether it runs; it is empty if
    the host's processes are not visible, or not read because of `too_many_processes`.
    """

    at: float
    booted_at: float = 0.0
    product_uuid: str = ""
    cpu_numa_nodes: tuple[int, ...] = ()
    too_many_processes: bool = False
    services: Mapping[Service, bool] = msgspec.field(default_factory=dict)
    ports: tuple[NetworkPort, ...] = ()
    ports_move: bool = False


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time passed: sent when `next_deadline` is due."""

    at: float


Observation: TypeAlias = (
    KernelLineSeen
    | KernelGap
    | KernelRead
    | SourceChanged
    | Inventory
    | TopologySeen
    | Readings
    | GpuEvent
    | CallFailed
    | PciSeen
    | DcgmSeen
    | NodeSeen
    | HostSeen
    | PodResourcesSeen
    | Tick
)
