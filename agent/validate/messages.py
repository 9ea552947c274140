"""What a GPU's process is asked and what it answers: one JSON object a line, each way.

`crew` sends `Order`, `worker` sends `Answer`; one answer for each order, in turn.
"""

from __future__ import annotations

import msgspec

EXIT_UNUSABLE = 64
"""The exit status of a process that cannot use what it was told to use."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """Start CUDA on this GPU; `pci` is where it sits."""

    gpu: str
    pci: str = ""


class Remember(msgspec.Struct, frozen=True, tag=True):
    """Run the patterns through the memory."""


class Copy(msgspec.Struct, frozen=True, tag=True):
    """Copy between pinned host memory and the GPU for so long, five times at the least."""

    to_host: bool
    seconds: float = 0.0


class CopyToPeer(msgspec.Struct, frozen=True, tag=True):
    """Copy to another GPU."""

    gpu: str


class Burn(msgspec.Struct, frozen=True, tag=True):
    """Compute for so long."""

    seconds: float


Order = Open | Remember | Copy | CopyToPeer | Burn


class Opened(msgspec.Struct, frozen=True, tag=True):
    """CUDA runs. UUIDs of all GPUs it sees; bytes of memory on this one."""

    seen: list[str]
    free: int
    total: int


class Remembered(msgspec.Struct, frozen=True, tag=True):
    """The patterns are through: bytes, words that were wrong, the first of them, the bits."""

    tested: int
    total: int
    wrong: int
    first: int | None
    bits: int


class Copied(msgspec.Struct, frozen=True, tag=True):
    """10^9 bytes per second."""

    gigabytes: float


class Burned(msgspec.Struct, frozen=True, tag=True):
    """Launches, the sum of the first, and how many differed from it."""

    launches: int
    first: int
    differing: int


class Trouble(msgspec.Struct, frozen=True, tag=True):
    """The CUDA driver refused a call."""

    call: str
    code: int
    name: str = ""


class Unusable(msgspec.Struct, frozen=True, tag=True):
    """There is no CUDA to use here, as one sentence."""

    message: str


Answer = Opened | Remembered | Copied | Burned | Trouble | Unusable

_encode = msgspec.json.Encoder().encode


def line(message: Order | Answer) -> bytes:
    """One message as it goes over the pipe."""
    return _encode(message) + b"\n"
