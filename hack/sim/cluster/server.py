"""The simulated API server on a real port.

`async with SimulatedApiServer() as server` for asynchronous tests and the demo; `run_in_thread`
for synchronous ones.  Binds the loopback address by default.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from hack.sim.cluster.client import kubeconfig_text
from hack.sim.cluster.http.access import Authenticator, Authorizer
from hack.sim.cluster.http.layer import BODY_LIMIT, HttpLayer
from hack.sim.cluster.http.resource_calls import InProcessClient
from hack.sim.cluster.resource import Caller, Resource
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.store.store import Store
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
    ) -> None:
        self._tokens = dict(tokens) if tokens is not None else None
        self.engine = Engine(clock=clock)
        self.requests = RequestLog()
        self.authenticator = Authenticator(self.engine, self._tokens, clock)
        self.faults = Faults()
        self._layer = HttpLayer(
            engine=self.engine,
            authenticator=self.authenticator,
            authorizer=Authorizer(self.engine) if authorization == "RBAC" else None,
            faults=self.faults,
            sends_date=clock is not time.time,
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
R = TypeVar("R")
_START_S = 120.0
"""A real control plane may take a minute."""


class Hosted(Generic[T]):
    """What lives on an event loop in another thread."""

    def __init__(self, value: T, loop: asyncio.AbstractEventLoop) -> None:
        self.value = value
        self.loop = loop

    def run(self, work: Coroutine[Any, Any, R], timeout_s: float = 60.0) -> R:
        """Run a coroutine in its thread; its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def call(self, function: Callable[[], R], timeout_s: float = 60.0) -> R:
        """Call a function in its thread; its result."""

        async def work() -> R:
            return function()

        return self.run(work(), timeout_s)


@contextmanager
def in_thread(start: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[Hosted[T]]:
    """Host what `start` makes until the block ends; what fails there is raised here."""
    ready = threading.Event()
    hosted: list[Hosted[T]] = []
    failed: list[BaseException] = []
    done = asyncio.Event()

    async def serve() -> None:
        async with start() as value:
            hosted.append(Hosted(value, asyncio.get_running_loop()))
            ready.set()
            await done.wait()

    def main() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=main, name="hosted", daemon=True)
    thread.start()
    if not ready.wait(_START_S):
        raise RuntimeError("the simulated cluster did not start")
    try:
        if hosted:
            yield hosted[0]
    finally:
        for one in hosted:
            with suppress(RuntimeError):  # the loop may have ended with a failure
                one.loop.call_soon_threadsafe(done.set)
        thread.join(_START_S)
    if failed:
        raise failed[0]


class HostedServer(Hosted[SimulatedApiServer]):
    """A server in another thread."""

    @property
    def server(self) -> SimulatedApiServer:
        """The server itself: touch it in its thread only."""
        return self.value

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url


@contextmanager
def run_in_thread(**options: Any) -> Iterator[HostedServer]:
    """Host `SimulatedApiServer(**options)` until the block ends."""
    with in_thread(lambda: SimulatedApiServer(**options)) as hosted:
        yield HostedServer(hosted.value, hosted.loop)
