"""What a recognised kernel log line says: the closed list of kinds and the frozen record.

Produced by ``rules.kernel_line``; read by ``gpuward-agent decode``, by the agent's judgement and
by its metrics. Holds facts only, never an opinion about them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """Every kind of line that is recognised. The values are wire words of ``decode --json``."""

    XID = "xid"
    """A GPU error report of the NVIDIA driver; ``xid`` is its number."""
    SXID = "sxid"
    """An NVSwitch error report; ``sxid`` is its number, ``sxid_fatal`` the line's own word."""
    SXID_DETAIL = "sxid_detail"
    """A second or third line (severity, data words) of the SXid before it."""
    FABRIC_MANAGER = "fabric_manager"
    """The fabric manager's own log repeats an SXid."""
    GPU_LOST = "gpu_lost"
    """The driver says a GPU fell off the bus, without an Xid."""
    GPU_LOST_DETAIL = "gpu_lost_detail"
    """The last line of a lost-GPU message that was split; names no GPU."""
    RM_INIT_FAILED = "rm_init_failed"
    """The driver could not initialise a GPU; ``detail`` holds its status words."""
    PROBE_FAILED = "probe_failed"
    """The driver's probe gave up on ``detail`` devices."""
    RESET_REQUIRED = "reset_required"
    """A driver assertion says that some GPU needs a reset; it names none."""
    GSP_ERROR = "gsp_error"
    """The driver says that the GPU's system processor likely needs a reset."""
    VERSION_MISMATCH = "version_mismatch"
    """A client library of version ``detail`` does not fit the kernel module."""
    GPU_UUID = "gpu_uuid"
    """The driver's own map from PCI address to GPU UUID."""
    GPU_SERIAL = "gpu_serial"
    """The board serial number (``detail``, empty where the driver printed none)."""
    DRIVER_LOAD = "driver_load"
    """The kernel module is loading; ``detail`` is its version. Evidence of a reset."""
    NVLINK_DETECT = "nvlink_detect"
    """NVLink receiver detection failed."""
    PEERMEM = "peermem"
    """nvidia-peermem skipped a callback; harmless."""
    AER = "aer"
    """PCIe error report; ``detail`` is corrected, nonfatal or fatal."""
    DPC = "dpc"
    """PCIe downstream port containment: the port cut off what is behind it."""
    PCIE_BANDWIDTH = "pcie_bandwidth"
    """A device has less PCIe bandwidth than it could; ``detail`` is ``N of M Gb/s``."""
    D3COLD = "d3cold"
    """A device did not come back from its power-off state."""
    NIC_POWER = "nic_power"
    """A network adapter found too little power on its slot (``detail``: watts)."""
    NIC_TEMPERATURE = "nic_temperature"
    """A network cable module is too hot."""
    NIC_MODULE = "nic_module"
    """A network cable module was unplugged or failed."""
    NIC_HEALTH = "nic_health"
    """A network adapter's own health check failed."""
    NIC_COMMAND = "nic_command"
    """A command to a network adapter failed or timed out."""
    NCCL_SEGFAULT = "nccl_segfault"
    """A process crashed inside the NCCL library."""
    HUNG_TASK = "hung_task"
    """A task of the NVIDIA driver or its tools hangs in the kernel (``detail``: seconds)."""


class KernelLine(msgspec.Struct, frozen=True, gc=False):
    """One recognised line; what the line does not say is None.

    ``text`` is the message without its transport prefix, at most 512 characters, control
    characters escaped as ``\\xNN``. ``pci`` is lower case ``dddd:bb:dd`` with ``.f`` where the
    line has it (two drivers of 2007 print ``bus:slot`` only). ``user`` is True where the
    transport says that user space wrote it. ``words`` are the registers in the parentheses of an
    NVLink Xid (of 144 to 150 the first two, which decide), ``fatal`` that line's own word, ``gpc`` and ``tpc`` the place of an Xid 13.
    """

    kind: Kind
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
    words: tuple[int, ...] = ()
    gpc: int | None = None
    tpc: int | None = None
    detail: str | None = None
