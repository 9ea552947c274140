"""What a recognised kernel log line says: the closed list of kinds and the frozen record.

Produced by `rules.kernel_log.parse`; read by `gpuward-agent decode`, by the agent's judgement and
by its metrics. Holds facts only, never an opinion about them.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec


class LineKind(StrEnum):
    """Every kind of line that is recognised. The values are wire words of `decode --json`."""

    XID = "xid"
    SXID = "sxid"
    SXID_DETAIL = "sxid_detail"
    FABRIC_MANAGER = "fabric_manager"
    GPU_LOST = "gpu_lost"
    GPU_LOST_DETAIL = "gpu_lost_detail"
    RM_INIT_FAILED = "rm_init_failed"
    PROBE_FAILED = "probe_failed"
    RESET_REQUIRED = "reset_required"
    GSP_ERROR = "gsp_error"
    VERSION_MISMATCH = "version_mismatch"
    GPU_UUID = "gpu_uuid"
    GPU_SERIAL = "gpu_serial"
    DRIVER_LOAD = "driver_load"
    NVLINK_DETECT = "nvlink_detect"
    PEERMEM = "peermem"
    AER = "aer"
    DPC = "dpc"
    PCIE_SLOT = "pcie_slot"
    IOMMU_FAULT = "iommu_fault"
    PCIE_BANDWIDTH = "pcie_bandwidth"
    D3COLD = "d3cold"
    NIC_POWER = "nic_power"
    NIC_TEMPERATURE = "nic_temperature"
    NIC_MODULE = "nic_module"
    NIC_HEALTH = "nic_health"
    NIC_COMMAND = "nic_command"
    NCCL_SEGFAULT = "nccl_segfault"
    HUNG_TASK = "hung_task"


KIND_MEANINGS: Final = MappingProxyType(
    {
        LineKind.XID: "A GPU error report of the NVIDIA driver; xid is its number",
        LineKind.SXID: "An NVSwitch error report; sxid is its number, sxid_fatal the "
        "line's own word",
        LineKind.SXID_DETAIL: "A second or third line (severity, data words) of "
        "the SXid before it",
        LineKind.FABRIC_MANAGER: "The fabric manager's own log repeats an SXid",
        LineKind.GPU_LOST: "The driver says a GPU fell off the bus, without an Xid",
        LineKind.GPU_LOST_DETAIL: "A further line about a lost GPU, which it does not name",
        LineKind.RM_INIT_FAILED: "The driver could not initialise a GPU",
        LineKind.PROBE_FAILED: "The driver's probe gave up on one or more GPUs",
        LineKind.RESET_REQUIRED: "A driver assertion says that some GPU needs a "
        "reset; it names none",
        LineKind.GSP_ERROR: "The GPU's system processor stopped answering or likely needs a reset",
        LineKind.VERSION_MISMATCH: "A client library does not fit the kernel module",
        LineKind.GPU_UUID: "The driver's own map from PCI address to GPU UUID",
        LineKind.GPU_SERIAL: "The board serial number of a GPU",
        LineKind.DRIVER_LOAD: "The kernel module is loading: evidence of a reset",
        LineKind.NVLINK_DETECT: "NVLink receiver detection failed",
        LineKind.PEERMEM: "nvidia-peermem skipped a callback; harmless",
        LineKind.AER: "A PCIe error report of a port or device",
        LineKind.DPC: "PCIe downstream port containment: the port cut off what is behind it",
        LineKind.PCIE_SLOT: "A PCIe hot-plug slot lost its link or its card; names the port above",
        LineKind.IOMMU_FAULT: "The IOMMU refused a device's access to memory",
        LineKind.PCIE_BANDWIDTH: "A device has less PCIe bandwidth than it could",
        LineKind.D3COLD: "A device did not come back from its power-off state",
        LineKind.NIC_POWER: "A network adapter found too little power on its slot",
        LineKind.NIC_TEMPERATURE: "A network cable module is too hot",
        LineKind.NIC_MODULE: "A network cable module was unplugged or failed",
        LineKind.NIC_HEALTH: "A network adapter's own health check failed",
        LineKind.NIC_COMMAND: "A command to a network adapter failed or timed out",
        LineKind.NCCL_SEGFAULT: "A process crashed inside the NCCL library",
        LineKind.HUNG_TASK: "A task of the NVIDIA driver or its tools hangs in the kernel",
    }
)
"""One line for each kind, printed by the help of `decode`."""


class KernelLine(msgspec.Struct, frozen=True, gc=False):
    """One recognised line; what the line does not say is None.

    `text` is the message without its transport prefix, at most 512 characters, control
    characters escaped as `\\xNN`. `pci` is lower case `dddd:bb:dd` with `.f` where the
    line has it (drivers of 2007 print `bus:slot` only). `user` is True where the transport
    says that user space wrote it. `words` are the registers in the parentheses of an NVLink Xid
    (of 144 to 150 the first two, which decide), `fatal` that line's own word, `gpc` and
    `tpc` the place of an Xid 13. `detail` is the serial number, driver or client version,
    initialisation status, number of devices, seconds or watts of a line; for aer corrected,
    nonfatal or fatal; for pcie_bandwidth `N of M Gb/s`. `erring` is the device whose PCIe error a
    port passes on, which may be the port itself: `pci` is the one that speaks. `asks` is what
    the line itself says the GPU needs, as a recovery action: 0 nothing, 1 a reset, 4 a reset once
    it is empty.
    """

    kind: LineKind
    xid: int | None = None
    sxid: int | None = None
    sxid_fatal: bool | None = None
    pci: str | None = None
    gpu_uuid: str | None = None
    mig_gi: int | None = None
    mig_ci: int | None = None
    pid: int | None = None
    process: str | None = None
    link: int | None = None
    unit: str | None = None
    caused_by: int | None = None
    recovery_from: int | None = None
    recovery_to: int | None = None
    user: bool = False
    text: str = ""
    fatal: bool | None = None
    registers: tuple[int, ...] = ()
    gpc: int | None = None
    tpc: int | None = None
    detail: str | None = None
    erring: str | None = None
    asks: int | None = None
