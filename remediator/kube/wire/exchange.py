"""One write comes in as bytes; the answer goes out, on a connection of aiohttp's pool.

`remediator.kube.api` sends every write here. aiohttp opens, keeps and pools the connections (TLS,
proxies) and parses the answers. Its own client makes a URL, header maps, a timer, a payload and a
task of each request, which was a tenth of the remediator's CPU in a storm, and writes a body only
after whatever else the event loop has to do: here the last look and the bytes are one step.
Nothing is sent twice and no redirect is followed: only the caller knows whether that is safe.
"""

from __future__ import annotations

import asyncio
import platform
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from yarl import URL

from remediator.kube.wire.aiohttp_alone import HttpProcessingError, aiohttp
from remediator.version import release_version
from rules.api.names import COMPONENT_REMEDIATOR

EXCHANGE_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError)
"""What `Exchange.send` raises when there is no answer; TimeoutError is an OSError."""
NO_ANSWER_ERRORS = (aiohttp.ClientError, HttpProcessingError, ConnectionError, TimeoutError)
"""The same where another OSError may come from a file."""

_CONNECT_S = 10.0
_PROXY_AUTHORIZATION = "Proxy-Authorization"


class HeldError(Exception):
    """Raised by a look before sending, so that the request is not written to its connection."""


class TooLargeError(aiohttp.ClientError):
    """The answer is larger than this is ever read."""

    def __init__(self, largest: int) -> None:
        super().__init__(f"the answer is larger than {largest >> 20} MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The API server and the way to it."""

    host: str
    """Scheme, name, port and, behind a gateway, the start of every path."""
    tls: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None

    @property
    def by_proxy_alone(self) -> bool:
        """Whether the proxy itself reads what is said: without TLS there is no tunnel."""
        return self.proxy is not None and not self.host.startswith("https:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """What the server answered."""

    code: int
    headers: Mapping[str, str]
    body: bytes


class Exchange:
    """Writes of one process, on the connections of its pool."""

    def __init__(self, connector: aiohttp.BaseConnector, *, largest: int) -> None:
        """`largest`: the most bytes of an answer that are read."""
        self._connector = connector
        self._largest = largest
        self._way: tuple[Destination, aiohttp.ClientRequest] | None = None
        self._timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_S)

    async def send(
        self,
        to: Destination,
        method: str,
        target: str,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        *,
        timeout_s: float,
        last_look: Callable[[], None] | None,
    ) -> Exchanged:
        """Say it once; `target` is path and query, encoded already.

        `last_look` runs with the connection in hand and nothing is awaited from there until the
        bytes are written: the HeldError that it raises is raised here, and nothing is sent.
        EXCHANGE_ERRORS and TimeoutError mean that nobody knows whether it took effect.
        """
        way = self._way_to(to)
        async with asyncio.timeout(timeout_s):
            connection = await self._connector.connect(way, traces=[], timeout=self._timeout)
            try:
                protocol, transport = connection.protocol, connection.transport
                if protocol is None or transport is None:
                    raise aiohttp.ServerDisconnectedError
                protocol.set_response_params(read_until_eof=True)
                said = _first_line(to, method, target) + _rest_of_head(
                    way.headers["Host"],
                    headers,
                    way.headers.get(_PROXY_AUTHORIZATION) if to.by_proxy_alone else None,
                )
                if last_look is not None:
                    last_look()
                transport.write(b"%b%d\r\n\r\n%b" % (said, len(body), body))
                message, content = await protocol.read()
                while 100 <= message.code < 200:
                    message, content = await protocol.read()
                if int(message.headers.get("Content-Length", 0)) > self._largest:
                    raise TooLargeError(self._largest)
                answer = await content.read()
            except HeldError:
                # Nothing was said on it.
                connection.release()
                raise
            except BaseException:
                connection.close()
                raise
            connection.release()
        return Exchanged(code=message.code, headers=message.headers, body=answer)

    def _way_to(self, to: Destination) -> aiohttp.ClientRequest:
        """What the pool tells connections apart by; made anew when the credentials were."""
        if self._way is None or self._way[0] != to:
            way = aiohttp.ClientRequest(
                "POST",
                URL(to.host, encoded=True),
                loop=asyncio.get_running_loop(),
                ssl=to.tls or True,
                server_hostname=to.server_name,
                proxy=URL(to.proxy) if to.proxy is not None else None,
            )
            self._way = to, way
        return self._way[1]


def user_agent() -> str:
    """Program, version and platform, so that an API server's audit log names us."""
    release = release_version()
    system = f"{platform.system().lower()}/{platform.machine()}"
    return f"{COMPONENT_REMEDIATOR}/{release} ({system}) python/{platform.python_version()}"


def _first_line(to: Destination, method: str, target: str) -> bytes:
    whole = to.host if to.by_proxy_alone else _start_of_paths(to.host)
    line = f"{method} {whole}{target}"
    if not line.isascii() or not line.isprintable() or line.count(" ") != 1:
        raise ValueError(f"not the start of a request: {line[:200]!r}")
    return f"{line} HTTP/1.1\r\n".encode()


@lru_cache(maxsize=4)
def _start_of_paths(host: str) -> str:
    return urlsplit(host).path.rstrip("/")


@lru_cache(maxsize=32)
def _rest_of_head(host: str, headers: tuple[tuple[str, str], ...], proxied: str | None) -> bytes:
    """Up to the number of bytes in the body; the same for thousands of calls."""
    lines = [("Host", host), *headers, ("Accept-Encoding", "gzip, deflate")]
    if proxied is not None:
        lines.append((_PROXY_AUTHORIZATION, proxied))
    for name, value in lines:
        if any(character in f"{name}{value}" for character in "\r\n\0"):
            raise ValueError(f"header {name[:100]!r} holds a line break")
    return "".join(f"{name}: {value}\r\n" for name, value in lines).encode() + b"Content-Length: "
