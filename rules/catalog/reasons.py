"""Look up the reasons that are not Xids, including NVSwitch errors and recovery actions.

The rows are in `rules/data/reasons.json` and published unchanged. The threshold of a reading is in
`rules.catalog.thresholds` under the same name. The line of an NVSwitch error (SXid) determines
whether it is fatal: for 183 of 420 numbers that is not published.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import msgspec

from rules.catalog.data_file import data_file
from rules.catalog.reason import Reason, ReasonRow

HOST_SIGNAL: Final = "host"
"""The signal of checks of the host's processes, services and modules."""


class _CodedRow(ReasonRow, frozen=True, kw_only=True):
    reason: str
    source: str


class _ReasonsFile(msgspec.Struct, frozen=True):
    reasons: tuple[_CodedRow, ...]
    recovery: tuple[_CodedRow, ...]
    """In the order of the driver's numbers; rows without a number come last."""


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
"""The driver requires no recovery action."""

FIRST_IMEX_BRANCH: Final = 595
"""Recovery action 5 means the IMEX domain from this driver branch on, a bus reset before it."""


def reason_for_recovery_action(value: int, driver_branch: int | None = None) -> Reason:
    """Return the reason of the driver's recovery action `value` (NVML field, event or Xid 154).

    `driver_branch` is the driver's major number (580); None means a current driver.
    """
    if 0 <= value <= 4 or value in (6, 7):
        return _RECOVERY_ROWS[value]
    if value == 5:
        old = driver_branch is not None and driver_branch < FIRST_IMEX_BRANCH
        return RECOVERY_REASONS["RecoveryActionBusReset"] if old else _RECOVERY_ROWS[5]
    return RECOVERY_REASONS["RecoveryActionUnknown"]


def recovery_action_name(value: int | None, driver_branch: int | None) -> str:
    """Return the published recovery action of a GPU: `None`, `ResetGPU`; empty if unknown."""
    if value is None:
        return ""
    reason = reason_for_recovery_action(value, driver_branch).reason
    return reason.removeprefix(_RECOVERY_PREFIX)


def recovery_action_of(name: str) -> int | None:
    """Return the number of a recovery action by its name or reason; None if unknown."""
    return _BY_NAME.get(name.removeprefix(_RECOVERY_PREFIX))


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
    """Return every NVSwitch error that the driver knows, by number."""
    text = data_file("sxids.json")
    return MappingProxyType(
        {row.sxid: row for row in msgspec.json.decode(text, type=_SxidFile).sxids}
    )


def reason_for_sxid(fatal: bool | None) -> Reason:
    """Return the reason of an SXid; `fatal` is None if its line does not state it."""
    if fatal is None:
        return REASONS["SXidUnknown"]
    return REASONS["SXidFatal" if fatal else "SXidNonFatal"]
