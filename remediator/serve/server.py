"""The remediator's own HTTP server: /metrics, /healthz, /readyz.

`run` starts it before anything that may fail, so that probes always get an answer. It only reads;
people act through kubectl.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from remediator.metrics import Metrics

Probe = Callable[[], str]
"""Returns why the answer is no, one sentence; empty for yes."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def make_app(
    metrics: Metrics, *, healthy: Probe, ready: Probe, refresh: Callable[[], None]
) -> web.Application:
    """The application; `refresh` updates gauges that are only worth computing per scrape."""

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
    """The address cannot be listened on; one sentence with the remedy."""


def parse_listen(text: str) -> tuple[str, int]:
    """`:9413`, `127.0.0.1:9413` or `[::1]:9413` as host and port; host "" means every address."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ListenError(f"--listen {text} is not HOST:PORT; write for example :9413.")
    return host.strip("[]"), int(port)


async def start_server(app: web.Application, listen: str) -> tuple[web.AppRunner, int]:
    """Listen; the runner (to clean up) and the port that was chosen (for `:0`)."""
    host, port = parse_listen(listen)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
    except OSError as error:
        await runner.cleanup()
        raise ListenError(
            f"Cannot listen on {listen}: {error.strerror or error}; free the port or choose "
            "another with --listen HOST:PORT."
        ) from error
    addresses = runner.addresses
    return runner, int(addresses[0][1]) if addresses else port
