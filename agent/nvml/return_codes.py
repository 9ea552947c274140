"""What NVML's return codes mean to the sense, as tables. Both ends of the pipe import this.

The numbers are NVML's wire values, the same since its first release; pynvml is not imported here
because the parent must not load it.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from agent.nvml.messages import SourceReason

GPU_NOT_FOUND = 28
"""The driver is there and has no GPU: a count of 0, no failure."""
NO_ACCESS = frozenset({4, 17})
"""No permission, or blocked by the operating system."""
UNKNOWN_ERROR = 999
OF_EVERY_GPU = NO_ACCESS | {UNKNOWN_ERROR}
"""Where not one GPU may be opened for these, they speak of the driver."""


class Meaning(enum.Enum):
    """How a failed call on a device goes on."""

    FIELD_ABSENT = enum.auto()
    """This GPU or driver does not have it: do not ask again soon."""
    ASK_AGAIN = enum.auto()
    """Not now: ask at the next poll."""
    GPU_LOST = enum.auto()
    GPU_NEEDS_RESET = enum.auto()
    GPU_TROUBLED = enum.auto()
    """The GPU answers, with an interrupt issue or a corrupt InfoROM: told, and asked on."""
    DRIVER_GONE = enum.auto()
    """Every handle is stale: only a fresh process can go on."""
    UNKNOWN = enum.auto()
    """A driver that answers this to everything is gone; to one question, that one is absent."""


_MEANINGS = {
    1: Meaning.DRIVER_GONE,  # uninitialised
    2: Meaning.FIELD_ABSENT,  # invalid argument: a field this driver does not know
    3: Meaning.FIELD_ABSENT,  # not supported
    4: Meaning.FIELD_ABSENT,  # no permission, for this call
    6: Meaning.ASK_AGAIN,  # not found
    9: Meaning.DRIVER_GONE,  # driver not loaded
    10: Meaning.ASK_AGAIN,  # timeout
    11: Meaning.GPU_TROUBLED,  # interrupt issue
    13: Meaning.FIELD_ABSENT,  # function not found
    14: Meaning.GPU_TROUBLED,  # corrupt InfoROM
    15: Meaning.GPU_LOST,
    16: Meaning.GPU_NEEDS_RESET,
    18: Meaning.DRIVER_GONE,  # library and kernel module do not match
    25: Meaning.FIELD_ABSENT,  # argument version mismatch
    26: Meaning.FIELD_ABSENT,  # deprecated
    27: Meaning.ASK_AGAIN,  # not ready
    UNKNOWN_ERROR: Meaning.UNKNOWN,
}


def meaning(code: int) -> Meaning:
    """The meaning of a code that a device call returned; unlisted ones may pass by themselves."""
    return _MEANINGS.get(code, Meaning.ASK_AGAIN)


class InitFailure(NamedTuple):
    """How a code at initialisation is told. An absent driver is not eight lost GPUs.

    `restart_agent`: only a new container can mend it, if it came up while this one ran.
    """

    reason: SourceReason
    sentence: str
    restart_agent: bool = False


INIT_FAILURES = {
    1: InitFailure(SourceReason.DRIVER_ABSENT, "The NVIDIA driver went away"),
    4: InitFailure(SourceReason.NO_ACCESS, "The driver's device files may not be opened"),
    9: InitFailure(SourceReason.DRIVER_ABSENT, "The NVIDIA driver is not loaded"),
    12: InitFailure(SourceReason.DRIVER_ABSENT, "libnvidia-ml.so.1 was not found"),
    17: InitFailure(SourceReason.NO_ACCESS, "The operating system blocked the driver's devices"),
    18: InitFailure(
        SourceReason.DRIVER_MISMATCH,
        "The NVML library does not match the loaded driver; the container or the driver must be "
        "replaced",
        restart_agent=True,
    ),
    999: InitFailure(
        SourceReason.DRIVER_ABSENT,
        "The NVIDIA driver does not work and does not say why",
        restart_agent=True,
    ),
}
