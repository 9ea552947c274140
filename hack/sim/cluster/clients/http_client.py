"""The client over HTTP, for the simulated server and for a real kube-apiserver; kubeconfigs.

A broken connection raises `aiohttp.ClientError` as it is, because nobody can know whether the
call took effect.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from hack.sim.cluster.clients.client import JSON, Client, Object
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.store.store import decode, encode

_TIMEOUT_S = 35.0
_LINE_LIMIT = 2**24


class HttpClient(Client):
    """Talks to one API server."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        agent: str = "gpuward-sim/0.1",
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._url = url.rstrip("/")
        headers = {"User-Agent": agent, "Accept": JSON}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            read_bufsize=_LINE_LIMIT,
        )

    @classmethod
    def from_kubeconfig(cls, path: Path, agent: str = "gpuward-sim/0.1") -> Self:
        """A client of a kubeconfig that `kubeconfig_text` wrote."""
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = cluster.get("certificate-authority-data")
        tls = None
        if authority:
            tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        return cls(cluster["server"], token=user.get("token"), tls=tls, agent=agent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        """Send one request; the object in its answer, or ApiError."""
        async with self._session.request(
            method,
            self._url + path,
            params={key: value for key, value in (query or {}).items() if value},
            data=None if body is None else encode(body),
            headers={"Content-Type": content_type} if body is not None else None,
        ) as response:
            raw = await response.read()
            if response.status >= 400:
                raise _refusal(response, raw)
            answer: Object = decode(raw)
            return answer

    async def events(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Object]:
        """The events of a watch, until the server ends the stream."""
        async with self._session.get(
            self._url + path,
            params={key: value for key, value in query.items() if value},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S),
        ) as response:
            if response.status >= 400:
                raise _refusal(response, await response.read())
            async for line in response.content:
                yield decode(line)


def _refusal(response: aiohttp.ClientResponse, raw: bytes) -> ApiError:
    """The refusal behind an answer; one that is no Status keeps its text as the message."""
    headers = {key: value for key, value in response.headers.items() if key == "Retry-After"}
    if response.content_type == JSON:
        error = ApiError.from_status(decode(raw), response.status)
        error.headers = headers
        return error
    text = raw.decode("utf-8", "replace").strip()
    return ApiError(response.status, "", text, headers=headers)


def kubeconfig_text(url: str, *, ca_pem: bytes | None = None, token: str | None = None) -> str:
    """A kubeconfig with one context."""
    cluster: Object = {"server": url}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    context = {"cluster": "simulated", "user": "admin", "namespace": "default"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "simulated",
        "clusters": [{"name": "simulated", "cluster": cluster}],
        "contexts": [{"name": "simulated", "context": context}],
        "users": [{"name": "admin", "user": {"token": token} if token else {}}],
    }
    return yaml.safe_dump(config, sort_keys=False)
