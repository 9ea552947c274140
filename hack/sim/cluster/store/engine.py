"""The control plane's state and logic without any transport, definitions of custom kinds included.

One per server. HTTP and the in-process client are thin shells around it, so both obey the same
rules.
"""

import time
from collections.abc import Callable, Iterable

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import ApiError, no_such_path
from hack.sim.cluster.resource import DeleteOptions, Resource, WriteOptions, custom_resources
from hack.sim.cluster.store.deletion import delete
from hack.sim.cluster.store.kinds import Kind, Object, Registry, metadata_fields
from hack.sim.cluster.store.listing import Selection, Subscription
from hack.sim.cluster.store.objects import Hooks, ObjectApi
from hack.sim.cluster.store.schema import StructuralSchema
from hack.sim.cluster.store.store import Store, Stored
from hack.sim.cluster.store.tables import custom_columns, rfc3339


class Definitions:
    """The custom kinds of one server."""

    def __init__(self, api: ObjectApi, close_watches: Callable[[Resource], int]) -> None:
        self._api = api
        self._close_watches = close_watches
        api.hooks[r.CUSTOM_RESOURCE_DEFINITIONS] = Hooks(self._changed, self._removed)

    def _changed(self, definition: Object) -> None:
        served = {one["name"] for one in definition["spec"]["versions"] if one.get("served")}
        for kind in _kinds(definition):
            if kind.resource.version in served:
                self._api.registry.add(kind)
                self._api.collection(kind)
            else:
                self._api.registry.remove(kind.resource)
        status = definition.get("status") or {}
        if any(one["type"] == "Established" for one in status.get("conditions") or ()):
            return
        spec = definition["spec"]
        now = rfc3339(self._api.clock())
        conditions = [
            {
                "type": type_,
                "status": "True",
                "lastTransitionTime": now,
                "reason": reason,
                "message": "",
            }
            for type_, reason in (
                ("NamesAccepted", "NoConflicts"),
                ("Established", "InitialNamesAccepted"),
            )
        ]
        established = {
            "acceptedNames": spec["names"],
            "conditions": conditions,
            "storedVersions": [one["name"] for one in spec["versions"] if one.get("storage")],
        }
        collection = self._api.store.collection(r.CUSTOM_RESOURCE_DEFINITIONS.group_resource)
        body = {**definition, "metadata": dict(definition["metadata"]), "status": established}
        self._api.store.put(collection, ("", definition["metadata"]["name"]), body)

    def _removed(self, definition: Object) -> None:
        """The objects of the kind go with its definition, whatever holds them."""
        for kind in _kinds(definition):
            collection = self._api.collection(kind)
            for namespace, name in list(collection.keys):
                _, gone = delete(self._api, kind, name, namespace, DeleteOptions())
                if not gone:
                    self._api.remove(kind, collection.objects[namespace, name].obj)
            self._api.registry.remove(kind.resource)
            self._close_watches(kind.resource)
            self._api.store.collections.pop(kind.resource.group_resource, None)


def _kinds(definition: Object) -> list[Kind]:
    """The kinds that the versions of a definition describe."""
    found = []
    names = definition["spec"]["names"]
    for resource, version in custom_resources(definition):
        paths = [one["jsonPath"] for one in version.get("selectableFields") or ()]
        selectable = [path.removeprefix(".") for path in paths]
        found.append(
            Kind(
                resource=resource,
                short_names=tuple(names.get("shortNames") or ()),
                subresources=("status",)
                if "status" in (version.get("subresources") or {})
                else (),
                generation=True,
                unconditional_update=False,
                custom=True,
                columns=custom_columns(version),
                fields=metadata_fields(*selectable),
                indexed=("metadata.name", *selectable),
                schema=StructuralSchema(version["schema"]["openAPIV3Schema"]),
            )
        )
    return found


NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_SERVER = WriteOptions(manager="kube-apiserver")


class Engine:
    """Everything the API can do, for callers who are already known and allowed."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.store = Store()
        self.registry = Registry()
        self.objects = ObjectApi(self.store, self.registry, clock)
        self.definitions = Definitions(self.objects, self.close_watches)
        self.subscriptions: set[Subscription] = set()
        self.objects.hooks[r.NAMESPACES] = Hooks(removed=self._empty)
        for name in NAMESPACES:
            self.create(r.NAMESPACES, {"metadata": {"name": name}})

    def _empty(self, namespace: Object) -> None:
        """All that is in a namespace goes with it, at once."""
        for kind in self.registry.all():
            if kind.resource.namespaced:
                collection = self.objects.collection(kind)
                for key in list(collection.range(namespace["metadata"]["name"])):
                    self.store.remove(collection, key)

    def kind(self, resource: Resource) -> Kind:
        """The served kind of a resource, or 404."""
        found = self.registry.find(resource.group, resource.version, resource.plural)
        if found is None:
            raise no_such_path()
        return found

    def create(self, resource: Resource, obj: Object, namespace: str | None = None) -> Stored:
        """Store a new object as the server itself."""
        return self.objects.create(self.kind(resource), obj, namespace, _SERVER)

    def load(self, resource: Resource, objects: Iterable[Object]) -> int:
        """Store many finished objects at once (a fleet), status included; how many."""
        kind = self.kind(resource)
        collection = self.objects.collection(kind)
        count = 0
        for obj in objects:
            made = self.objects.complete_new(kind, obj, _SERVER)
            if obj.get("status") is not None:
                made["status"] = obj["status"]
            metadata = made["metadata"]
            key = self.objects.key(kind, metadata["name"], metadata.get("namespace"))
            self.store.put(collection, key, made)
            count += 1
        return count

    def watch(
        self,
        kind: Kind,
        selection: Selection,
        resource_version: str = "",
        *,
        bookmarks: bool = False,
    ) -> Subscription:
        """Begin a watch; its owner gives it back with `forget`."""
        subscription = Subscription(
            self.objects, kind, selection, resource_version, bookmarks=bookmarks
        )
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
