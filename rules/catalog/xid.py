"""Look up the reason of an Xid: its row of the catalog, refined by its line.

The catalog is `rules/data/xids.json`. An unknown number is reported and never acted upon.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from rules.catalog import nvlink, reasons
from rules.catalog.data_file import data_file
from rules.catalog.reason import (
    BY_HUMAN,
    SILENCE_3M,
    Action,
    Level,
    Reason,
    ReasonClass,
    ReasonRow,
    Severity,
    strength,
)
from rules.kernel_log.record import KernelLine, LineKind

_SOURCE: Final = "NVIDIA Xid catalog"
_CONTEXT_SWITCH_TIMEOUT_BRANCH: Final = 570
"""From this branch on the driver's recovery action determines an Xid 109."""

ANSWERED_XIDS: Final = frozenset({109, 155})
"""Xids that depend on the driver's recovery action alone, where its branch links them to one."""

GPU_LOST_XID: Final = 79
CONTAINED_XID: Final = 94
NVLINK_XID: Final = 74
NVLINK_XIDS: Final = frozenset({NVLINK_XID, *range(144, 151)})
"""Errors of NVLinks, before and from NVLink 5."""
RECOVERY_ACTION_XID: Final = 154
REPEATING_XIDS: Final = frozenset({13, 31})
"""Program errors, unless one GPU repeats them with different programs."""
PLACED_XID: Final = 13
"""The only Xid with the place (GPC and TPC) in its line."""


class XidRow(ReasonRow, frozen=True, kw_only=True):
    """One Xid of the catalog: NVIDIA's facts, our columns, and codes for what other programs do.

    `linked_from` is the driver branch from which an Xid 154 with the recovery action follows.
    `device_plugin` is unhealthy or ignored, `eks` fatal or event, `dcgm` fail, warn or none,
    `nvsentinel` a code of `rules/data/codes.json`.
    """

    xid: int
    name: str
    description: str
    mnemonic: str
    used: bool
    immediate: str
    investigatory: str
    linked_from: int | None
    device_plugin: str
    eks: str
    dcgm: str
    nvsentinel: str

    def reason(self) -> Reason:
        """Return the row's columns as a reason."""
        name = self.name if self.used else "Unknown"
        return self.as_reason(f"Xid{self.xid}{name}", _SOURCE)

    def linked(self, branch: int | None) -> bool:
        """Return whether a driver of `branch` (None: current) follows with an Xid 154."""
        return self.linked_from is not None and (branch is None or branch >= self.linked_from)


class _XidFile(msgspec.Struct, frozen=True):
    version: str
    xids: tuple[XidRow, ...]


@cache
def _file() -> _XidFile:
    text = data_file("xids.json")
    return msgspec.json.decode(text, type=_XidFile)


@cache
def catalog() -> Mapping[int, XidRow]:
    """Return every Xid of the catalog by number."""
    return MappingProxyType({row.xid: row for row in _file().xids})


def catalog_version() -> str:
    """Return the version of the catalog, published as part of `rulesVersion`."""
    return _file().version


@cache
def _row_reason(xid: int) -> Reason:
    row = catalog().get(xid)
    if row is not None:
        return row.reason()
    return Reason(
        reason=f"Xid{xid}Unknown",
        klass=ReasonClass.RECORD,
        severity=Severity.INFO,
        level=Level.REPORT,
        action=Action.NONE,
        closes_on=SILENCE_3M,
        source="no catalog knows it",
    )


@cache
def _bucket_reason(bucket: str) -> Reason:
    """Return the columns for an action bucket, from an Xid that has only this bucket."""
    example = {"RESET_GPU": 46, "XID_154_EVAL": 94}.get(bucket, 43)
    return _row_reason(example)


def like(reason: Reason, other: Reason) -> Reason:
    """Return `reason` with the severity, level, action and closing evidence of `other`."""
    return replace(
        reason,
        severity=other.severity,
        level=other.level,
        action=other.action,
        closes_on=other.closes_on,
    )


def reason_for_xid(
    xid: int,
    *,
    driver: int | None = None,
    registers: tuple[int, ...] = (),
    line_fatal: bool | None = None,
    recovery_to: int | None = None,
    asks: int | None = None,
    contained: bool = False,
    remap_failed: bool = False,
) -> Reason:
    """Return the reason of an Xid before the driver's recovery action is known.

    `driver` is the branch (580), None a current one. `registers` and `line_fatal` are from the
    line of an NVLink Xid. `recovery_to` is the new action of a 154. `asks` is the recovery action
    of the line's flags, which takes precedence over the number. `contained`: a 63 and a 94 came
    with a 48. `remap_failed`: the GPU's row remap failure flag is set.
    """
    reason = _row_reason(xid)
    if xid == RECOVERY_ACTION_XID and recovery_to is not None:
        return reasons.reason_for_recovery_action(recovery_to, driver)
    if asks is not None:
        return _as_asked(reason, asks, driver)
    if registers and (rule := nvlink.nvlink5_rule(xid, registers)) is not None:
        return like(reason, _bucket_reason(rule.immediate))
    if xid in _NVLINK5 and registers and line_fatal is False:
        return like(reason, _bucket_reason("IGNORE"))
    if xid == NVLINK_XID and registers:
        assessment = nvlink.nvlink4_assessment(registers)
        if assessment.severity is Severity.INFO:
            return replace(like(reason, _bucket_reason("IGNORE")), action=assessment.action)
        return replace(reason, severity=assessment.severity, action=assessment.action)
    if xid == 48 and contained:
        return like(reason, _row_reason(94))
    if xid in (63, 64) and remap_failed:
        return replace(
            reason,
            severity=Severity.FATAL,
            level=Level.DRAIN,
            action=Action.REPLACE_NODE,
            closes_on=BY_HUMAN,
        )
    if xid == 109 and driver is not None and driver < _CONTEXT_SWITCH_TIMEOUT_BRANCH:
        return replace(reason, klass=ReasonClass.DECISIVE, needs="")
    return reason


