"""The schema of the YAML description of a simulated GPU node.

`store` reads files into these types; the NVML calls and the PCI view use them. To cause a fault,
edit a field. `defaults` of the file apply to every GPU, so a GPU has only the fields that differ.
"""

from typing import Any, Literal

import msgspec

from hack.sim.driver.numbers import CLOCK_EVENTS, EVENT_TYPES, OPERATIONAL
from rules.judge.observation import PortCounter


class _Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A part of the description; an unknown key is an error with its path."""


class Driver(_Part):
    """Versions, as the driver reports them."""

    version: str
    cuda: str
    nvml: str

    @property
    def branch(self) -> int:
        """The major branch: 580 for 580.95.05."""
        return int(self.version.split(".")[0])


class Temperature(_Part):
    """Degrees Celsius; null if the GPU has no such sensor or threshold."""

    gpu: int = 34
    memory: int | None = None
    margin: int | None = None
    slowdown: int | None = None
    shutdown: int | None = None
    memory_max: int | None = None
    gpu_max: int | None = None
    slowdown_margin: int | None = None
    shutdown_margin: int | None = None


class Clocks(_Part):
    """Megahertz."""

    graphics: int = 345
    sm: int = 345
    memory: int = 405
    video: int = 645


class EccCounts(_Part):
    """Errors by place and kind."""

    sram_corrected: int = 0
    sram_uncorrected: int = 0
    dram_corrected: int = 0
    dram_uncorrected: int = 0


class Ecc(_Part):
    """Error correction: modes and counters."""

    enabled: bool = True
    pending: bool = True
    volatile: EccCounts = msgspec.field(default_factory=EccCounts)
    aggregate: EccCounts = msgspec.field(default_factory=EccCounts)
    sram_threshold_exceeded: bool = False


class Remap(_Part):
    """Row remapping (Ampere and later data centre parts)."""

    correctable: int = 0
    uncorrectable: int = 0
    pending: bool = False
    failure: bool = False
    histogram: list[int] = msgspec.field(default_factory=lambda: [640, 0, 0, 0, 0])
    """Banks by spare rows: max, high, partial, low, none."""


class Banks(_Part):
    """Bank remapping (drivers from R615)."""

    active: int = 0
    inactive: int = 0
    pending: bool = False
    groups_full: int = 64
    groups_exhausted: int = 0


class RetiredPages(_Part):
    """Page retirement (before Ampere)."""

    single_bit: int = 0
    double_bit: int = 0
    pending: bool = False


class Repair(_Part):
    """Repairs that wait for a reset, and memory that cannot be repaired."""

    channel_pending: bool = False
    tpc_pending: bool = False
    unrepairable_memory: bool = False


class Pcie(_Part):
    """The link to the host and its error counters."""

    generation: int = 5
    max_generation: int = 5
    width: int = 16
    max_width: int = 16
    replays: int = 0
    correctable: int = 0
    non_fatal: int = 0
    fatal: int = 0


class Nvlink(_Part):
    """The GPU's NVLinks. `peers` maps a GPU's position to the links that lead to it."""

    count: int = 0
    version: int = 4
    remote: Literal["switch", "peers"] = "switch"
    switches: list[str] = []
    """PCI addresses of the switches; the links are assigned to them in turn."""
    peers: dict[int, list[int]] = {}
    down: list[int] = []
    traffic_disabled: list[int] = []
    """Links that are up without traffic; drivers before R615 report them as up."""
    crc: dict[int, int] = {}
    replays: dict[int, int] = {}
    recoveries: dict[int, int] = {}
    crc_data: dict[int, int] = {}
    receive_errors: dict[int, int] = {}
    malformed: dict[int, int] = {}
    dropped: dict[int, int] = {}
    remote_errors: dict[int, int] = {}
    integrity_errors: dict[int, int] = {}
    recoveries_failed: dict[int, int] = {}
    symbol_errors: dict[int, int] = {}
    effective_errors: dict[int, int] = {}
    effective_ber: dict[int, int] = {}
    """Bit error ratios in the driver's format: mantissa << 8 | exponent; 0xFFF for none."""
    symbol_ber: dict[int, int] = {}
    raw_ber: dict[int, int] = {}
    retransmitted_blocks: dict[int, int] = {}


class Fabric(_Part):
    """Registration with the fabric manager. `health_mask` is in the driver's format."""

    state: int = 3
    status: int = 0
    clique: int = 0
    cluster: str = "00000000-0000-0000-0000-000000000000"
    health_mask: int = 0x50AA
    health_summary: int = 1


class C2c(_Part):
    """Chip-to-chip links of Grace systems."""

    states: list[int] = []
    errors: int = 0


class Inforom(_Part):
    """The flash memory of the board."""

    valid: bool = True
    image: str = ""


class MigInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One MIG device."""

    uuid: str
    gi: int
    ci: int = 0


class Mig(_Part):
    """Multi-instance mode."""

    enabled: bool = False
    pending: bool = False
    instances: list[MigInstance] = []


class Process(_Part):
    """A compute process on the GPU."""

    pid: int
    memory_mib: int = 0
    name: str = ""


class PciView(_Part):
    """The GPU on the PCI bus, independent of NVML. `view` null: derived from the GPU's state."""

    vendor: str = "10de"
    device: str = "2330"
    subsystem: str = "10de16c1"
    device_class: str = "0x030200"
    driver: str | None = "nvidia"
    view: Literal["present", "all_ones", "absent"] | None = None
    upstream: list[str] = []
    """Addresses of the bridges above the GPU, the root port first."""


