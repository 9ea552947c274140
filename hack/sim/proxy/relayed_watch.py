"""A watch passed on from another server, line by line, so that it can be held back or ended."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.store.store import encode


class RelayedWatch:
    """The events of one watch on their way; ended by the server, a rule or the client."""

    def __init__(self, source: aiohttp.ClientResponse) -> None:
        self._source = source
        self._buffer: list[bytes] = []
        self._rest = b""
        self._wake = asyncio.Event()
        self._ended = False
        self._paused = False
        self.broken = False
        """The server went away in the middle, without the end of the stream."""

    def pause(self, *, paused: bool) -> None:
        """Hold events back, or let them go."""
        self._paused = paused
        self._wake.set()

    def fail(self, error: ApiError) -> None:
        """End it with an ERROR event."""
        self._buffer.append(encode({"type": "ERROR", "object": error.status()}) + b"\n")
        self.close()

    def close(self) -> None:
        """End it; what is complete can still be sent."""
        self._ended = True
        self._wake.set()

    async def relay(self, response: web.StreamResponse) -> None:
        """Send events as they come, until the watch ends or the client goes."""
        reading = asyncio.get_running_loop().create_task(self._read())
        try:
            while lines := await self._next():
                await response.write(lines)
        finally:
            reading.cancel()

    async def _read(self) -> None:
        try:
            async for part in self._source.content.iter_any():
                whole, newline, self._rest = (self._rest + part).rpartition(b"\n")
                if newline and not self._ended:
                    self._buffer.append(whole + newline)
                    self._wake.set()
        except (aiohttp.ClientError, OSError):
            self.broken = True
        self.close()

    async def _next(self) -> bytes:
        while (not self._buffer or self._paused) and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        buffered, self._buffer = self._buffer, []
        return b"".join(buffered)
