"""What a fault of a class of the trace really is.

The trace says that a server was out for `GPU DBE`; the generator has to say what happened. Shares
within the GPU class are the trace's own descriptions; each other number has its source or is
marked as assumed.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Final

from hack.fleet.generator import weighted


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


TERMINAL: Final = frozenset(
    {
        Kind.LOST,
        Kind.LOST_SILENTLY,
        Kind.UNCONTAINED,
        Kind.REMAP_FAILED,
        Kind.FIRMWARE,
        Kind.NVLINK,
    }
)
"""Work on the GPU fails until it is repaired: what a policy has to find."""
HEALTHY: Final = frozenset({Kind.FALSE_ALARM})
"""Nothing is wrong: taking the node is a mistake."""

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


def kind_of(dice: random.Random, klass: str) -> Kind:
    """What a fault of the class really is, this time."""
    kinds = KINDS[klass]
    return kinds[weighted(dice, [weight for _, weight in kinds])][0]
