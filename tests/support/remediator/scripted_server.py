"""An HTTP server with scripted answers, for answers that a correct server never gives."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def scripted_server(handler: Handler):
    """Serve every request with `handler`; yields the address."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def node(name: str, version: int, **labels: str) -> dict:
    """A node with its resourceVersion."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": {**metadata, "labels": labels}, "spec": {}}


def page(items: list, version: int, continue_: str = "") -> web.Response:
    """One page of a list."""
    metadata = {"resourceVersion": str(version), "continue": continue_}
    return web.json_response({"metadata": metadata, "items": items})


def refusal(code: int, reason: str, message: str, **details) -> web.Response:
    """A Status of failure."""
    body = {"kind": "Status", "status": "Failure", "code": code}
    body |= {"reason": reason, "message": message, "details": details}
    return web.json_response(body, status=code)


async def stream(request: web.Request, *lines: object, hold_s: float = 3600) -> web.StreamResponse:
    """A watch: these events (raw bytes as they are), then silence."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for line in lines:
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        await response.write(data + b"\n")
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(hold_s)
    return response


def event(kind: str, obj: dict) -> dict:
    """One line of a watch."""
    return {"type": kind, "object": obj}


def write_kubeconfig(path, server: str, token: str = "secret") -> str:
    """A kubeconfig with a token."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return str(path)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that other tasks bring about; a minute means it never will."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - conditions of foreign code have no event
            await asyncio.sleep(0.005)
