"""What a fault of a class really is: what it does to work, and what an agent can see of it.

The trace says that a server was out for `GPU DBE`; the simulation has to say what the driver
printed and what became of the job. Shares within the GPU class are the trace's own descriptions;
the rest of the numbers carries its source or says that it is an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rules.simulate.truth.dice import Dice, weighted


class Kind(StrEnum):
    """One way in which a node is bad."""

    LOST = "GPU lost, Xid 79"
    LOST_SILENTLY = "GPU lost, no Xid"
    UNCONTAINED = "uncontained memory error"
    REMAP_FAILED = "row remap failed"
    FIRMWARE = "GPU firmware hangs"
    NVLINK = "NVLink fails"
    CONTAINED = "contained memory error"
    NARROW_LINK = "PCIe link narrow"
    HOT = "GPU too hot"
    PORT_DOWN = "network port down"
    HOST_DOWN = "host down"
    HIDDEN = "nothing shows"
    TESTED = "found by a test"
    FALSE_ALARM = "false alarm"
    BAD_DRIVER = "bad driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a kind does to work on the node."""

    terminal: bool = False
    """Work on this GPU fails until somebody repairs it: what a policy has to find."""
    kills: bool = True
    """The job on the node dies when it begins."""
    keeps_killing: bool = False
    """So does every job that starts there later."""
    healthy: bool = False
    """Nothing is wrong: to take the node is a mistake."""
    slows: float = 0.0
    """Share of the speed that a whole job loses while one of its nodes has it."""


_TERMINAL: Final = Effect(terminal=True, keeps_killing=True)
_SLOWED: Final = 0.25
"""1.34 times the job's time where one member is slow (GREYHOUND, ATC'25)."""
EFFECTS: Final = {
    Kind.LOST: _TERMINAL,
    Kind.LOST_SILENTLY: _TERMINAL,
    Kind.UNCONTAINED: _TERMINAL,
    Kind.REMAP_FAILED: _TERMINAL,
    Kind.FIRMWARE: _TERMINAL,
    Kind.NVLINK: _TERMINAL,
    Kind.CONTAINED: Effect(),
    Kind.NARROW_LINK: Effect(kills=False, slows=_SLOWED),
    Kind.HOT: Effect(kills=False, slows=_SLOWED),
    Kind.PORT_DOWN: Effect(keeps_killing=True),
    Kind.HOST_DOWN: Effect(keeps_killing=True),
    Kind.HIDDEN: Effect(),
    Kind.TESTED: Effect(kills=False),
    Kind.FALSE_ALARM: Effect(kills=False, healthy=True),
    Kind.BAD_DRIVER: Effect(keeps_killing=True),
}

NO_XID: Final = 0.47
"""PCIe losses without an Xid 79: 57 % in one large fleet, 37 % in another (arXiv:2410.21680)."""
UNCONTAINED: Final = 0.41
"""Memory errors that a row remap does not contain: 59 % succeed on H100 (Delta, v3)."""

_DBE, _NARROW, _LOST, _SMI, _XID, _HOT = 40, 21, 22, 8, 5, 1
"""The trace's descriptions of its GPU faults: double bit errors, narrow links, lost or unknown
devices, an nvidia-smi that hangs, Xids and slow peer links, the rest."""

KINDS: Final[dict[str, tuple[tuple[Kind, float], ...]]] = {
    "GPU": (
        (Kind.LOST, _LOST * (1 - NO_XID)),
        (Kind.LOST_SILENTLY, _LOST * NO_XID),
        (Kind.UNCONTAINED, _DBE * UNCONTAINED * 0.8),
        (Kind.REMAP_FAILED, _DBE * UNCONTAINED * 0.2),
        (Kind.CONTAINED, _DBE * (1 - UNCONTAINED)),
        (Kind.FIRMWARE, _SMI),
        (Kind.NVLINK, _XID),
        (Kind.NARROW_LINK, _NARROW),
        (Kind.HOT, _HOT),
    ),
    "Unknown Error": ((Kind.HIDDEN, 1.0),),
    "Stress Test Failure": ((Kind.TESTED, 1.0),),
    "Parameter Plane Cable": ((Kind.PORT_DOWN, 1.0),),
    "Fan": ((Kind.HOT, 0.5), (Kind.HIDDEN, 0.5)),
    "Power Supply": ((Kind.HOST_DOWN, 1.0),),
    "NIC": ((Kind.PORT_DOWN, 1.0),),
    "Other": ((Kind.HIDDEN, 0.7), (Kind.HOST_DOWN, 0.3)),
}
"""Kinds of each class with their weights; a fifth of the memory errors that are not contained ends
as a failed remap (assumed), and what the trace calls unknown shows nothing (assumed)."""


def kind_of(dice: Dice, klass: str) -> Kind:
    """What a fault of the class really is, this time."""
    kinds = KINDS[klass]
    return kinds[weighted(dice, [weight for _, weight in kinds])][0]
