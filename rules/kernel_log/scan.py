"""Kernel logs by the megabyte: find the few lines worth parsing.

`gpuward-agent decode` feeds blocks to a `LineScanner`; the agent's kernel log readers ask
`worth_parsing` for each record. Both only leave out lines that `rules.kernel_log.parse.parse`
would answer with None, so the result is the same as parsing every line. No I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

from rules.kernel_log.text import MAX_LINE

_ANY_WORD: Final = re.compile(
    rb"NVRM:|NVSwitch |nvidia-(?:nvswitch|peermem)|nccl\.so|mlx5_|more than "
    rb"\d|pcieport|power state"
    rb"|probe (?:of|with) |PCIe (?:Bus Error|bandwidth, limited)|BUG: "
    rb"soft|DMAR:|IO_PAGE_FAULT|\x1b"
)
"""Every line that `parse` recognises holds one of these. A search that fails costs by the letters
its words begin with, so they begin with few and, where there is a choice, with capitals."""


def worth_parsing(line: bytes) -> bool:
    """Return whether `parse` could recognise `line`: cheap, and never wrongly False."""
    return _ANY_WORD.search(line) is not None


T = TypeVar("T")

Read: TypeAlias = Callable[[bytes, int], T | None]
"""One line and its number, from 1, in; None for a line that says nothing."""


class LineScanner(Generic[T]):
    """Numbers the lines of a stream and reads those that matter with `read`.

    Feed blocks of any size; lines end at byte 0x0A only. A line without end is cut after
    `longest` bytes, so memory stays bounded whatever comes. `worth` is the cheap first look.
    """

    def __init__(
        self,
        read: Read[T],
        worth: Callable[[bytes], bool] = worth_parsing,
        longest: int = MAX_LINE,
    ) -> None:
        self._read = read
        self._worth = worth
        self._longest = longest
        self._tail = b""
        self._ended = 0

    def feed(self, block: bytes) -> list[T]:
        """Return what was read of every recognised line that this block ends."""
        *lines, rest = block.split(b"\n")
        if not lines:
            self._tail = (self._tail + rest)[: self._longest]
            return []
        lines[0] = (self._tail + lines[0])[: self._longest] if self._tail else lines[0]
        self._tail = rest[: self._longest]
        first, self._ended = self._ended + 1, self._ended + len(lines)
        worth, read = self._worth, self._read
        found = (read(line, number) for number, line in enumerate(lines, first) if worth(line))
        return [line for line in found if line is not None]

    @property
    def lines(self) -> int:
        """How many lines have come, the unfinished one among them."""
        return self._ended + bool(self._tail)

    def finish(self) -> list[T]:
        """Return the last line if it has no newline and is recognised."""
        last, self._tail = self._tail, b""
        if not last:
            return []
        self._ended += 1
        line = self._read(last, self._ended) if self._worth(last) else None
        return [line] if line is not None else []
