"""The simulated API server in a thread of its own, for synchronous tests and for subprocesses.

`with run_in_thread() as hosted` gives the server; what touches its objects goes through `call`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hack.sim.cluster.server import SimulatedApiServer

T = TypeVar("T")
_START_S = 30.0


class HostedServer:
    """A server in another thread."""

    def __init__(self, server: SimulatedApiServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self._loop = loop

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        """Run a coroutine in the server's thread; its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def call(self, function: Callable[[], T], timeout_s: float = 60.0) -> T:
        """Call a function in the server's thread; its result."""

        async def work() -> T:
            return function()

        return self.run(work(), timeout_s)


@contextmanager
def run_in_thread(**options: Any) -> Iterator[HostedServer]:
    """Host `SimulatedApiServer(**options)` until the block ends."""
    ready = threading.Event()
    hosted: list[HostedServer] = []
    failed: list[BaseException] = []
    stopping: list[asyncio.Event] = []

    async def serve() -> None:
        stop = asyncio.Event()
        async with SimulatedApiServer(**options) as server:
            hosted.append(HostedServer(server, asyncio.get_running_loop()))
            stopping.append(stop)
            ready.set()
            await stop.wait()

    def main() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread, which raises it
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=main, name="simulated-apiserver", daemon=True)
    thread.start()
    if not ready.wait(_START_S) or not hosted:
        raise RuntimeError("the simulated API server did not start") from (
            failed[0] if failed else None
        )
    one = hosted[0]
    try:
        yield one
    finally:
        one.call(stopping[0].set)
        thread.join(_START_S)
