"""The upstream over HTTP: a request goes on as it came, and its answer comes back as it is, but
for objects that a test changes on their way.

Clients prove who they are with bearer tokens, which pass through; client certificates would end
here, since the proxy ends TLS.
"""

import asyncio
import base64
import binascii
import contextlib
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.http.layer import refusal
from hack.sim.cluster.store.store import encode
from hack.sim.proxy.faults import Faults
from hack.sim.proxy.layer import Call


class RelayedWatch:
    """The events of one watch on their way; ended by the server, a rule or the client."""

    def __init__(
        self, source: aiohttp.ClientResponse, shown: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._source = source
        self._shown = shown
        self._buffer: list[bytes] = []
        self._rest = b""
        self._wake = asyncio.Event()
        self._ended = False
        self.broken = False
        """The server went away in the middle, without the end of the stream."""

    def fail(self, error: ApiError) -> None:
        """End it with an ERROR event."""
        self._buffer.append(encode({"type": "ERROR", "object": error.status()}) + b"\n")
        self.close()

    def close(self) -> None:
        """End it; what is complete can still be sent."""
        self._ended = True
        self._wake.set()

    async def relay(self, response: web.StreamResponse) -> None:
        """Send events as they come, until the watch ends or the client goes."""
        reading = asyncio.get_running_loop().create_task(self._read())
        try:
            while lines := await self._next():
                await response.write(lines)
            if reading.done():
                reading.result()
        finally:
            reading.cancel()

    async def _read(self) -> None:
        try:
            async for part in self._source.content.iter_any():
                complete, newline, self._rest = (self._rest + part).rpartition(b"\n")
                if newline and not self._ended:
                    self._take(complete + newline)
        except (aiohttp.ClientError, OSError):
            self.broken = True
        finally:
            self.close()

    def _take(self, lines: bytes) -> None:
        if self._shown is not None:
            lines = b"".join(self._shown(line) for line in lines.splitlines() if line.strip())
        self._buffer.append(lines)
        self._wake.set()

    async def _next(self) -> bytes:
        while not self._buffer and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        buffered, self._buffer = self._buffer, []
        return b"".join(buffered)


Served = Callable[[str, dict[str, Any]], dict[str, Any]]
"""The object that a client is to see, from its collection (plural) and what is stored."""


def served_list_or_object(served: Served, plural: str, body: bytes) -> bytes:
    """The body of a GET."""
    found = json.loads(body) if body.startswith(b"{") else None
    if not isinstance(found, dict) or not plural:
        return body
    if isinstance(found.get("items"), list):
        found["items"] = [served(plural, item) for item in found["items"]]
    elif "metadata" in found:
        found = served(plural, found)
    return json.dumps(found).encode()


def served_event(served: Served, plural: str, line: bytes) -> bytes:
    """One line of a watch; bookmarks and errors are the server's own."""
    event = json.loads(line)
    if event.get("type") in {"ADDED", "MODIFIED"}:
        event["object"] = served(plural, event["object"])
    return json.dumps(event).encode() + b"\n"


ANONYMOUS = "system:anonymous"
_OF_ONE_CONNECTION = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_READ_BYTES = 2**20


class Forwarder:
    """Passes requests on to one API server; `users` are its static tokens with their users.

    `served` changes every object that is read, on its way to the client.
    """

    def __init__(
        self,
        url: str,
        *,
        faults: Faults,
        tls: ssl.SSLContext | None,
        users: Mapping[str, str],
        served: Served | None = None,
    ) -> None:
        self._url = url
        self._served = served
        self._faults = faults
        self._users = dict(users)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """End the connections to the server."""
        await self._session.close()

    def user(self, request: web.BaseRequest) -> str:
        """Who asks: a static user, or whom a service account's token names."""
        if wanted := request.headers.get("Impersonate-User"):
            return wanted
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer":
            return ANONYMOUS
        return self._users.get(token) or _subject(token)

    async def answer(self, call: Call) -> web.StreamResponse:
        """The server's answer; one that does not come is a broken connection here too."""
        request = call.request
        if call.body is None:
            return refusal(ApiError(413, "RequestEntityTooLarge", "Request entity too large"))
        try:
            async with self._session.request(
                request.method,
                URL(self._url + request.raw_path, encoded=True),
                data=call.body or None,
                headers=self._asked_with(request.headers),
                allow_redirects=False,
            ) as answer:
                if answer.status == 200 and call.address.verb == "watch":
                    return await self._stream(call, answer)
                body = await answer.read()
                if self._served and answer.status == 200 and request.method == "GET":
                    body = served_list_or_object(self._served, call.address.resource, body)
                return web.Response(
                    status=answer.status, body=body, headers=_passed_on(answer.headers)
                )
        except (aiohttp.ClientError, OSError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

    def _asked_with(self, headers: Mapping[str, str]) -> CIMultiDict[str]:
        asked = _passed_on(headers)
        if self._served is not None:
            asked.popall("Accept-Encoding", None)
        return asked

    async def _stream(self, call: Call, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers=_passed_on(answer.headers))
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        call.note(200)
        served, plural = self._served, call.address.resource
        watch = RelayedWatch(
            answer, (lambda line: served_event(served, plural, line)) if served else None
        )
        with contextlib.suppress(ConnectionError), self._faults.watching(watch):
            await watch.relay(response)
            if watch.broken and call.request.transport is not None:
                call.request.transport.abort()
            else:
                await response.write_eof()
        answer.close()
        return response


def _passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        if name.lower() not in _OF_ONE_CONNECTION:
            kept.add(name, value)
    return kept


def _subject(token: str) -> str:
    """The user a token names; whether it is true is the server's to say."""
    parts = token.split(".")
    if len(parts) != 3:
        return ANONYMOUS
    with contextlib.suppress(binascii.Error, msgspec.MsgspecError, ValueError):
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="))
        if isinstance(claims, dict) and isinstance(claims.get("sub"), str):
            return str(claims["sub"])
    return ANONYMOUS
