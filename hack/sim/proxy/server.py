"""A listener, and the proxy on a port of its own in front of a server that runs elsewhere."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from hack.sim.cluster.http.certificates import ServingCertificate, make_serving_certificate
from hack.sim.proxy.faults import Faults
from hack.sim.proxy.forward import Forwarder, Served
from hack.sim.proxy.layer import Proxy
from hack.sim.proxy.request_log import RequestLog

_SHUTDOWN_S = 0.5
_LINE_LIMIT = 64 * 1024
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Listener:
    """One address; `body_limit` is the size in bytes over which reading a body raises."""

    def __init__(self, handle: Handler, *, host: str, port: int, tls: bool, body_limit: int):
        self._handle = handle
        self._host, self._port = host, port
        self._body_limit = body_limit
        self._certificate: ServingCertificate | None = (
            make_serving_certificate(host) if tls else None
        )
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._certificate else 'http'}://{self._host}:{self._port}"

    @property
    def ca_pem(self) -> bytes | None:
        """The authority that clients must trust; None without TLS."""
        return self._certificate.ca_pem if self._certificate else None

    def rotate_authority(self) -> None:
        """From the next start on, another authority signs the certificate."""
        self._certificate = make_serving_certificate(self._host)

    async def start(self) -> None:
        """Listen; after a stop again at the same address."""
        server = web.Server(
            self._handle,
            request_factory=self._request,
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

    async def stop(self) -> None:
        """End every connection."""
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

    def _request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            asyncio.get_running_loop(),
            client_max_size=self._body_limit,
        )


_HOST = "127.0.0.1"
_BODY_LIMIT = 64 * 1024 * 1024
"""More than any API server takes, so that the refusal is the server's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProxy:
    """Where it listens, whom to trust, its rules and its log."""

    url: str
    ca_pem: bytes | None
    faults: Faults
    requests: RequestLog


@asynccontextmanager
async def proxy_before(
    url: str, *, ca_pem: bytes | None, users: Mapping[str, str], served: Served | None = None
) -> AsyncIterator[RunningProxy]:
    """A proxy before the server at `url`, with TLS where the server has it.

    `users` are the server's static tokens with their users; `served` changes what clients read.
    """
    faults, log = Faults(), RequestLog()
    tls = ssl.create_default_context(cadata=ca_pem.decode()) if ca_pem else None
    forwarder = Forwarder(url, faults=faults, tls=tls, users=users, served=served)
    proxy = Proxy(forwarder, faults=faults, log=log)
    listener = Listener(
        proxy.handle, host=_HOST, port=0, tls=tls is not None, body_limit=_BODY_LIMIT
    )
    try:
        await listener.start()
        yield RunningProxy(url=listener.url, ca_pem=listener.ca_pem, faults=faults, requests=log)
    finally:
        faults.drop_watches()
        await listener.stop()
        await forwarder.close()
