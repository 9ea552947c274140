"""Logs as people keep them: compressed by gzip or xz, or written as UTF-16; plain bytes come out.

Used by `agent.commands.decode` and by the reader of a whole log. Streams: what is held at a time
stays within a few megabytes however far a block unfolds.
"""

from __future__ import annotations

import codecs
import errno
import lzma
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

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
