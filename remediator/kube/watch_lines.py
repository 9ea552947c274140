"""The lines of a watch: one event each, of any length up to a bound, read only as far as
needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import msgspec

from rules.api.nodes import ObjectMeta
from rules.text.tolerant import understand

_MAX_EVENT_BYTES = 16 * 1024 * 1024


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class AnyObject(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of an object whose other fields do not matter."""

    metadata: ObjectMeta = ObjectMeta()
    code: int = 0
    message: str = ""


class RelistError(Exception):
    """The watch cannot go on from where it is; the reason is the text."""


def decode_loosely(raw: msgspec.Raw) -> AnyObject:
    """The metadata of whatever this is; empty where nothing of it is understood."""
    return understand(raw, AnyObject).value or AnyObject()


async def lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Complete lines of a watch, of any length up to a bound."""
    rest = bytearray()
    async for chunk in stream.iter_any():
        rest += chunk
        *complete, tail = rest.split(b"\n")
        for line in complete:
            if line.strip():
                yield bytes(line)
        rest = bytearray(tail)
        if len(rest) > _MAX_EVENT_BYTES:
            raise RelistError("one event of the watch is larger than 16 MiB")
