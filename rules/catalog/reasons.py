"""The reasons that are not Xids, one row each: NVSwitch errors and recovery actions among them.

Looked up by the judges in `rules` and by the agent's command line. Rows are data: what stands in
`rules/data/reasons.json` is what is published. Where a row rests on a reading, the number lies in
`rules.catalog.thresholds` under the same name. Of an NVSwitch error (SXid) the line's own word
decides: for 183 of 420 numbers nobody published whether they are fatal.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import msgspec

from rules.catalog.data_file import data_file
from rules.catalog.reason import Reason, ReasonRow

HOST_SIGNAL: Final = "host"
"""What the checks at the host's processes, services and modules close."""


class _CodedRow(ReasonRow, frozen=True, kw_only=True):
    reason: str
    source: str


class _ReasonsFile(msgspec.Struct, frozen=True):
    reasons: tuple[_CodedRow, ...]
    recovery: tuple[_CodedRow, ...]
    """In the order of the driver's numbers; what has none stands behind them."""


_FILE: Final = msgspec.json.decode(data_file("reasons.json"), type=_ReasonsFile)
_RECOVERY_ROWS: Final = tuple(row.as_reason(row.reason, row.source) for row in _FILE.recovery)

REASONS: Final = MappingProxyType(
    {row.reason: row.as_reason(row.reason, row.source) for row in _FILE.reasons}
)
"""Every reason that is not an Xid, by its code."""

RECOVERY_REASONS: Final = MappingProxyType({row.reason: row for row in _RECOVERY_ROWS})

_RECOVERY_PREFIX: Final = "RecoveryAction"
_BY_NAME: Final = {
    row.reason.removeprefix(_RECOVERY_PREFIX): value
    for value, row in enumerate(_RECOVERY_ROWS[:8])
}

NO_ACTION: Final = 0
"""The recovery action of a driver that asks for nothing."""

FIRST_IMEX_BRANCH: Final = 595
"""Recovery action 5 means the IMEX domain from this driver branch on, a bus reset before it."""


def reason_for_recovery_action(value: int, driver_branch: int | None = None) -> Reason:
    """Return what the driver's recovery action `value` (NVML field, event or Xid 154) means.

    `driver_branch` is the driver's major number (580); unknown reads as a current driver.
    """
    if 0 <= value <= 4 or value in (6, 7):
        return _RECOVERY_ROWS[value]
    if value == 5:
        old = driver_branch is not None and driver_branch < FIRST_IMEX_BRANCH
        return RECOVERY_REASONS["RecoveryActionBusReset"] if old else _RECOVERY_ROWS[5]
    return RECOVERY_REASONS["RecoveryActionUnknown"]


def recovery_action_name(value: int | None, driver_branch: int | None) -> str:
    """The recovery action as it is published of a GPU: `None`, `ResetGPU`; "" when not known."""
    if value is None:
        return ""
    reason = reason_for_recovery_action(value, driver_branch).reason
    return reason.removeprefix(_RECOVERY_PREFIX)


def recovery_action_of(word: str) -> int | None:
    """The number of a recovery action by its published word or its reason; None for another."""
    return _BY_NAME.get(word.removeprefix(_RECOVERY_PREFIX))


class SxidRow(msgspec.Struct, frozen=True):
    """One NVSwitch error: the driver's name and its published fatality.

    `fatality` is fatal, always-fatal, non-fatal or unknown.
    """

    sxid: int
    mnemonic: str
    fatality: str


class _SxidFile(msgspec.Struct, frozen=True):
    version: str
    sxids: tuple[SxidRow, ...]


@cache
def sxid_catalog() -> Mapping[int, SxidRow]:
    """Every NVSwitch error that the driver knows, by its number."""
    text = data_file("sxids.json")
    return MappingProxyType(
        {row.sxid: row for row in msgspec.json.decode(text, type=_SxidFile).sxids}
    )


def reason_for_sxid(fatal: bool | None) -> Reason:
    """Return what an SXid means by the word of its line; None where the line has none."""
    if fatal is None:
        return REASONS["SXidUnknown"]
    return REASONS["SXidFatal" if fatal else "SXidNonFatal"]
