"""The client of a control plane that controllers, fake kubelets and tests use; kubeconfigs.

`Client` speaks the API; how a request travels is its subclass's business: `InProcessClient` goes
straight to the simulated server's logic, `HttpClient` over HTTP to it or to a real kube-apiserver.
Both raise `ApiError` for an answer that is not a success. A broken connection raises
`aiohttp.ClientError` as it is, because nobody can know whether the call took effect.
Objects are plain dictionaries the caller owns: changing one never changes the server.
"""

import base64
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import MERGE_PATCH, Resource
from hack.sim.cluster.store.store import decode, encode

Object = dict[str, Any]
Objects = list[Object]
WatchEvent = tuple[str, Object]
JSON = "application/json"
PAGE = 500

_TIMEOUT_S = 35.0
_LINE_LIMIT = 2**24


class Client(ABC):
    """What controllers, fake kubelets and tests ask of the API server."""

    @abstractmethod
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

    @abstractmethod
    def events(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Object]:
        """The events of a watch."""

    @abstractmethod
    async def close(self) -> None:
        """Close connections; the client must not be used afterwards."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object, or ApiError 404."""
        return await self.request("GET", resource.path(name, namespace))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """All matching objects (of every namespace without one) and the list's resourceVersion."""
        items: Objects = []
        query = {
            "labelSelector": label_selector or "",
            "fieldSelector": field_selector or "",
            "limit": str(PAGE),
        }
        while True:
            page = await self.request("GET", resource.path(namespace=namespace), query=query)
            items += page.get("items") or []
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
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
        """POST; the stored object. `name` and `subresource` address a POST below an object."""
        where = namespace or obj.get("metadata", {}).get("namespace")
        path = resource.path(name, where, subresource)
        return await self.request("POST", path, obj, query=_dry(dry_run))

    async def update(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """PUT under the name in its metadata; 409 when its resourceVersion is stale."""
        metadata = obj["metadata"]
        where = namespace or metadata.get("namespace")
        return await self.request("PUT", resource.path(metadata["name"], where, subresource), obj)

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
        """PATCH as a merge patch or a strategic one; the object as it is afterwards."""
        path = resource.path(name, namespace, subresource)
        return await self.request(
            "PATCH", path, patch, content_type=content_type, query=_dry(dry_run)
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace: int | None = None,
    ) -> None:
        """DELETE, dependents in the background; `uid` is a precondition, `grace` seconds."""
        kind = {"kind": "DeleteOptions", "apiVersion": "v1"}
        body: Object = {**kind, "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self.request("DELETE", resource.path(name, namespace), body)

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
        """Changes after `resource_version` as (ADDED|MODIFIED|DELETED|BOOKMARK, object).

        Ends when the server ends the stream (watch again from the last resourceVersion seen);
        raises ApiError 410 when that version is too old (list again).
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": label_selector or "",
            "fieldSelector": field_selector or "",
            "timeoutSeconds": str(timeout_s) if timeout_s else "",
        }
        async for event in self.events(resource.path(namespace=namespace), query):
            if event["type"] == "ERROR":
                raise ApiError.from_status(event["object"])
            yield event["type"], event["object"]

    async def bind(self, namespace: str, pod: str, node: str) -> None:
        """Bind a pod to a node as the scheduler does."""
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
        """POST an eviction; ApiError with the server's answer when it is refused."""
        options: Object = {"preconditions": {"uid": uid}} if uid else {}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": options,
        }
        await self.create(
            r.PODS, body, namespace, subresource="eviction", name=pod, dry_run=dry_run
        )


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


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
