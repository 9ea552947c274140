"""NVSwitch errors (SXid): a name for each number; the line's own word decides what it means.

Called by `decode`, `explain` and the agent's judgement. The catalog (`data/sxids.json`) only
names numbers: for 183 of 420 nobody published whether they are fatal, so it never decides.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from rules.catalog.data_file import data_file
from rules.catalog.reasons import REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rules.catalog.reason import Reason


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
