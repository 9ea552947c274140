"""Stands before an API server and serves some of its objects mutated: types, bounds, missing,
huge.

The server behind stays sane; only what one client reads of the chosen objects is not what anybody
stored. Works before the simulator and before a real server.
"""

from __future__ import annotations

import json
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

Chosen = Callable[[str, dict[str, Any]], bool]
"""Whether an object of that collection (by plural) is to be served mutated."""

_KEPT = {("metadata", "resourceVersion"), ("metadata", "name"), ("metadata", "namespace")}
"""What the transport itself needs: the place in the watch, and which object it is."""
_LONGEST = 100_000


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: tuple[Any, ...] = (
    *(None, {}, [], "", 0, -1, 5, 2**31, 2**63, 2**70, 1e308, 0.5, True, False, deep(200)),
    *("x" * _LONGEST, "\x00\x1b[31m", "\u202eabc", "²", "None", "true", " ", "\n", "{}", "-"),
    *("../../../../api/v1/pods", "..", ".", "%2e%2e", "a/b/c", "a?limit=0#x", "UPPER", "ü" * 300),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "10000-01-01T00:00:00Z", "now"),
    *({"matchLabels": "x"}, {"matchExpressions": [{"key": "r", "operator": "In", "values": 5}]}),
    *([None], [5, "x", {}], {"": ""}, {"name": 5}, [{}] * 500, {"k": deep(50)}),
)


class Mutator:
    """Changes one to four places of an object, by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.served: Counter[str] = Counter()

    def mutate(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        """A changed copy."""
        changed: dict[str, Any] = json.loads(json.dumps(obj))
        for _ in range(self.random.randint(1, 4)):
            places = [place for place in _places(changed, ()) if place not in _KEPT]
            if places:
                self._change(changed, self.random.choice(places))
        self.served[plural] += 1
        return changed

    def _change(self, obj: Any, place: tuple[str | int, ...]) -> None:
        for key in place[:-1]:
            obj = obj[key]
        key = place[-1]
        what = self.random.random()
        if what < 0.15 and isinstance(obj, dict):
            del obj[key]
        elif what < 0.25 and isinstance(obj[key], list):
            obj[key] = obj[key] * 200
        elif what < 0.35 and isinstance(obj[key], str):
            obj[key] = obj[key] * 300
        else:
            obj[key] = self.random.choice(HOSTILE)


def _places(value: Any, at: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    """Every place in a JSON value but the root and the metadata as a whole."""
    found = [at] if at and at != ("metadata",) else []
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, item in list(inner)[:50]:
        if len(at) < 12:
            found += _places(item, (*at, key))
    return found


class HostileServer:
    """One listener; `chosen` and `mutator` may be changed while it runs."""

    def __init__(self, upstream: str, token: str, tls: ssl.SSLContext | None, seed: int) -> None:
        self.chosen: Chosen = lambda plural, obj: False
        self.mutator = Mutator(seed)
        self.url = ""
        self._upstream, self._token, self._tls = upstream, token, tls

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[HostileServer]:
        """Until the end of the block."""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=True, timeout=timeout
        ) as self._client:
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
            try:
                yield self
            finally:
                await runner.cleanup()

    def kubeconfig(self) -> str:
        """For a client that is to be served so."""
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "x", "context": {"cluster": "c"}}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [context],
                "clusters": [cluster],
            }
        )

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = {
            name: request.headers[name]
            for name in ("Content-Type", "Accept", "User-Agent")
            if name in request.headers
        }
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        async with self._client.request(
            request.method,
            self._upstream + request.path_qs,
            data=await request.read() or None,
            headers=headers,
        ) as answer:
            plural = _plural(request.path)
            kept = {
                name: answer.headers[name]
                for name in ("Content-Type", "Retry-After", "Date")
                if name in answer.headers
            }
            if request.query.get("watch") != "true" or answer.status != 200:
                body = await answer.read()
                if request.method == "GET" and answer.status == 200:
                    body = self._list_or_object(plural, body)
                return web.Response(status=answer.status, body=body, headers=kept)
            response = web.StreamResponse(headers=kept)
            await response.prepare(request)
            async for line in answer.content:
                await response.write(self._event(plural, line))
            return response

    def _list_or_object(self, plural: str, body: bytes) -> bytes:
        found = json.loads(body)
        if isinstance(found, dict) and isinstance(found.get("items"), list):
            found["items"] = [self._served(plural, item) for item in found["items"]]
        elif isinstance(found, dict) and "metadata" in found:
            found = self._served(plural, found)
        return json.dumps(found).encode()

    def _event(self, plural: str, line: bytes) -> bytes:
        if not line.strip():
            return line
        event = json.loads(line)
        if event.get("type") in {"ADDED", "MODIFIED"}:
            event["object"] = self._served(plural, event["object"])
        return json.dumps(event).encode() + b"\n"

    def _served(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        return self.mutator.mutate(plural, obj) if self.chosen(plural, obj) else obj


def _plural(path: str) -> str:
    """`pods` of `/api/v1/namespaces/x/pods/y`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return parts[0] if parts else ""
