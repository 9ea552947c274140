"""Local copies of API collections, kept current by one list and watch each.

All controllers of a cluster share them. A cache also takes in the answers of our own writes, so a
controller sees its own writes before the watch does. A cached object is never changed in
place; a change builds a new one.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

import aiohttp

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers.pods import stamp
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import PODS, Resource

Key = tuple[str, str]
Handler = Callable[[Object | None, Object | None], None]
CONNECTION_TROUBLE = (OSError, TimeoutError, aiohttp.ClientError)
_RETRY_S = 0.5


def key_of(obj: Object) -> Key:
    """Namespace (empty for cluster-scoped) and name."""
    meta = obj["metadata"]
    return meta.get("namespace") or "", meta["name"]


def _label_value(namespace: str, key: str, value: str) -> str:
    return f"{namespace} {key} {value}"


def _version(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


class Cache:
    """One collection: objects by key, owner UID, namespace and (pods) by node and label."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self._objects: dict[Key, Object] = {}
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._by_namespace: dict[str, dict[Key, None]] = {}
        self._by_node: dict[str, dict[Key, None]] = {}
        self._by_label: dict[str, dict[Key, None]] = {}
        self._handlers: list[Handler] = []

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def get(self, key: Key) -> Object | None:
        """The object of that key, as last seen."""
        return self._objects.get(key)

    def owned_by(self, uid: str) -> list[Object]:
        """Objects with an ownerReference of that UID."""
        return [self._objects[key] for key in self._by_owner.get(uid, ())]

    def in_namespace(self, namespace: str) -> list[Object]:
        """Objects of one namespace."""
        return [self._objects[key] for key in self._by_namespace.get(namespace, ())]

    def on_node(self, node: str) -> list[Object]:
        """Pods bound to a node."""
        return [self._objects[key] for key in self._by_node.get(node, ())]

    def labelled(self, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Pods of a namespace with one of the labels: the one that fewest have (any without)."""
        entries = [
            self._by_label.get(_label_value(namespace, key, value), {})
            for key, value in labels.items()
        ]
        if not entries:
            return self.in_namespace(namespace)
        return [self._objects[key] for key in min(entries, key=len)]

    def subscribe(self, handler: Handler) -> None:
        """Tell `handler` of every change as (old, new); what is there now comes as new."""
        self._handlers.append(handler)
        for obj in self:
            handler(None, obj)

    def store(self, obj: Object) -> None:
        """Take in an object unless a newer state of it is known.

        The cache owns the object from here on and drops its managedFields, which are half of a
        pod; an update sent without them keeps those of the server.
        """
        obj["metadata"].pop("managedFields", None)
        key = key_of(obj)
        old = self._objects.get(key)
        if old is not None:
            if _version(obj) <= _version(old):
                return
            self._unindex(key, old)
        self._objects[key] = obj
        self._index(key, obj)
        self._tell(old, obj)

    def forget(self, obj: Object) -> None:
        """Drop a deleted object, unless its name already belongs to a later one."""
        key = key_of(obj)
        old = self._objects.get(key)
        if old is None or old["metadata"]["uid"] != obj["metadata"]["uid"]:
            return
        self._unindex(key, old)
        del self._objects[key]
        self._tell(old, None)

    def expect_deletion(self, obj: Object, now: datetime) -> None:
        """After our DELETE was accepted: show the object as terminating until the watch shows
        more.
        """
        key = key_of(obj)
        old = self._objects.get(key)
        if old is None or old["metadata"]["uid"] != obj["metadata"]["uid"]:
            return
        if not old["metadata"].get("deletionTimestamp"):
            meta = {**old["metadata"], "deletionTimestamp": stamp(now)}
            self._objects[key] = {**old, "metadata": meta}

    def replace(self, objects: Iterable[Object]) -> None:
        """Take in a full list: what is not in it is gone."""
        listed = {key_of(obj): obj for obj in objects}
        for key, old in list(self._objects.items()):
            now = listed.get(key)
            if now is None or now["metadata"]["uid"] != old["metadata"]["uid"]:
                self.forget(old)
        for obj in listed.values():
            self.store(obj)
        self.synced.set()

    def _tell(self, old: Object | None, new: Object | None) -> None:
        for handler in self._handlers:
            handler(old, new)

    def _places(self, obj: Object) -> Iterator[tuple[dict[str, dict[Key, None]], str]]:
        meta = obj["metadata"]
        for owner in meta.get("ownerReferences") or ():
            yield self._by_owner, owner["uid"]
        yield self._by_namespace, meta.get("namespace") or ""
        if self.resource != PODS:
            return
        for key, value in (meta.get("labels") or {}).items():
            yield self._by_label, _label_value(meta["namespace"], key, value)
        node = obj.get("spec", {}).get("nodeName")
        if node:
            yield self._by_node, node

    def _index(self, key: Key, obj: Object) -> None:
        for index, value in self._places(obj):
            index.setdefault(value, {})[key] = None

    def _unindex(self, key: Key, obj: Object) -> None:
        for index, value in self._places(obj):
            entries = index.get(value)
            if entries is not None:
                entries.pop(key, None)
                if not entries:
                    del index[value]


class Caches:
    """The caches of one cluster, each started on first use and stopped together."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._caches: dict[Resource, Cache] = {}
        self._followers: list[asyncio.Task[None]] = []

    def __getitem__(self, resource: Resource) -> Cache:
        cache = self._caches.get(resource)
        if cache is None:
            cache = self._caches[resource] = Cache(resource)
            self._followers.append(
                asyncio.create_task(follow(self._client, cache), name=f"follow {resource.plural}")
            )
        return cache

    def __contains__(self, resource: Resource) -> bool:
        return resource in self._caches

    async def synced(self) -> None:
        """Wait until every cache has its first list."""
        for cache in list(self._caches.values()):
            await cache.synced.wait()

    async def close(self) -> None:
        """Stop following."""
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)


async def follow(client: Client, cache: Cache) -> None:
    """Keep the cache current for ever: list, watch, and list again when the watch is too old.

    A collection that does not exist (404: its CRD is not there yet) counts as empty and is asked
    for again.
    """
    while True:
        try:
            objects, version = await client.list(cache.resource)
            cache.replace(_with_kind(obj, cache.resource) for obj in objects)
            await _watch(client, cache, version)
        except ApiError as error:
            if error.code == 410:
                continue
            if error.code == 404:
                cache.replace(())
            await asyncio.sleep(_RETRY_S)
        except CONNECTION_TROUBLE:
            await asyncio.sleep(_RETRY_S)


async def _watch(client: Client, cache: Cache, version: str) -> None:
    while True:
        seen = 0
        async for kind, obj in client.watch(cache.resource, resource_version=version):
            version = obj["metadata"].get("resourceVersion") or version
            seen += 1
            if kind == "DELETED":
                cache.forget(obj)
            elif kind in ("ADDED", "MODIFIED"):
                cache.store(_with_kind(obj, cache.resource))
        if seen == 0:
            await asyncio.sleep(_RETRY_S)


def _with_kind(obj: Object, resource: Resource) -> Object:
    """Items of a list may come without their kind; owner references and events need it."""
    if obj.get("kind"):
        return obj
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
