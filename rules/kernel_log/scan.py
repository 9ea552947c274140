"""Kernel logs by the megabyte: find the few lines worth parsing without splitting the rest.

`gpuward-agent decode` feeds blocks to a `LineScanner`; the agent's kernel log sense asks
`worth_parsing` for each record. Both only leave out lines that `rules.kernel_log.parse.parse`
would answer with None, so the result is the same as parsing every line. No I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

from rules.kernel_log.text import COLOUR, MAX_LINE

ANCHORS: Final = (
    b"NVRM:",
    b"nvidia-nvswitch",
    b"mlx5_",
    b"pcieport",
    b"PCIe Bus Error: severity=",
    b"available PCIe bandwidth, limited by ",
    b" in libnccl.so",
    b"blocked for more than ",
    b"BUG: soft lockup - CPU#",
    b"change power state",
    b"detected NVSwitch",
    b"ERROR detected invalid context",
    b" failed with error -",
    b"] Request device [",
    b"Event logged [IO_PAGE_FAULT ",
    COLOUR[:1],
)
"""Every line that `parse` recognises holds one of these. Long ones with rare bytes are found
fastest, and a single byte that hardly occurs; measure before adding one."""

_ANY_WORD: Final = re.compile(
    rb"NVRM:|NVSwitch |nvidia-(?:nvswitch|peermem)|nccl\.so|mlx5_|more than "
    rb"\d|pcieport|power state"
    rb"|probe (?:of|with) |PCIe (?:Bus Error|bandwidth, limited)|BUG: "
    rb"soft|DMAR:|IO_PAGE_FAULT|\x1b"
)
"""The same for a single line. A search that fails costs by the letters its words begin with, so
they begin with few and, where there is a choice, with capitals."""

_DENSE: Final = 2
"""Where more than one line in so many is a candidate, going line by line is the faster way."""

_SAMPLE: Final = 2048
"""Bytes of a block that are counted for that: a small part of any block."""


def worth_parsing(line: bytes) -> bool:
    """Return whether `parse` could recognise `line`: cheap, and never wrongly False."""
    return _ANY_WORD.search(line) is not None


T = TypeVar("T")

Read: TypeAlias = Callable[[bytes, int], T | None]
"""One line and its number, from 1, in; None for a line that says nothing."""


class LineScanner(Generic[T]):
    """Numbers the lines of a stream and reads those that matter with `read`.

    Feed blocks of any size; lines end at byte 0x0A only. A line without end is cut after
    `longest` bytes, so memory stays bounded whatever comes.
    """

    __slots__ = ("_anchors", "_cut", "_lines", "_longest", "_read", "_tail")

    def __init__(
        self,
        read: Read[T],
        anchors: tuple[bytes, ...] = ANCHORS,
        longest: int = MAX_LINE,
    ) -> None:
        self._read = read
        self._anchors = anchors
        self._longest = longest
        self._tail = b""
        self._cut = False
        self._lines = 0

    def feed(self, block: bytes) -> list[T]:
        """Return what was read of every recognised line that this block ends."""
        end = block.rfind(b"\n") + 1
        if not end:
            self._keep(block)
            return []
        start = block.index(b"\n") if self._cut else 0
        whole = b"".join((self._tail, memoryview(block)[start:end]))
        self._tail, self._cut = b"", False
        self._keep(block[end:])
        first = self._lines
        if _is_dense(whole):
            found, lines = _scan_dense(whole, self._read, first + 1)
        else:
            found, lines = _scan_sparse(whole, self._read, self._anchors, first + 1)
        self._lines += lines
        return found

    @property
    def lines(self) -> int:
        """How many lines have come, the unfinished one among them."""
        return self._lines + bool(self._tail or self._cut)

    def finish(self) -> list[T]:
        """Return the last line if it has no newline and is recognised."""
        if not self._tail:
            return []
        line = self._read(self._tail, self._lines + 1)
        self._tail, self._cut = b"", True
        return [line] if line is not None else []

    def _keep(self, rest: bytes) -> None:
        if self._cut:
            return
        self._tail = self._tail + rest if self._tail else rest
        if len(self._tail) > self._longest:
            self._tail, self._cut = self._tail[: self._longest], True


def _is_dense(block: bytes) -> bool:
    sample = block[:_SAMPLE]
    hits = sample.count(b"NVRM: ") + sample.count(b"SXid (") + sample.count(b"mlx5_")
    return hits * _DENSE > sample.count(b"\n")


def _scan_dense(block: bytes, read: Read[T], first: int) -> tuple[list[T], int]:
    lines = block.split(b"\n")
    found = [
        line
        for number, raw in enumerate(lines, first)
        if raw and (line := read(raw, number)) is not None
    ]
    return found, len(lines) - 1


def _scan_sparse(
    block: bytes, read: Read[T], anchors: tuple[bytes, ...], first: int
) -> tuple[list[T], int]:
    starts: set[int] = set()
    find, rfind = block.find, block.rfind
    for anchor in anchors:
        hit = find(anchor)
        while hit >= 0:
            starts.add(rfind(b"\n", 0, hit) + 1)
            hit = find(anchor, find(b"\n", hit))
    found = []
    number, counted = first, 0
    for start in sorted(starts):
        number += block.count(b"\n", counted, start)
        counted = start
        if (line := read(block[start : find(b"\n", start)], number)) is not None:
            found.append(line)
    return found, number - first + block.count(b"\n", counted)
