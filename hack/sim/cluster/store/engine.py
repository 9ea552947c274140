"""The control plane's state and logic without any transport.

One per server.  The HTTP layer and the in-process client are thin shells around it, so both obey
the same rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import DeleteOptions, WriteOptions
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.statuses import no_such_path
from hack.sim.cluster.store.binding import bind
from hack.sim.cluster.store.builtins import builtin_kinds
from hack.sim.cluster.store.definitions import Definitions
from hack.sim.cluster.store.deletion import delete, delete_collection
from hack.sim.cluster.store.eviction import RETRY_DELAY_S, Evictions
from hack.sim.cluster.store.kinds import Kind, Object, Registry
from hack.sim.cluster.store.listing import ListOptions, Selection, list_objects
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.store import HISTORY_LIMIT, Store, Stored
from hack.sim.cluster.store.watching import Subscription, WatchOptions

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_SERVER = WriteOptions(manager="kube-apiserver")


class Engine:
    """Everything the API can do, for callers who are already known and allowed."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        history_limit: int = HISTORY_LIMIT,
        eviction_retry_delay_s: float = RETRY_DELAY_S,
    ) -> None:
        self.store = Store(history_limit)
        self.registry = Registry(builtin_kinds())
        self.objects = ObjectApi(self.store, self.registry, clock)
        self.evictions = Evictions(self.objects, retry_delay_s=eviction_retry_delay_s)
        self.definitions = Definitions(self.objects, self.close_watches)
        self.clock = clock
        self.subscriptions: set[Subscription] = set()
        self._begin()

    def _begin(self) -> None:
        """Create what every control plane has from its first second."""
        for name in NAMESPACES:
            self.create(r.NAMESPACES, {"metadata": {"name": name}})
        for name, value in (
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ):
            self.create(r.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        self.create(
            r.CLUSTER_ROLES,
            {
                "metadata": {"name": "cluster-admin"},
                "rules": [everything, {"nonResourceURLs": ["*"], "verbs": ["*"]}],
            },
        )
        masters = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Group",
            "name": "system:masters",
        }
        self.create(
            r.CLUSTER_ROLE_BINDINGS,
            {
                "metadata": {"name": "cluster-admin"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "cluster-admin",
                },
                "subjects": [masters],
            },
        )

    def kind(self, resource: Resource) -> Kind:
        """The served kind of a resource, or 404."""
        found = self.registry.of(resource)
        if found is None:
            raise no_such_path()
        return found

    def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        options: WriteOptions = _SERVER,
    ) -> Stored:
        """POST to a collection."""
        return self.objects.create(self.kind(resource), obj, namespace, options)

    def load(self, resource: Resource, objects: Iterable[Object]) -> int:
        """Store many finished objects at once (a fleet), status included; how many."""
        kind = self.kind(resource)
        collection = self.objects.collection(kind)
        count = 0
        for obj in objects:
            status = obj.get("status")
            made = self.objects.complete_new(kind, obj, _SERVER)
            if status is not None:
                made["status"] = status
            metadata = made["metadata"]
            key = self.objects.key(kind, metadata["name"], metadata.get("namespace"))
            self.store.put(collection, key, made)
            count += 1
        return count

    def delete(
        self, kind: Kind, name: str, namespace: str | None, options: DeleteOptions
    ) -> tuple[Stored, bool]:
        """DELETE an object; what is left or was, and whether it is gone."""
        return delete(self.objects, kind, name, namespace, options)

    def delete_selected(
        self, kind: Kind, selection: Selection, options: DeleteOptions
    ) -> list[Stored]:
        """DELETE a collection; what was selected."""
        selected = list_objects(self.objects, kind, selection, ListOptions()).items
        delete_collection(self.objects, kind, selected, options)
        return selected

    async def post_subresource(
        self,
        kind: Kind,
        name: str,
        namespace: str,
        subresource: str,
        body: Any,
        options: WriteOptions,
    ) -> Object:
        """POST below an object: eviction or binding of a pod."""
        if kind.resource == r.PODS and subresource == "eviction":
            dry_run = "All" if options.dry_run else ""
            return await self.evictions.evict(namespace, name, body, dry_run)
        if kind.resource == r.PODS and subresource == "binding":
            return bind(self.objects, kind, namespace, name, body, options)
        raise no_such_path()

    def watch(self, kind: Kind, selection: Selection, options: WatchOptions) -> Subscription:
        """Begin a watch; its owner closes it and then forgets it with `forget`."""
        subscription = Subscription(self.objects, kind, selection, options)
        self.subscriptions.add(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """A watch is over."""
        subscription.close()
        self.subscriptions.discard(subscription)

    def close_watches(
        self, resource: Resource | None = None, error: ApiError | None = None
    ) -> int:
        """End the watches of a resource (or all), with an ERROR event if given; how many."""
        chosen = [
            one
            for one in self.subscriptions
            if not one.ended and resource in {None, one.kind.resource}
        ]
        for one in chosen:
            if error is None:
                one.close()
            else:
                one.fail(error)
        return len(chosen)
