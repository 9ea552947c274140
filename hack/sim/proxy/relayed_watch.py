"""A watch passed on from another server, line by line: to be held back, ended or changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp import web

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.store.store import encode


class RelayedWatch:
    """The events of one watch on their way; ended by the server, a rule or the client."""

    def __init__(
        self, source: aiohttp.ClientResponse, shown: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._source = source
        self._shown = shown
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
            if reading.done():
                reading.result()
        finally:
            reading.cancel()

    async def _read(self) -> None:
        try:
            async for part in self._source.content.iter_any():
                whole, newline, self._rest = (self._rest + part).rpartition(b"\n")
                if newline and not self._ended:
                    self._take(whole + newline)
        except (aiohttp.ClientError, OSError):
            self.broken = True
        finally:
            self.close()

    def _take(self, lines: bytes) -> None:
        if self._shown is not None:
            lines = b"".join(self._shown(line) for line in lines.splitlines() if line.strip())
        self._buffer.append(lines)
        self._wake.set()

    async def _next(self) -> bytes:
        while (not self._buffer or self._paused) and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        buffered, self._buffer = self._buffer, []
        return b"".join(buffered)
