"""A whole log in any format that is read, from its first to its last line.

`gpuward-agent decode` prints what it finds, `gpuward-agent check` judges it. The log's first bytes
tell its format (`rules.kernel_log.containers`).
"""

from __future__ import annotations

import codecs
import errno
import lzma
import os
import stat
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

from agent.sources.kernel_record import MAX_RECORD_BYTES, Sieve, Sink, parse_record
from rules.judge.observation import KernelRead
from rules.kernel_log.containers import (
    LONGEST_ENTRY,
    UNWRAP,
    ExportEntries,
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
_AT_A_TIME: Final = 1 << 20
_GZIP_WINDOW: Final = 31
_HEAD: Final = 6
_UTF16: Final = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def unpacked(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The text in `blocks`. Raises OSError where compressed data is damaged or ends too early."""
    return _without_utf16(_decompressed(iter(blocks)))


def _decompressed(blocks: Iterator[bytes]) -> Iterator[bytes]:
    head = _head(blocks)
    kind = _Gzip if head.startswith(_GZIP) else _Xz if head.startswith(_XZ) else None
    if kind is None:
        yield head
        yield from blocks
        return
    member = kind()
    for block in _chain(head, blocks):
        data = block
        while data or member.more:
            if member.ended:
                data = data.lstrip(b"\0")  # padding between members
                if not data:
                    break
                member = kind()
            try:
                text, data = member.feed(data)
            except (zlib.error, lzma.LZMAError):
                raise OSError(errno.EIO, "the compressed data is damaged") from None
            yield text
    if not member.ended:
        raise OSError(errno.EIO, "the compressed data ends in the middle")


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_WINDOW)

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def more(self) -> bool:
        return bool(self._stream.unconsumed_tail) and not self.ended

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Some text, and the data that is left to be fed."""
        text = self._stream.decompress(self._stream.unconsumed_tail + data, _AT_A_TIME)
        return text, self._stream.unused_data if self.ended else b""


class _Xz:
    def __init__(self) -> None:
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=256 << 20)

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def more(self) -> bool:
        return not self.ended and not self._stream.needs_input

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Some text, and the data that is left to be fed."""
        text = self._stream.decompress(data, _AT_A_TIME)
        return text, self._stream.unused_data if self.ended else b""


def _without_utf16(blocks: Iterator[bytes]) -> Iterator[bytes]:
    head = _head(blocks)
    encoding = _UTF16.get(head[:2])
    if encoding is None and head[1::2].count(0) * 2 > len(head) // 2:
        encoding = "utf-16-le"
    if encoding is None:
        yield head
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in _chain(head, blocks):
        yield decoder.decode(block).lstrip("\ufeff").encode("utf-8", "replace")


def _head(blocks: Iterator[bytes]) -> bytes:
    """The first bytes, as many as tell a format from another, however a pipe is cut."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= _HEAD:
            break
    return head


def _chain(head: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from blocks


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
        """What is found, as it is found. Raises OSError for damaged data."""
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
    """What a descriptor holds, as it comes: findings of a live log appear at once."""
    while True:
        try:
            block = os.read(descriptor, BLOCK)
        except BrokenPipeError:
            continue  # /dev/kmsg: records were overwritten before they were read
        if not block:
            return
        yield block


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


class PastLog:
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

    def read_now(self) -> None:
        """Nothing to do: all was read."""

    def close(self) -> None:
        """Nothing to do: nothing is held."""
