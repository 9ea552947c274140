"""The record of a recognized kernel log line and the list of its kinds.

`rules.kernel_log.parse` returns it; `decode`, the assessment and the metrics read it.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec


class LineKind(StrEnum):
    """Every kind of line that is recognized. `decode --json` prints the values."""

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
        LineKind.SXID: "An NVSwitch error report; sxid is its number, sxid_fatal its severity",
        LineKind.SXID_DETAIL: "A continuation line (severity, data) of the previous SXid",
        LineKind.FABRIC_MANAGER: "An SXid in the fabric manager's log",
        LineKind.GPU_LOST: "The driver reports that a GPU fell off the bus, without an Xid",
        LineKind.GPU_LOST_DETAIL: "An additional line about a lost GPU, without its PCI address",
        LineKind.RM_INIT_FAILED: "The driver could not initialize a GPU",
        LineKind.PROBE_FAILED: "The driver's probe failed for one or more GPUs",
        LineKind.RESET_REQUIRED: "A driver assertion requires a GPU reset; no PCI address",
        LineKind.GSP_ERROR: "The GPU System Processor stopped responding or needs a reset",
        LineKind.VERSION_MISMATCH: "Driver library and kernel module have different versions",
        LineKind.GPU_UUID: "The PCI address and UUID of a GPU",
        LineKind.GPU_SERIAL: "The board serial number of a GPU",
        LineKind.DRIVER_LOAD: "The kernel module is loading: evidence of a reset",
        LineKind.NVLINK_DETECT: "NVLink receiver detection failed",
        LineKind.PEERMEM: "nvidia-peermem skipped a callback; no action needed",
        LineKind.AER: "A PCIe error report of a port or device",
        LineKind.DPC: "PCIe Downstream Port Containment: the port disabled its link",
        LineKind.PCIE_SLOT: "A PCIe hot-plug slot lost its link or card; pci is the port",
        LineKind.IOMMU_FAULT: "The IOMMU blocked a memory access (DMA) of a device",
        LineKind.PCIE_BANDWIDTH: "The PCIe link limits the bandwidth of a device",
        LineKind.D3COLD: "A device did not resume from power state D3cold",
        LineKind.NIC_POWER: "The slot does not supply enough power for a network adapter",
        LineKind.NIC_TEMPERATURE: "A network cable module is too hot",
        LineKind.NIC_MODULE: "A network cable module was unplugged or failed",
        LineKind.NIC_HEALTH: "A network adapter's own health check failed",
        LineKind.NIC_COMMAND: "A command to a network adapter failed or timed out",
        LineKind.NCCL_SEGFAULT: "A process crashed inside the NCCL library",
        LineKind.HUNG_TASK: "A task of the NVIDIA driver or its tools is blocked in the kernel",
    }
)
"""One line for each kind, printed by the help of `decode`."""


class KernelLine(msgspec.Struct, frozen=True, gc=False):
    """One recognized line; a field that the line does not have is None.

    `text` is the message without its transport prefix, at most 512 characters, control characters
    escaped as `\\xNN`. `pci` is lower case `dddd:bb:dd`, with `.f` if the line has it (drivers of
    2007 print `bus:slot` only). `user`: user space wrote the line, according to the transport.
    `registers` are the registers of an NVLink Xid (the first two of 144 to 150), `fatal` its
    fatality, `gpc` and `tpc` the place of an Xid 13. `detail` is the serial number, driver or
    client version, initialization status, number of devices, seconds or watts of a line; for aer
    corrected, nonfatal or fatal; for pcie_bandwidth `N of M Gb/s`. `pci` is the device that
    reports a PCIe error and `erring` the device with the error, which may be the same. `asks` is
    the recovery action of the line's flags: 0 none, 1 a reset, 4 a reset when the GPU is empty.
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
