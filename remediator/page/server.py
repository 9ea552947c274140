"""The HTTP server of the remediator: /metrics, /healthz, /readyz.

`run` starts it first, so that probes always get an answer. Any pod can connect, so an idle or
incomplete request ends after `IDLE_S`, and a new connection closes the oldest one at the limit.
Probes are therefore always answered, and calls to the API server always find a file descriptor.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from remediator.metrics import Metrics
from rules.text import user_input

Probe = Callable[[], str]
"""Returns the problem in one sentence; "" if the probe succeeds."""

IDLE_S = 15.0
"""Longest wait for the head of a request."""
MOST_CONNECTIONS = 128
"""Open connections per port; most of 1,024 file descriptors are for the API server."""
_NO_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def make_app(
    metrics: Metrics, *, healthy: Probe, ready: Probe, refresh: Callable[[], None]
) -> web.Application:
    """Return the application; `refresh` updates gauges that are computed per scrape."""

    async def serve_metrics(_: web.Request) -> web.Response:
        refresh()
        return web.Response(body=metrics.page(), headers={"Content-Type": _TEXT})

    def probe(ask: Probe) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(_: web.Request) -> web.StreamResponse:
            problem = ask()
            return web.Response(text=(problem or "ok") + "\n", status=503 if problem else 200)

        return serve

    app = web.Application(client_max_size=64 * 1024)
    app.router.add_get("/metrics", serve_metrics)
    app.router.add_get("/healthz", probe(healthy))
    app.router.add_get("/readyz", probe(ready))
    return app


class ListenError(Exception):
    """The server cannot listen on the address; the text has the remedy."""


def parse_listen(text: str) -> tuple[str, int]:
    """Parse `:9413`, `127.0.0.1:9413` or `[::1]:9413`; host "" means every address."""
    try:
        return user_input.listen_address(text)
    except ValueError:
        raise ListenError(f"--listen {text} is not HOST:PORT; write for example :9413.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running server."""

    port: int
    """The port in use, also for `:0`."""
    server: asyncio.Server
    runner: web.AppRunner

    async def close(self) -> None:
        """Stop listening, then end open requests."""
        self.server.close()
        await self.runner.cleanup()


async def start_server(
    app: web.Application,
    listen: str,
    *,
    idle_s: float = IDLE_S,
    most_connections: int = MOST_CONNECTIONS,
    has_dualstack: Callable[[], bool] = socket.has_dualstack_ipv6,
) -> Served:
    """Serve `app`. Raises ListenError."""
    address = parse_listen(listen)
    try:
        listening = _listening(address, has_dualstack)
    except OSError as error:
        raise ListenError(
            f"Cannot listen on {listen}: {error.strerror or error}; free the port or choose "
            "another with --listen HOST:PORT."
        ) from error
    # aiohttp (since 3.14.4) counts the keep-alive time from the start of a connection and of each
    # wait for a request, so it is the deadline of a request's head, too.
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=idle_s)
    await runner.setup()
    handlers = runner.server
    assert handlers is not None  # made by `setup`

    def accept() -> asyncio.Protocol:
        connections = (one.transport for one in handlers.connections)
        still = [one for one in connections if one is not None and not one.is_closing()]
        for oldest in still[: len(still) - most_connections + 1]:
            if isinstance(oldest, asyncio.WriteTransport):
                # Not `close`, which waits for a client that does not read.
                oldest.abort()
        return handlers()

    server = await asyncio.get_running_loop().create_server(accept, sock=listening)
    return Served(port=int(listening.getsockname()[1]), server=server, runner=runner)


def _listening(address: tuple[str, int], has_dualstack: Callable[[], bool]) -> socket.socket:
    """A bound socket. Every address means IPv6 and IPv4, or IPv4 alone where the kernel has no
    IPv6. Raises OSError.
    """
    host, port = address
    if host != user_input.EVERY_ADDRESS:
        named = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # Of a name with both, such as localhost, the IPv4 address.
        family, _, _, _, found = min(named, key=lambda one: one[0] != socket.AF_INET)
        return socket.create_server(found[:2], family=family)
    if has_dualstack():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server(("0.0.0.0", port))