class Gpu(_Part):
    """One GPU. The last fields are faults; CUDA calls can also hang and fail by name."""

    uuid: str
    pci: str
    """Lower or upper case `dddd:bb:dd.f`."""
    serial: str = ""
    name: str = "NVIDIA H100 80GB HBM3"
    board: str = ""
    vbios: str = ""
    architecture: int = 9
    compute_capability: str = "9.0"
    module_id: int | None = None
    minor: int = 0
    numa: int = 0
    cpus: list[int] = []
    """First and last CPU of the affinity."""
    slot: str = "0/0/0/0"
    """Socket, host bridge, outer switch, inner switch; the shared ones define the distance of two
    GPUs.
    """
    temperature: Temperature = msgspec.field(default_factory=Temperature)
    power_watts: float = 70.0
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    clocks: Clocks = msgspec.field(default_factory=Clocks)
    clock_events: list[str] = msgspec.field(default_factory=lambda: ["gpu_idle"])
    clock_event_nanoseconds: dict[str, int] = {}
    performance_state: int = 0
    utilization_percent: int = 0
    ecc: Ecc | None = msgspec.field(default_factory=Ecc)
    remap: Remap | None = msgspec.field(default_factory=Remap)
    banks: Banks | None = None
    retired_pages: RetiredPages | None = None
    repair: Repair | None = msgspec.field(default_factory=Repair)
    pcie: Pcie = msgspec.field(default_factory=Pcie)
    nvlink: Nvlink = msgspec.field(default_factory=Nvlink)
    fabric: Fabric | None = None
    c2c: C2c | None = None
    inforom: Inforom = msgspec.field(default_factory=Inforom)
    persistence: bool = True
    recovery_action: int = 0
    mig: Mig | None = msgspec.field(default_factory=Mig)
    processes: list[Process] = []
    events_supported: list[str] | None = None
    """Null: the default of this driver branch for this architecture."""
    pci_view: PciView = msgspec.field(default_factory=PciView)

    lost: bool = False
    reset_required: bool = False
    unplugged: bool = False
    hang_s: dict[str, float] = {}
    errors: dict[str, int] = {}
    """Return codes by call or field constant."""


class Port(_Part):
    """What differs from a good network port; `counters` by path as in `PortCounter`."""

    state: Literal["active", "down", "missing"] = "active"
    missing_files: list[str] = []
    counters: dict[PortCounter, int] = {}


class Host(_Part):
    """The host of the driver. `running` null: its processes are not visible, as in a pod.

    `ports` changes some of the `infiniband_ports`, by name (`mlx5_0/1`).
    """

    running: list[Literal["nvidia-fabricmanager", "nvidia-persistenced", "nvidia-imex"]] | None = (
        None
    )
    infiniband_ports: int = 0
    ports: dict[str, Port] = {}


class PushedEvent(_Part):
    """One event, delivered once: give each a larger id. `gpu` is the position.

    The fields after `ci` are those of a GPU Operational Event (type `operational`), whose `data`
    is the Xid that it names; 0 for none.
    """

    id: int
    type: str
    gpu: int
    data: int = 0
    gi: int = 0xFFFFFFFF
    ci: int = 0xFFFFFFFF
    module: str = "GPU-RAS"
    code: int = 0
    category: int = 2
    severity: int = 40
    log_level: int = 50
    group_attributes: int = 0
    contexts: int | None = None
    """How many context records the driver reports; None: as many as the event has."""


class Node(_Part):
    """The node.

    `missing` are symbols that the driver lacks, in addition to those of its branch.
    """

    driver: Driver
    gpus: list[Gpu]
    virtualization: Literal["none", "passthrough", "vgpu"] = "none"
    init_error: int = 0
    driver_restart: int = 0
    """Increase it to make every handle stale until NVML is initialised again."""
    missing: list[str] = []
    excluded: list[str] = []
    host: Host = msgspec.field(default_factory=Host)
    hang_s: dict[str, float] = {}
    errors: dict[str, int] = {}
    events: list[PushedEvent] = []


def merge(under: Any, over: Any) -> Any:
    """Return `under` updated with `over`; mappings are merged, other values are replaced."""
    if isinstance(under, dict) and isinstance(over, dict):
        return {
            **under,
            **{
                key: merge(under[key], value) if key in under else value
                for key, value in over.items()
            },
        }
    return over


def parse(document: Any) -> Node:
    """Parse a description loaded from YAML. Raises ValueError with the path of the error."""
    if not isinstance(document, dict):
        raise ValueError("expected a mapping with `driver` and `gpus`")
    document = dict(document)
    defaults = document.pop("defaults", {})
    gpus = document.get("gpus")
    if isinstance(gpus, list):
        document["gpus"] = [merge(defaults, gpu) for gpu in gpus]
    node = msgspec.convert(document, Node)
    for position, gpu in enumerate(node.gpus):
        for name in gpu.clock_events:
            if name not in CLOCK_EVENTS:
                raise ValueError(
                    f"{name!r} is no clock event - at `$.gpus[{position}].clock_events`"
                )
    for event in node.events:
        if event.type not in {*EVENT_TYPES, OPERATIONAL}:
            raise ValueError(f"{event.type!r} is not an event type - at `$.events`, id {event.id}")
    return node
