"""A whole log in any format that is read, from its first to its last line.

`gpuward-agent decode` prints what it finds; `check --kmsg FILE` judges it as the past. The format
is told by the log's beginning; see `agent.kernel_log.unpack` and `rules.kernel_log.containers`.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

from agent.kernel_log.record import MAX_RECORD_BYTES, Sieve, Sink, parse_record
from agent.kernel_log.unpack import unpacked
from rules.judge.observation import KernelRead
from rules.kernel_log.containers import (
    JSON_ANCHORS,
    LONGEST_ENTRY,
    UNWRAP,
    ExportEntries,
    LogContainer,
    container_of,
    understood,
)
from rules.kernel_log.parse import parse
from rules.kernel_log.scan import ANCHORS, LineScanner
from rules.kernel_log.stamps import stamp_of
from rules.kernel_log.text import MAX_LINE

T = TypeVar("T")

BLOCK: Final = 1 << 17
"""Larger ones are slower: each costs fresh pages of memory and falls out of the caches."""

_SAMPLE: Final = 1 << 14
"""Bytes in which a line must be understood where the whole log said nothing."""

_MOST_LINES: Final = 4000
"""Lines of a whole log that are judged, the last ones: what went before is history."""


class WholeLog(Generic[T]):
    """Reads a log once; `lines` and `understood` are known at its end.

    `read` gets one line without its wrapping and answers None for one that says nothing.
    """

    def __init__(self, read: Callable[[bytes], T | None]) -> None:
        self._read = read
        self.lines = 0
        self.understood = True

    def findings(self, blocks: Iterable[bytes]) -> Iterator[list[tuple[int, T]]]:
        """(line number from 1, finding) as they are found. Raises OSError for damaged data."""
        texts = unpacked(blocks)
        first = next(texts, b"")
        container = container_of(first)
        scanner = self._scanner(container)
        entries = ExportEntries() if container is LogContainer.EXPORT else None
        found = scanner.feed(entries.feed(first) if entries else first)
        some = bool(found)
        yield found
        for text in texts:
            found = scanner.feed(entries.feed(text) if entries else text)
            some = some or bool(found)
            yield found
        found = scanner.feed(entries.finish()) if entries else []
        self.lines = scanner.lines
        found += scanner.finish()
        sample = first[:_SAMPLE].split(b"\n")
        known = some or bool(found) or any(line and understood(line, container) for line in sample)
        self.understood = known or not first.strip()
        yield found

    def _scanner(self, container: LogContainer) -> LineScanner[T]:
        if container is LogContainer.PLAIN:
            return LineScanner(self._read)
        anchors = JSON_ANCHORS if container is LogContainer.JSON else ANCHORS
        unwrap = UNWRAP.get(container)
        read = self._read
        inner = read if unwrap is None else lambda raw: read(unwrap(raw))
        return LineScanner(inner, anchors, LONGEST_ENTRY)


def blocks_of(descriptor: int) -> Iterator[bytes]:
    """What a descriptor holds, as it comes: findings of a live log appear at once."""
    while True:
        try:
            block = os.read(descriptor, BLOCK)
        except BrokenPipeError:
            continue  # /dev/kmsg: records were overwritten before they were read
        if not block:
            return
        yield block


def is_another_format(path: str) -> bool:
    """Whether a regular file begins with anything but records of `/dev/kmsg`."""
    if not stat.S_ISREG(Path(path).stat().st_mode):
        return False
    with Path(path).open("rb") as file:
        head = file.read(_SAMPLE)
    return bool(head.strip()) and not any(map(parse_record, head.split(b"\n")))


class NotUnderstoodError(Exception):
    """No line is in a format that is read; the text says how many there were."""


class PastLog:
    """The reader of a whole log for one who does not stay: all of it is look-back.

    The constructor reads it. Raises OSError, or NotUnderstoodError.
    """

    def __init__(self, path: str, sieve: Sieve, sink: Sink) -> None:
        self._sieve = sieve
        self._sink = sink
        log = WholeLog(lambda raw: raw if parse(raw) is not None else None)
        self._found: deque[bytes] = deque(maxlen=_MOST_LINES)
        with Path(path).open("rb", buffering=0) as file:
            for found in log.findings(blocks_of(file.fileno())):
                self._found += (raw[:MAX_RECORD_BYTES] for _, raw in found)
        if not log.understood:
            raise NotUnderstoodError(f"{log.lines} lines, 0 understood")
        sieve.counts.read += log.lines

    def start(self) -> None:
        """Hand over what was found."""
        now = time.time()
        for raw in self._found:
            wall = stamp_of(raw[:MAX_LINE], now).wall
            at = now if wall is None else min(wall, now)
            seen = self._sieve.fact(raw, sequence=-1, at=at, lookback=True)
            if seen is not None:
                self._sink(seen)
        self._sink(KernelRead(at=now, boot_id=self._sieve.boot_id, sequence=-1))

    def read_now(self) -> None:
        """Nothing to do: all was read."""

    def close(self) -> None:
        """Nothing to do: nothing is held."""
