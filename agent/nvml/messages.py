"""Messages between the NVML child and its parent, their framing, and NVML's return codes.

The child (`agent.nvml.child`) sends `FromChild`: facts for the main loop and its own status. The
link (`agent.nvml.link`) sends `ToChild` and passes `Message` to the main loop. A frame is four
bytes of length, big endian, then msgpack. The child imports this module, so it must stay small.
The parent must not load pynvml, so it is not imported here.
"""

import enum
import struct
from enum import StrEnum
from typing import NamedTuple

import msgspec

from rules.judge.observation import (
    CallFailed,
    GpuEvent,
    Inventory,
    Readings,
    SourceState,
    TopologySeen,
)

MAX_FRAME_BYTES = 1 << 20
"""A larger frame means a corrupt stream: the largest message, a topology, has about 10 KiB."""

EXIT_REINITIALISE = 4
"""The child's exit status if a new process must initialise NVML again."""
POLL_S = 15.0
"""The period of the fastest polling tier; the others are multiples of it."""
INIT_CALL = "nvmlInitWithFlags"
"""A failure of this call means that NVML as a unit does not work."""


class Calling(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The child is about to make an NVML call that should return within `within_s`.

    The next message of any kind means that it returned. The child sends often between calls, so a
    child that sends nothing hangs.
    """

    call: str
    gpu: str = ""
    within_s: float = 0.0


class Note(msgspec.Struct, frozen=True, tag=True):
    """A message for the log: from the child, or a line of its standard error, bounded."""

    text: str


class SourceReason(StrEnum):
    """The reason for the state of the source, as in `GPUNodeHealth`; empty while NVML answers."""

    ANSWERING = ""
    OFF = "Off"
    DRIVER_ABSENT = "DriverAbsent"
    DRIVER_MISMATCH = "DriverMismatch"
    NO_ACCESS = "NoAccess"
    NVML_FAILED = "NVMLFailed"
    CALL_HUNG = "CallHung"
    CHILD_DIED = "ChildDied"
    RELEASED = "Released"


class NvmlStatus(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The state of NVML as a data source. `message` is one sentence."""

    state: SourceState
    reason: SourceReason
    message: str
    restart_agent: bool = False
    """Exit, because only a new container gets a library that matches the driver."""


NvmlFact = Inventory | TopologySeen | Readings | GpuEvent | CallFailed
FromChild = NvmlFact | Calling | Note
Message = NvmlFact | Note | NvmlStatus
"""What the main loop receives."""


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Order to the child: free the event sets, call nvmlShutdown and exit."""


class Refresh(msgspec.Struct, frozen=True, tag=True):
    """Order to the child: enumerate again and read every tier now."""


class Reinitialise(msgspec.Struct, frozen=True, tag=True):
    """Order to the child: exit, so that a new child initialises NVML and finds new GPUs."""


ToChild = Finish | Refresh | Reinitialise

_LENGTH = struct.Struct(">I")
_encode = msgspec.msgpack.Encoder().encode


def frame(message: FromChild | ToChild) -> bytes:
    """Return one message with its length prefix."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class Framer:
    """Splits a byte stream into message bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return every body that `data` completes. Raises ValueError if a frame is too large."""
        self._buffer += data
        bodies = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes, the limit is {MAX_FRAME_BYTES}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return bodies


GPU_NOT_FOUND = 28
"""The driver works and has no GPU: a count of 0, not a failure."""
NO_ACCESS = frozenset({4, 17})
"""No permission, or blocked by the operating system."""
UNKNOWN_ERROR = 999
OF_EVERY_GPU = NO_ACCESS | {UNKNOWN_ERROR}
"""If no GPU can be opened because of these, the problem is the driver's."""


class Meaning(enum.Enum):
    """How to handle a failed call on a device."""

    FIELD_ABSENT = enum.auto()
    """The GPU or driver does not support it: ask again in an hour."""
    ASK_AGAIN = enum.auto()
    """Not available now: ask at the next poll."""
    GPU_LOST = enum.auto()
    GPU_NEEDS_RESET = enum.auto()
    GPU_TROUBLED = enum.auto()
    """An interrupt issue or a corrupt InfoROM: report it and continue."""
    DRIVER_GONE = enum.auto()
    """Every handle is stale: only a new process can continue."""
    UNKNOWN = enum.auto()
    """If every call returns this, the driver is gone; otherwise only this value is absent."""


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
    """Return the meaning of a device call's code; unlisted codes may be temporary."""
    return _MEANINGS.get(code, Meaning.ASK_AGAIN)


class InitFailure(NamedTuple):
    """How to report a code at initialisation: a missing driver is not a lost GPU.

    `restart_agent`: a new container is needed if the failure began while this one ran.
    """

    reason: SourceReason
    sentence: str
    restart_agent: bool = False


INIT_FAILURES = {
    1: InitFailure(SourceReason.DRIVER_ABSENT, "The NVIDIA driver was unloaded"),
    4: InitFailure(SourceReason.NO_ACCESS, "Access to the driver's device files is denied"),
    9: InitFailure(SourceReason.DRIVER_ABSENT, "The NVIDIA driver is not loaded"),
    12: InitFailure(SourceReason.DRIVER_ABSENT, "libnvidia-ml.so.1 was not found"),
    17: InitFailure(SourceReason.NO_ACCESS, "The operating system blocks the driver's devices"),
    18: InitFailure(
        SourceReason.DRIVER_MISMATCH,
        "The NVML library does not match the loaded driver: restart the pod or reload the driver",
        restart_agent=True,
    ),
    999: InitFailure(
        SourceReason.DRIVER_ABSENT,
        "The NVIDIA driver fails with an unknown error",
        restart_agent=True,
    ),
}
