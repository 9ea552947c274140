"""What a recognised kernel line proves alone: its reason, at most as severe as the line shows.

Called by `gpuward-agent decode`. The agent knows more: the driver's answer, the other lines of
the burst, which address is a GPU. Kinds that only record a fact (a UUID, a driver load, the second
line of a message) have no reason.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from rules.catalog.reason import Action, Level, Reason, ReasonClass, Severity
from rules.catalog.reasons import REASONS
from rules.catalog.sxid import reason_for_sxid
from rules.catalog.xid import ANSWERED_XIDS, catalog, reason_for_line
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
    """Return what `line` alone proves; None for a record. `driver` is the branch (580).

    Where more has to agree (`waits_for`), it is Info until then.
    """
    row = _reason(line, driver)
    if row is None or not waits_for(line, row, driver):
        return row
    return replace(row, severity=Severity.INFO, level=Level.REPORT, action=Action.NONE)


def waits_for(line: KernelLine, row: Reason, driver: int | None) -> str:
    """Return what the agent waits for before the row's severity stands; "" for nothing.

    The driver answers some Xids with a recovery action; lines of other drivers and of the kernel
    may be about another device; some lines of the driver are printed by healthy GPUs, too.
    """
    if line.kind is LineKind.XID:
        entry = catalog().get(line.xid) if line.xid in ANSWERED_XIDS else None
        answered = entry is not None and line.asks is None and entry.linked(driver)
        return row.needs if answered else ""
    if line.kind in (LineKind.SXID, LineKind.FABRIC_MANAGER):
        return ""
    return row.needs if row.klass is ReasonClass.NEEDS_CONTEXT else ""


def _reason(line: KernelLine, driver: int | None) -> Reason | None:
    if line.kind is LineKind.XID:
        return reason_for_line(line, driver)
    if line.kind is LineKind.SXID or line.kind is LineKind.FABRIC_MANAGER:
        return reason_for_sxid(line.sxid_fatal)
    if line.kind is LineKind.AER:
        return REASONS["PcieAerCorrected" if line.detail == "corrected" else "PcieAerUncorrected"]
    return _BY_KIND.get(line.kind)
