"""What the NVML child says to its parent, what the parent says back, and how both are framed.

The child (`agent.nvml.child`) sends `FromChild`: facts as the judge takes them, and what concerns
the child alone. The link (`agent.nvml.link`) sends `ToChild` and hands `Message` to the main loop.
One frame is four bytes of length, big endian, then msgpack. What NVML's return codes mean stands
here, too, as tables. The child imports this module, so it must stay small; the parent must not
load pynvml, so it is not imported here.
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
"""A frame beyond this is a broken stream: the largest real one, a topology, is some 10 KiB."""

EXIT_REINITIALISE = 4
"""The child's exit status when the driver went away or a GPU came: a fresh process is needed."""
POLL_S = 15.0
"""The period of the fastest polling tier; the others keep their ratio to it."""
INIT_CALL = "nvmlInitWithFlags"
"""A fault of this call is why NVML as a unit does not answer."""


class Calling(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The child is about to enter an NVML call that should return within `within_s`.

    The next message of any kind says that it did return. Between two calls the child is never
    silent for long, so silence is a hang.
    """

    call: str
    gpu: str = ""
    within_s: float = 0.0


class Note(msgspec.Struct, frozen=True, tag=True):
    """A sentence for the log: from the child, or a line of its standard error, bounded."""

    text: str


class SourceReason(StrEnum):
    """Why the source is in its state; CamelCase as in `GPUNodeHealth`, empty while it answers."""

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
    """The state of NVML as a source, from the link. `message` is one sentence."""

    state: SourceState
    reason: SourceReason
    message: str
    restart_agent: bool = False
    """The library in this container will not match again: exit, so that it is replaced."""


NvmlFact = Inventory | TopologySeen | Readings | GpuEvent | CallFailed
FromChild = NvmlFact | Calling | Note
Message = NvmlFact | Note | NvmlStatus
"""What the main loop receives."""


class Finish(msgspec.Struct, frozen=True, tag=True):
    """To the child: leave your event sets, call nvmlShutdown, exit."""


class Refresh(msgspec.Struct, frozen=True, tag=True):
    """To the child: enumerate again and read every tier now."""


class Reinitialise(msgspec.Struct, frozen=True, tag=True):
    """To the child: make room for one that initialises NVML again, which alone sees new GPUs."""


ToChild = Finish | Refresh | Reinitialise

_LENGTH = struct.Struct(">I")
_encode = msgspec.msgpack.Encoder().encode


def frame(message: FromChild | ToChild) -> bytes:
    """One message as it goes over the pipe."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class Framer:
    """Cuts a byte stream back into message bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Every body that `data` completes. Raises ValueError on a length beyond the bound."""
        self._buffer += data
        bodies = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes, at most {MAX_FRAME_BYTES} expected")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return bodies


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
    """How a code at initialisation is reported. An absent driver is not eight lost GPUs.

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
