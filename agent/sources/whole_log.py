"""A whole log in any format that is read, from its first to its last line.

`gpuward-agent decode` prints what it finds, `gpuward-agent check` judges it. The log's first bytes
tell its format (`rules.kernel_log.containers`).
"""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import stat
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

from agent.sources.kernel_record import (
    MAX_RECORD_BYTES,
    KernelLogReader,
    Sieve,
    Sink,
    parse_record,
)
from rules.judge.observation import KernelRead
from rules.kernel_log.containers import (
    LONGEST_ENTRY,
    UNWRAP,
    LogContainer,
    container_of,
    understood,
    worth_unwrapping,
)
from rules.kernel_log.parse import parse
from rules.kernel_log.scan import LineScanner, Read, worth_parsing
from rules.kernel_log.stamps import stamp_of
from rules.kernel_log.text import MAX_LINE
from rules.text.printable import count

_GZIP: Final = b"\x1f\x8b"
_XZ: Final = b"\xfd7zXZ\x00"

T = TypeVar("T")

BLOCK: Final = 1 << 16
"""Larger ones are slower: each costs fresh pages of memory and falls out of the caches."""

SAMPLE: Final = 1 << 14
"""Bytes in which lines must be understood where the whole log said nothing."""

LEAST_SHARE: Final = 0.25
"""Of them: some lines of any prose or YAML read like the kernel's; of a log nearly all do."""


class WholeLog(Generic[T]):
    """Reads a log once; `lines` and `understood` are known at its end.

    `read` gets one line without its wrapping, and its number.
    """

    def __init__(self, read: Read[T]) -> None:
        self._read = read
        self.lines = 0
        self.understood = True

    def findings(self, blocks: Iterable[bytes]) -> Iterator[list[T]]:
        """What is found, as it is found."""
        texts = iter(blocks)
        first = next(texts, b"")
        container = container_of(first)
        scanner = self._scanner(container)
        found = scanner.feed(first)
        some = bool(found)
        yield found
        for text in texts:
            found = scanner.feed(text)
            some = some or bool(found)
            yield found
        self.lines = scanner.lines
        found = scanner.finish()
        known = some or bool(found) or _is_a_log(first[:SAMPLE], container)
        self.understood = known or not first.strip()
        yield found

    def _scanner(self, container: LogContainer) -> LineScanner[T]:
        if container is LogContainer.PLAIN:
            return LineScanner(self._read)
        worth = worth_unwrapping if container is LogContainer.JSON else worth_parsing
        unwrap = UNWRAP.get(container)
        read = self._read
        inner = read if unwrap is None else lambda raw, number: read(unwrap(raw), number)
        return LineScanner(inner, worth, LONGEST_ENTRY)


def _is_a_log(sample: bytes, container: LogContainer) -> bool:
    lines = [line for line in sample.split(b"\n") if line.strip()]
    known = sum(understood(line, container) for line in lines)
    return bool(known) and known >= LEAST_SHARE * len(lines)


def blocks_of(descriptor: int) -> Iterator[bytes]:
    """The text behind a descriptor, as it comes: findings of a live log appear at once.

    Raises OSError where compressed data is damaged or ends too early.
    """
    file = io.BufferedReader(io.FileIO(descriptor, closefd=False), BLOCK)
    text: io.BufferedIOBase | None = None
    while True:
        try:
            text = text or _unpacked(file)
            block = text.read1(BLOCK)
        except BrokenPipeError:
            continue  # /dev/kmsg: records were overwritten before they were read
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError):
            raise OSError(errno.EIO, "the compressed data is damaged") from None
        except EOFError:
            raise OSError(errno.EIO, "the compressed data ends in the middle") from None
        if not block:
            return
        yield block


def _unpacked(file: io.BufferedReader[io.FileIO]) -> io.BufferedIOBase:
    head = file.peek(len(_XZ))
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file, mode="rb")
    return lzma.LZMAFile(file) if head.startswith(_XZ) else file


_MOST_LINES: Final = 4000
"""Lines of a whole log that are judged, the last ones: what went before is history."""


def is_another_format(path: str) -> bool:
    """Whether a regular file begins with anything but records of `/dev/kmsg`."""
    if not stat.S_ISREG(Path(path).stat().st_mode):
        return False
    with Path(path).open("rb") as file:
        head = file.read(SAMPLE)
    return bool(head.strip()) and not any(map(parse_record, head.split(b"\n")))


class NotUnderstoodError(Exception):
    """No line is in a format that is read; the text says how many there were."""


class PastLog(KernelLogReader):
    """The reader of a whole log for one who does not stay: all of it is look-back.

    The constructor reads it. Raises OSError, or NotUnderstoodError.
    """

    def __init__(self, path: str, sieve: Sieve, sink: Sink) -> None:
        self._sieve = sieve
        self._sink = sink
        log = WholeLog(lambda raw, _: raw if parse(raw) is not None else None)
        self._found: deque[bytes] = deque(maxlen=_MOST_LINES)
        with Path(path).open("rb", buffering=0) as file:
            for found in log.findings(blocks_of(file.fileno())):
                self._found += (raw[:MAX_RECORD_BYTES] for raw in found)
        if not log.understood:
            raise NotUnderstoodError(f"{count(log.lines, 'line')}, 0 understood")
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
