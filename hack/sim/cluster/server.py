"""The simulated API server on a real port.

`async with SimulatedApiServer() as server` for asynchronous tests and the demo; `run_in_thread`
for synchronous ones.  Binds the loopback address only, unless told otherwise.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from hack.sim.cluster.clients.http_client import kubeconfig_text
from hack.sim.cluster.http.access import Authenticator, Authorizer
from hack.sim.cluster.http.layer import BODY_LIMIT, HttpLayer
from hack.sim.cluster.http.resource_calls import InProcessClient
from hack.sim.cluster.resource import Caller, Resource
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.store.store import HISTORY_LIMIT, Store
from hack.sim.proxy.faults import Faults
from hack.sim.proxy.layer import Proxy, RequestLog
from hack.sim.proxy.server import Listener


class SimulatedApiServer:
    """A Kubernetes API server with the semantics that node remediation depends on."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: bool = False,
        tokens: Mapping[str, Caller] | None = None,
        authorization: Literal["AlwaysAllow", "RBAC"] = "AlwaysAllow",
        clock: Callable[[], float] = time.time,
        history_limit: int = HISTORY_LIMIT,
        bookmark_interval_s: float = 60.0,
    ) -> None:
        self._tokens = dict(tokens) if tokens is not None else None
        self.engine = Engine(clock=clock, history_limit=history_limit)
        self.requests = RequestLog()
        self.authenticator = Authenticator(self.engine, self._tokens, clock)
        self.faults = Faults()
        self._layer = HttpLayer(
            engine=self.engine,
            authenticator=self.authenticator,
            authorizer=Authorizer(self.engine) if authorization == "RBAC" else None,
            faults=self.faults,
            bookmark_interval_s=bookmark_interval_s,
            tells_time=clock is not time.time,
        )
        proxy = Proxy(self._layer, faults=self.faults, log=self.requests, clock=clock)
        self._listener = Listener(
            proxy.handle, host=host, port=port, tls=tls, body_limit=BODY_LIMIT
        )
        self.client = InProcessClient(self.engine)

    @property
    def store(self) -> Store:
        """What is stored, revision by revision."""
        return self.engine.store

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._listener.url

    @property
    def ca_pem(self) -> bytes | None:
        """The authority that clients must trust; None without TLS."""
        return self._listener.ca_pem

    def rotate_authority(self) -> None:
        """From the next start on, another authority signs the certificate."""
        self._listener.rotate_authority()

    def kubeconfig_text(self, token: str | None = None) -> str:
        """A kubeconfig for kubectl; `token` defaults to the first configured one."""
        if token is None and self._tokens:
            token = next(iter(self._tokens))
        return kubeconfig_text(self.url, ca_pem=self.ca_pem, token=token)

    def write_kubeconfig(self, path: Path, token: str | None = None) -> Path:
        """Write the kubeconfig, readable by its owner only; the same path."""
        path.touch(mode=0o600)
        path.write_text(self.kubeconfig_text(token), encoding="utf-8")
        return path

    def load(self, resource: Resource, objects: Iterable[Object]) -> int:
        """Store many finished objects at once, without HTTP; how many."""
        return self.engine.load(resource, objects)

    async def start(self) -> None:
        """Listen; after a stop again at the same address, with everything still stored."""
        await self._listener.start()
        self._layer.url = self.url

    async def stop(self) -> None:
        """End every watch and connection."""
        self.engine.close_watches()
        await self._listener.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


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
