"""CustomResourceDefinitions at work: posting one creates an API, deleting one removes it.

The real server does this in controllers a moment later; here it is done when the write returns.
Definitions are not validated: a real API server judges them.
"""

from __future__ import annotations

from collections.abc import Callable

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import DeleteOptions
from hack.sim.cluster.resource import Resource, custom_resources
from hack.sim.cluster.store.deletion import delete
from hack.sim.cluster.store.kinds import Kind, Object, metadata_fields
from hack.sim.cluster.store.objects import Hooks, ObjectApi
from hack.sim.cluster.store.schema import StructuralSchema
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
