"""Which reason a recognised kernel line stands for, from the line alone.

Called by ``gpuward-agent decode`` and by the agent's judgement, which may know more (the driver's
answer, other lines of the burst). Kinds that only record a fact (a UUID, a driver load, the second
line of a message) have no reason.
"""

from __future__ import annotations

from typing import Final

from rules.catalog.reason import Reason
from rules.catalog.reasons import REASONS
from rules.catalog.sxid import reason_for_sxid
from rules.catalog.xid import reason_for_line
from rules.kernel_log.parse import KernelLine, Kind

_BY_KIND: Final[dict[Kind, Reason]] = {
    kind: REASONS[code]
    for kind, code in (
        (Kind.GPU_LOST, "GPULost"),
        (Kind.RM_INIT_FAILED, "RmInitFailed"),
        (Kind.PROBE_FAILED, "ProbeFailed"),
        (Kind.RESET_REQUIRED, "ResetRequiredAssertion"),
        (Kind.GSP_ERROR, "GspError"),
        (Kind.VERSION_MISMATCH, "ClientVersionMismatch"),
        (Kind.NVLINK_DETECT, "NVLinkDetectFailed"),
        (Kind.PEERMEM, "PeermemError"),
        (Kind.DPC, "PcieContainment"),
        (Kind.PCIE_BANDWIDTH, "PcieBandwidthLimited"),
        (Kind.D3COLD, "DeviceInaccessible"),
        (Kind.NIC_POWER, "NicPower"),
        (Kind.NIC_TEMPERATURE, "NicTemperature"),
        (Kind.NIC_MODULE, "NicModule"),
        (Kind.NIC_HEALTH, "NicHealth"),
        (Kind.NIC_COMMAND, "NicCommandFailed"),
        (Kind.NCCL_SEGFAULT, "NcclSegfault"),
        (Kind.HUNG_TASK, "HungNvidiaTask"),
    )
}


def reason_for_kernel_line(line: KernelLine, driver: int | None = None) -> Reason | None:
    """Return the reason of ``line``; None for a record. ``driver`` is the branch (580)."""
    if line.kind is Kind.XID:
        return reason_for_line(line, driver)
    if line.kind is Kind.SXID or line.kind is Kind.FABRIC_MANAGER:
        return reason_for_sxid(line.sxid_fatal)
    if line.kind is Kind.AER:
        return REASONS["PcieAerCorrected" if line.detail == "corrected" else "PcieAerUncorrected"]
    return _BY_KIND.get(line.kind)
