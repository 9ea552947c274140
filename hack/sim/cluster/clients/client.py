"""The seam between controllers and a control plane: what a client of the API can do.

Two implementations: `inprocess.InProcessClient` (straight onto the simulated server's logic, for
fleets in virtual time) and `http_client.HttpClient` (the simulated or a real kube-apiserver).
Both raise `ApiError` and nothing else for an answer that is not a success.
Objects are plain dictionaries the caller owns: changing one never changes the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import Resource

Object = dict[str, Any]
Objects = list[Object]
WatchEvent = tuple[str, Object]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

__all__ = [
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "ApiError",
    "Client",
    "Object",
    "Objects",
    "Resource",
    "WatchEvent",
]


class Client(Protocol):
    """What controllers, fake kubelets and tests ask of the API server."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object, or ApiError 404."""
        ...

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """All matching objects (of every namespace without one) and the list's resourceVersion."""
        ...

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
        """POST; the stored object.  `name` and `subresource` address a POST below an object."""
        ...

    async def update(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """PUT under the name in its metadata; 409 when its resourceVersion is stale."""
        ...

    async def update_status(
        self, resource: Resource, obj: Object, namespace: str | None = None
    ) -> Object:
        """PUT of the status subresource."""
        ...

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
        """PATCH in one of the three patch languages; the object as it is afterwards."""
        ...

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
        """DELETE; `uid` is a precondition, `grace` seconds, `propagation` the policy word."""
        ...

    def watch(
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
        ...

    async def bind(self, namespace: str, pod: str, node: str) -> None:
        """Bind a pod to a node as the scheduler does."""
        ...

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
        ...

    async def close(self) -> None:
        """Let go of connections; the client must not be used afterwards."""
        ...
