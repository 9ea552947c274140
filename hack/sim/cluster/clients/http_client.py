"""The client over HTTP: for the simulated server and for a real kube-apiserver.

Implements `client.Client` with aiohttp.  Every refusal is an ApiError; a broken connection raises
`aiohttp.ClientError` as it is, because nobody can know whether the call took effect.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import aiohttp

from hack.sim.cluster import resource as r
from hack.sim.cluster.clients.client import MERGE_PATCH, Object, Objects, WatchEvent
from hack.sim.cluster.clients.inprocess import eviction_body
from hack.sim.cluster.clients.kubeconfig import read_kubeconfig
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store.store import decode, encode

PAGE = 500
_TIMEOUT_S = 35.0
_LINE_LIMIT = 2**24


class HttpClient:
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
        headers = {"User-Agent": agent, "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connector = (
            aiohttp.TCPConnector(limit=0, ssl=tls) if tls else aiohttp.TCPConnector(limit=0)
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            read_bufsize=_LINE_LIMIT,
        )

    @classmethod
    def from_kubeconfig(cls, path: Path, agent: str = "gpuward-sim/0.1") -> Self:
        """A client of the kubeconfig's current context."""
        access = read_kubeconfig(path)
        return cls(access.url, token=access.token, tls=access.tls, agent=agent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str | None] | None = None,
    ) -> Object:
        given = {key: value for key, value in (query or {}).items() if value}
        async with self._session.request(
            method,
            self._url + path,
            params=given,
            data=None if body is None else encode(body),
            headers={"Content-Type": content_type} if body is not None else None,
        ) as response:
            raw = await response.read()
            if response.status >= 400:
                raise _refusal(response, raw)
            answer: Object = decode(raw)
            return answer

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object, or ApiError 404."""
        return await self._call("GET", resource.path(name, namespace))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """All matching objects, read page by page, and the list's resourceVersion."""
        items: Objects = []
        token: str | None = None
        while True:
            page = await self._call(
                "GET",
                resource.path(namespace=namespace),
                query={
                    "labelSelector": label_selector,
                    "fieldSelector": field_selector,
                    "limit": str(PAGE),
                    "continue": token,
                },
            )
            items += page.get("items") or []
            token = page["metadata"].get("continue")
            if not token:
                return items, page["metadata"]["resourceVersion"]

    async def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        name: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """POST to a collection, or below an object."""
        return await self._call(
            "POST",
            resource.path(name, namespace, subresource),
            obj,
            query={"dryRun": "All" if dry_run else None},
        )

    async def update(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """PUT under the name in its metadata."""
        metadata = obj["metadata"]
        where = namespace or metadata.get("namespace")
        return await self._call("PUT", resource.path(metadata["name"], where, subresource), obj)

    async def update_status(
        self, resource: Resource, obj: Object, namespace: str | None = None
    ) -> Object:
        """PUT of the status subresource."""
        return await self.update(resource, obj, namespace, subresource="status")

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
        dry_run: bool = False,
    ) -> Object:
        """PATCH in one of the three patch languages."""
        return await self._call(
            "PATCH",
            resource.path(name, namespace, subresource),
            patch,
            content_type=content_type,
            query={"dryRun": "All" if dry_run else None},
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """DELETE an object."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if propagation:
            body["propagationPolicy"] = propagation
        await self._call("DELETE", resource.path(name, namespace), body)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        resource_version: str = "",
        timeout_s: int | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Changes after `resource_version` until the server ends the stream."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": label_selector or "",
            "fieldSelector": field_selector or "",
            "timeoutSeconds": str(timeout_s) if timeout_s else "",
        }
        async with self._session.get(
            self._url + resource.path(namespace=namespace),
            params={key: value for key, value in query.items() if value},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S),
        ) as response:
            if response.status >= 400:
                raise _refusal(response, await response.read())
            async for line in response.content:
                event: Object = decode(line)
                if event["type"] == "ERROR":
                    raise ApiError.from_status(event["object"])
                yield event["type"], event["object"]

    async def bind(self, namespace: str, pod: str, node: str) -> None:
        """Bind a pod to a node."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.create(r.PODS, body, namespace, subresource="binding", name=pod)

    async def evict(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str | None = None,
        grace: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """POST an eviction."""
        body = eviction_body(namespace, pod, uid=uid, grace=grace)
        await self.create(
            r.PODS, body, namespace, subresource="eviction", name=pod, dry_run=dry_run
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def _refusal(response: aiohttp.ClientResponse, raw: bytes) -> ApiError:
    """The refusal behind an answer; one that is no Status keeps its text as the message."""
    headers = {key: value for key, value in response.headers.items() if key == "Retry-After"}
    if response.content_type == "application/json":
        error = ApiError.from_status(decode(raw), response.status)
        error.headers = headers
        return error
    text = raw.decode("utf-8", "replace").strip()
    return ApiError(response.status, "", text, headers=headers)
