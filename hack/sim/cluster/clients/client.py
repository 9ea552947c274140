"""The client of a control plane that controllers, fake kubelets and tests use.

`Client` speaks the API; how a request travels is its subclass's business: `InProcessClient` goes
straight to the simulated server's logic, `http_client.HttpClient` over HTTP to it or to a real
kube-apiserver. Both raise `ApiError` and nothing else for an answer that is not a success.
Objects are plain dictionaries the caller owns: changing one never changes the server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import Resource

Object = dict[str, Any]
Objects = list[Object]
WatchEvent = tuple[str, Object]
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON = "application/json"
PAGE = 500

__all__ = [
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "ApiError",
    "Client",
    "Object",
    "Objects",
    "Resource",
    "WatchEvent",
]


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
