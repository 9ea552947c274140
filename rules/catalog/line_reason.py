"""Which reason a recognised kernel line stands for, from the line alone.

Called by `gpuward-agent decode` and by the agent's judgement, which may know more (the driver's
answer, other lines of the burst). Kinds that only record a fact (a UUID, a driver load, the second
line of a message) have no reason.
"""

from __future__ import annotations

from typing import Final

from rules.catalog.reason import Reason
from rules.catalog.reasons import REASONS
from rules.catalog.sxid import reason_for_sxid
from rules.catalog.xid import reason_for_line
from rules.kernel_log.record import KernelLine, LineKind

_BY_KIND: Final[dict[LineKind, Reason]] = {
    kind: REASONS[code]
    for kind, code in (
        (LineKind.GPU_LOST, "GPULost"),
        (LineKind.RM_INIT_FAILED, "RmInitFailed"),
        (LineKind.PROBE_FAILED, "ProbeFailed"),
        (LineKind.RESET_REQUIRED, "ResetRequiredAssertion"),
        (LineKind.GSP_ERROR, "GspError"),
        (LineKind.VERSION_MISMATCH, "ClientVersionMismatch"),
        (LineKind.NVLINK_DETECT, "NVLinkDetectFailed"),
        (LineKind.PEERMEM, "PeermemError"),
        (LineKind.DPC, "PcieContainment"),
        (LineKind.PCIE_BANDWIDTH, "PcieBandwidthLimited"),
        (LineKind.D3COLD, "DeviceInaccessible"),
        (LineKind.NIC_POWER, "NicPower"),
        (LineKind.NIC_TEMPERATURE, "NicTemperature"),
        (LineKind.NIC_MODULE, "NicModule"),
        (LineKind.NIC_HEALTH, "NicHealth"),
        (LineKind.NIC_COMMAND, "NicCommandFailed"),
        (LineKind.NCCL_SEGFAULT, "NcclSegfault"),
        (LineKind.HUNG_TASK, "HungNvidiaTask"),
    )
}


def reason_for_kernel_line(line: KernelLine, driver: int | None = None) -> Reason | None:
    """Return the reason of `line`; None for a record. `driver` is the branch (580)."""
    if line.kind is LineKind.XID:
        return reason_for_line(line, driver)
    if line.kind is LineKind.SXID or line.kind is LineKind.FABRIC_MANAGER:
        return reason_for_sxid(line.sxid_fatal)
    if line.kind is LineKind.AER:
        return REASONS["PcieAerCorrected" if line.detail == "corrected" else "PcieAerUncorrected"]
    return _BY_KIND.get(line.kind)
