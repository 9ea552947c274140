"""The simulated API server on a real port.

``async with SimulatedApiServer() as server`` for asynchronous tests and the demo; ``run_in_thread``
for synchronous ones.  Binds the loopback address only, unless told otherwise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web

from hack.sim.cluster.authentication import Authenticator
from hack.sim.cluster.authorization import Authorizer
from hack.sim.cluster.calls import Caller
from hack.sim.cluster.certificates import ServingCertificate, make_serving_certificate
from hack.sim.cluster.engine import Engine
from hack.sim.cluster.eviction import RETRY_DELAY_S
from hack.sim.cluster.faults import Faults
from hack.sim.cluster.http_layer import BODY_LIMIT, HttpLayer
from hack.sim.cluster.inprocess import InProcessClient
from hack.sim.cluster.kinds import Object
from hack.sim.cluster.kubeconfig import kubeconfig_text
from hack.sim.cluster.request_log import RequestLog
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store import HISTORY_LIMIT, Store

_SHUTDOWN_S = 0.5
_LINE_LIMIT = 64 * 1024


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
        eviction_retry_delay_s: float = RETRY_DELAY_S,
        bookmark_interval_s: float = 60.0,
    ) -> None:
        self._host, self._port = host, port
        self._tokens = dict(tokens) if tokens is not None else None
        self._certificate: ServingCertificate | None = (
            make_serving_certificate(host) if tls else None
        )
        self._runner: web.ServerRunner | None = None
        self.engine = Engine(
            clock=clock,
            history_limit=history_limit,
            eviction_retry_delay_s=eviction_retry_delay_s,
        )
        self.requests = RequestLog()
        self.authenticator = Authenticator(self.engine, self._tokens, clock)
        self.faults = Faults(lambda error: self.engine.close_watches(error=error))
        self.faults.on_pause(self._pause_watches)
        self._layer = HttpLayer(
            engine=self.engine,
            authenticator=self.authenticator,
            authorizer=Authorizer(self.engine) if authorization == "RBAC" else None,
            faults=self.faults,
            log=self.requests,
            bookmark_interval_s=bookmark_interval_s,
            tells_time=clock is not time.time,
        )
        self.client = InProcessClient(self.engine, self.requests)

    @property
    def store(self) -> Store:
        """What is stored, revision by revision."""
        return self.engine.store

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._certificate else 'http'}://{self._host}:{self._port}"

    @property
    def ca_pem(self) -> bytes | None:
        """The authority that clients must trust; None without TLS."""
        return self._certificate.ca_pem if self._certificate else None

    def kubeconfig_text(self, token: str | None = None) -> str:
        """A kubeconfig for kubectl; ``token`` defaults to the first configured one."""
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

    def _pause_watches(self, paused: bool) -> None:
        for subscription in self.engine.subscriptions:
            subscription.pause(paused=paused)

    async def start(self) -> None:
        """Listen; after a stop again at the same address, with everything still stored."""
        server = web.Server(
            self._layer.handle,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=3600.0,
            max_line_size=_LINE_LIMIT,
            max_field_size=_LINE_LIMIT,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        context = self._certificate.context if self._certificate else None
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=context, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self._layer.url = self.url

    async def stop(self) -> None:
        """End every watch and connection."""
        self.engine.close_watches()
        if self._runner is None:
            return
        serving = self._runner.server
        open_connections = [one.transport for one in serving.connections] if serving else []
        await self._runner.cleanup()
        self._runner = None
        for transport in open_connections:
            if transport is not None:
                # A TLS connection would wait for its peer's goodbye and outlive the event loop.
                transport.abort()
        await asyncio.sleep(0)

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


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    return web.BaseRequest(
        message,
        payload,
        protocol,
        writer,
        task,
        asyncio.get_running_loop(),
        client_max_size=BODY_LIMIT,
    )
