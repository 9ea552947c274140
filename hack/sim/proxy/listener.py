"""A handler on a port, plain or with TLS, that can stop and listen again at the same address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from hack.sim.cluster.http.certificates import ServingCertificate, make_serving_certificate

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
