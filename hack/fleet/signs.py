"""What each kind of fault shows: the lines that the driver prints and what can be read afterwards.

Lines are those of the real driver, `{pci}` stands for the address; what a number means the rules
say, not this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hack.fleet.kinds import Kind
from rules.catalog.signals import Signal
from rules.judge.observation import Value

_XID: Final = "NVRM: Xid (PCI:{pci}): "
_NOBODY: Final = "pid='<unknown>', name=<unknown>, "
RESET_REQUIRED: Final = (
    _XID + "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What an agent may see of a fault."""

    lines: tuple[tuple[float, str], ...] = ()
    """(seconds after the beginning, text)."""
    values: Mapping[Signal, Value] = field(default_factory=dict)
    """What the GPU reads from then on."""
    gone: bool = False
    """The GPU's configuration space reads all ones."""
    port_down: bool = False


_GONE: Final = {Signal.PRESENCE: "lost"}
_ASKS_RESET: Final = {Signal.RECOVERY_ACTION: 1}
_SIGNS: Final[Mapping[Kind, Signs]] = {
    Kind.LOST: Signs(
        lines=((0.0, _XID + "79, pid=4711, name=python, GPU has fallen off the bus."),),
        values=_GONE,
        gone=True,
    ),
    Kind.LOST_SILENTLY: Signs(values=_GONE, gone=True),
    Kind.UNCONTAINED: Signs(
        lines=(
            (0.0, _XID + "48, " + _NOBODY + "DBE (double bit error) in the framebuffer"),
            (0.02, _XID + "95, pid=4711, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"),
            (0.3, RESET_REQUIRED),
        ),
        values={**_ASKS_RESET, Signal.ECC_UNCORRECTED_VOLATILE: 1},
    ),
    Kind.REMAP_FAILED: Signs(
        lines=(
            (0.0, _XID + "48, " + _NOBODY + "DBE (double bit error) in the framebuffer"),
            (0.02, _XID + "64, " + _NOBODY + "Row remapping failure"),
        ),
        values={Signal.REMAP_FAILURE: 1, Signal.ECC_UNCORRECTED_VOLATILE: 1},
    ),
    Kind.FIRMWARE: Signs(
        lines=(
            (
                0.0,
                _XID + "119, pid=4711, name=python, Timeout after 45s of waiting for RPC response"
                " from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x3f).",
            ),
            (0.5, RESET_REQUIRED),
        ),
        values=_ASKS_RESET,
    ),
    Kind.NVLINK: Signs(
        lines=(
            (
                0.0,
                _XID + "74, " + _NOBODY + "NVLink: fatal error detected on link"
                " 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
            ),
            (0.4, RESET_REQUIRED),
        ),
        values=_ASKS_RESET,
    ),
    Kind.CONTAINED: Signs(
        lines=(
            (0.0, _XID + "48, " + _NOBODY + "DBE (double bit error) in the framebuffer"),
            (
                0.01,
                _XID + "63, " + _NOBODY + "Row Remapper: New row (0x000000005ff8b8a0) marked for"
                " remapping, reset gpu to activate.",
            ),
            (
                0.02,
                _XID + "94, pid=4711, name=python, Contained: LTC TAG (0x3,0x0). RST: No,"
                " D-RST: No",
            ),
        ),
        values={Signal.REMAP_PENDING: 1, Signal.ECC_UNCORRECTED_VOLATILE: 1},
    ),
    Kind.NARROW_LINK: Signs(values={Signal.PCIE_WIDTH: 8}),
    Kind.HOT: Signs(values={Signal.CLOCK_EVENT_REASONS: 0x40}),
    Kind.PORT_DOWN: Signs(port_down=True),
    Kind.HOST_DOWN: Signs(),
    Kind.HIDDEN: Signs(),
    Kind.TESTED: Signs(),
    Kind.FALSE_ALARM: Signs(
        lines=((0.0, _XID + "95, pid=4711, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"),),
    ),
}
SIGNS: Final[Mapping[Kind, Signs]] = {**_SIGNS, Kind.BAD_DRIVER: _SIGNS[Kind.FIRMWARE]}