def _as_asked(reason: Reason, asks: int, driver: int | None) -> Reason:
    """Return the row of an Xid by the flags of its line; 0: only affected programs restart."""
    if asks == 0:
        row = like(reason, _row_reason(CONTAINED_XID))
    else:
        row = like(reason, reasons.reason_for_recovery_action(asks, driver))
    return replace(
        row, klass=ReasonClass.DECISIVE if asks else ReasonClass.NEEDS_CONTEXT, needs=""
    )


_NVLINK5: Final = range(144, 151)


def reason_for_line(line: KernelLine, driver: int | None = None) -> Reason:
    """Return the reason of the Xid of a kernel line, from the line alone."""
    if line.xid is None:
        raise ValueError(f"a line of kind {line.kind} carries no Xid")
    return reason_for_xid(
        line.xid,
        driver=driver,
        registers=line.registers,
        line_fatal=line.fatal,
        recovery_to=line.recovery_to,
        asks=line.asks,
    )


def nvidia_buckets(xid: int, registers: tuple[int, ...] = ()) -> tuple[str, str] | None:
    """Return NVIDIA's immediate and investigatory action, as decoded from the registers.

    None if the catalog does not know the number; an empty text if it has no action.
    """
    if registers and (rule := nvlink.nvlink5_rule(xid, registers)) is not None:
        return rule.immediate, rule.investigatory
    row = catalog().get(xid)
    return (row.immediate, row.investigatory) if row is not None else None


REASON_OF_KIND: Final = {
    LineKind.GPU_LOST: "GPULost",
    LineKind.RM_INIT_FAILED: "RmInitFailed",
    LineKind.PROBE_FAILED: "ProbeFailed",
    LineKind.RESET_REQUIRED: "ResetRequiredAssertion",
    LineKind.GSP_ERROR: "GspError",
    LineKind.VERSION_MISMATCH: "ClientVersionMismatch",
    LineKind.NVLINK_DETECT: "NVLinkDetectFailed",
    LineKind.PEERMEM: "PeermemError",
    LineKind.DPC: "PcieContainment",
    LineKind.PCIE_BANDWIDTH: "PcieBandwidthLimited",
    LineKind.D3COLD: "DeviceInaccessible",
    LineKind.NIC_POWER: "NicPower",
    LineKind.NIC_TEMPERATURE: "NicTemperature",
    LineKind.NIC_MODULE: "NicModule",
    LineKind.NIC_HEALTH: "NicHealth",
    LineKind.NIC_COMMAND: "NicCommandFailed",
    LineKind.NCCL_SEGFAULT: "NcclSegfault",
    LineKind.HUNG_TASK: "HungNvidiaTask",
}
"""The reason of each kind of line that determines it."""


def reason_for_kernel_line(line: KernelLine, driver: int | None = None) -> Reason | None:
    """Return the reason that `line` alone proves, or None. `driver` is the branch (580).

    It is Info if other evidence must confirm it (`needed_for`).
    """
    row = _of_line(line, driver)
    if row is None or not needed_for(line, row, driver):
        return row
    return replace(row, severity=Severity.INFO, level=Level.REPORT, action=Action.NONE)


def needed_for(line: KernelLine, row: Reason, driver: int | None) -> str:
    """Return the evidence that must confirm the row's severity; empty for none.

    Some Xids need the driver's recovery action. Lines of other drivers and of the kernel may be
    about another device. Some lines of the driver are also printed for healthy GPUs.
    """
    if line.kind is LineKind.XID:
        entry = catalog().get(line.xid) if line.xid in ANSWERED_XIDS else None
        answered = entry is not None and line.asks is None and entry.linked(driver)
        return row.needs if answered else ""
    if line.kind in (LineKind.SXID, LineKind.FABRIC_MANAGER):
        return ""
    return row.needs if row.klass is ReasonClass.NEEDS_CONTEXT else ""


def _of_line(line: KernelLine, driver: int | None) -> Reason | None:
    if line.kind is LineKind.XID:
        return reason_for_line(line, driver)
    if line.kind is LineKind.SXID or line.kind is LineKind.FABRIC_MANAGER:
        return reasons.reason_for_sxid(line.sxid_fatal)
    if line.kind is LineKind.AER:
        return reasons.REASONS[
            "PcieAerCorrected" if line.detail == "corrected" else "PcieAerUncorrected"
        ]
    code = REASON_OF_KIND.get(line.kind)
    return None if code is None else reasons.REASONS[code]


def asks_for(reason: str) -> tuple[int, int]:
    """Return the ranks of level and action of a reason; zeros if no row has this name."""
    row = (
        reasons.REASONS.get(reason) or reasons.RECOVERY_REASONS.get(reason) or _xids().get(reason)
    )
    return strength(row)[1:] if row is not None else (0, 0)


@cache
def _xids() -> dict[str, Reason]:
    rows = (row.reason() for row in catalog().values())
    return {row.reason: row for row in rows}
