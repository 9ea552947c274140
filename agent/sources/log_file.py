"""Read a log of any supported format from start to end, for `decode`.

`rules.kernel_log.scan` detects the format from the first bytes.
"""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from rules.kernel_log import scan
from rules.kernel_log.scan import LineScanner, LogContainer, Read

_GZIP: Final = b"\x1f\x8b"
_XZ: Final = b"\xfd7zXZ\x00"

BLOCK: Final = 1 << 16
"""Larger blocks are slower: they need new memory pages and do not fit the CPU caches."""

SAMPLE: Final = 1 << 14
"""If a log has no findings, this many bytes at its start must contain recognised lines."""

LEAST_SHARE: Final = 0.25
"""Minimum share of recognised lines, because some lines of any text look like kernel lines."""


class LogFile:
    """Reads a log once and sets `lines` and `understood` at its end.

    `read` is called with each line, without its container format, and with the line number.
    """

    def __init__(self, read: Read[bytes]) -> None:
        self._read = read
        self.lines = 0
        self.understood = True

    def findings(self, blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Yield the findings of each block."""
        texts = iter(blocks)
        first = next(texts, b"")
        container = scan.container_of(first)
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

    def _scanner(self, container: LogContainer) -> LineScanner[bytes]:
        if container is LogContainer.PLAIN:
            return LineScanner(self._read)
        worth = scan.worth_unwrapping if container is LogContainer.JSON else scan.worth_parsing
        unwrap = scan.UNWRAP.get(container)
        read = self._read
        inner = read if unwrap is None else lambda raw, number: read(unwrap(raw), number)
        return LineScanner(inner, worth, scan.LONGEST_ENTRY)


def _is_a_log(sample: bytes, container: LogContainer) -> bool:
    lines = [line for line in sample.split(b"\n") if line.strip()]
    known = sum(scan.understood(line, container) for line in lines)
    return bool(known) and known >= LEAST_SHARE * len(lines)


def blocks_of(descriptor: int) -> Iterator[bytes]:
    """Yield the text of a descriptor as it arrives, so that findings of a live log appear at once.

    Raises OSError if compressed data is damaged or truncated.
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
            raise OSError(errno.EIO, "the compressed data is truncated") from None
        if not block:
            return
        yield block


def _unpacked(file: io.BufferedReader[io.FileIO]) -> io.BufferedIOBase:
    head = file.peek(len(_XZ))
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file, mode="rb")
    return lzma.LZMAFile(file) if head.startswith(_XZ) else file
