"""A client without a wire: straight onto the engine's logic.

For controllers and fleets inside the server's own process and event loop.  The caller gets copies;
the logic is the one behind HTTP.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import DeleteOptions, WriteOptions
from hack.sim.cluster.clients.client import MERGE_PATCH, Object, Objects, WatchEvent
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.kinds import Kind
from hack.sim.cluster.store.listing import ListOptions, list_objects, read_selection, shown
from hack.sim.cluster.store.store import Stored, decode
from hack.sim.cluster.store.watching import WatchOptions
from hack.sim.proxy.request_log import RequestLog


def _copy(kind: Kind, stored: Stored) -> Object:
    obj: Object = decode(shown(kind, stored).encoded)
    return obj


def _list_item(kind: Kind, stored: Stored) -> Object:
    """As over the wire: items of a list of a built-in kind do not say what they are."""
    obj = _copy(kind, stored)
    if not kind.custom:
        del obj["kind"], obj["apiVersion"]
    return obj


class InProcessClient:
    """Implements `client.Client`; `manager` is its name in managedFields and in the log."""

    def __init__(self, engine: Engine, log: RequestLog, manager: str = "in-process") -> None:
        self._engine = engine
        self._log = log
        self._manager = manager

    def named(self, manager: str) -> InProcessClient:
        """The same client under another name."""
        return InProcessClient(self._engine, self._log, manager)

    def _options(self, *, dry_run: bool = False) -> WriteOptions:
        return WriteOptions(manager=self._manager, dry_run=dry_run)

    def _note(
        self, verb: str, resource: Resource, name: str, namespace: str | None, sub: str = ""
    ) -> None:
        self._log.note_inprocess(verb, resource, name, namespace or "", sub, self._manager)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object, or ApiError 404."""
        kind = self._engine.kind(resource)
        return _copy(kind, self._engine.objects.get(kind, name, namespace))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """All matching objects and the list's resourceVersion."""
        kind = self._engine.kind(resource)
        selection = read_selection(kind, namespace, label_selector, field_selector)
        listed = list_objects(self._engine.objects, kind, selection, ListOptions())
        return [_list_item(kind, one) for one in listed.items], str(listed.revision)

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
        options = self._options(dry_run=dry_run)
        body = copy.deepcopy(obj)
        kind = self._engine.kind(resource)
        if subresource and name:
            self._note("create", resource, name, namespace, subresource)
            return await self._engine.post_subresource(
                kind, name, namespace or "", subresource, body, options
            )
        stored = self._engine.create(resource, body, namespace, options)
        self._note("create", resource, stored.obj["metadata"]["name"], namespace)
        return _copy(kind, stored)

    async def update(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """PUT under the name in its metadata."""
        kind = self._engine.kind(resource)
        name = obj["metadata"]["name"]
        where = namespace or obj["metadata"].get("namespace")
        self._note("update", resource, name, where, subresource or "")
        stored = self._engine.objects.update(
            kind, name, where, copy.deepcopy(obj), self._options(), subresource or ""
        )
        return _copy(kind, stored)

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
        kind = self._engine.kind(resource)
        self._note("patch", resource, name, namespace, subresource or "")
        options = self._options(dry_run=dry_run)
        stored = self._engine.objects.patch(
            kind, name, namespace, copy.deepcopy(patch), content_type, options, subresource or ""
        )
        return _copy(kind, stored)

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
        kind = self._engine.kind(resource)
        self._note("delete", resource, name, namespace)
        options = DeleteOptions(grace=grace, uid=uid, propagation=propagation)
        self._engine.delete(kind, name, namespace, options)

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
        """Changes after `resource_version`; ends only with the server's watches."""
        kind = self._engine.kind(resource)
        selection = read_selection(kind, namespace, label_selector, field_selector)
        subscription = self._engine.watch(
            kind, selection, WatchOptions(resource_version=resource_version)
        )
        try:
            while notices := await subscription.drain():
                for notice in notices:
                    obj = _copy(kind, notice.stored)
                    if notice.type == "ERROR":
                        raise ApiError.from_status(obj)
                    yield notice.type, obj
        finally:
            self._engine.forget(subscription)

    async def bind(self, namespace: str, pod: str, node: str) -> None:
        """Bind a pod to a node."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": pod, "namespace": namespace}, "target": target}
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
        """Nothing to let go of."""


def eviction_body(
    namespace: str, pod: str, *, uid: str | None = None, grace: int | None = None
) -> Object:
    """The body of an eviction request."""
    options: Object = {}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    body: Object = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    return body | ({"deleteOptions": options} if options else {})
