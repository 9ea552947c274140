"""CustomResourceDefinitions at work: posting one creates an API, deleting one removes it.

Hooks of the strategies; owned by the engine.  The real server does this in controllers a moment
later; here it is done when the write returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import DeleteOptions
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store.builtins import metadata_fields
from hack.sim.cluster.store.deletion import delete
from hack.sim.cluster.store.kinds import Column, Kind, Object
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.selectors import FieldReader
from hack.sim.cluster.store.timestamps import age, rfc3339
from hack.sim.cluster.tables.columns import AGE, NAME
from hack.sim.cluster.tables.jsonpath import find
from hack.sim.cluster.validation.cluster import Cluster
from hack.sim.cluster.validation.definition_rules import definition_problems
from hack.sim.cluster.validation.strategies import Strategy
from hack.sim.cluster.validation.structural import StructuralSchema

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class Definitions:
    """The custom kinds of one server."""

    def __init__(self, api: ObjectApi, close_watches: Callable[[Resource], int]) -> None:
        self._api = api
        self._close_watches = close_watches
        api.strategies.register(
            r.CUSTOM_RESOURCE_DEFINITIONS,
            Strategy(
                prepare_create=self._complete,
                prepare_update=lambda _, old, new, sub: self._complete_update(old, new, sub),
                problems=lambda _, new, old: definition_problems(new, old),
                changed=self._changed,
                removed=self._removed,
                before_delete=self._before_delete,
            ),
        )

    def _complete(self, _: Cluster, definition: Object) -> None:
        spec = dict(definition.get("spec") or {})
        names = dict(spec.get("names") or {})
        kind = str(names.get("kind", ""))
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", kind + "List")
        spec["names"] = names
        spec.setdefault("conversion", {"strategy": "None"})
        definition["spec"] = spec
        definition["status"] = {
            "acceptedNames": {"kind": "", "plural": ""},
            "conditions": [],
            "storedVersions": [
                one["name"] for one in spec.get("versions") or [] if one.get("storage")
            ],
        }

    def _complete_update(self, old: Object, new: Object, subresource: str) -> None:
        status = new.get("status")
        self._complete(self._api, new)
        if status is not None:
            new["status"] = status

    def _changed(self, api: Cluster, definition: Object) -> None:
        if definition["metadata"].get("deletionTimestamp"):
            self._clean_up(definition)
            return
        self._serve(definition)
        conditions = (definition.get("status") or {}).get("conditions") or []
        if any(one.get("type") == "Established" for one in conditions):
            return
        now = rfc3339(api.clock())
        accepted = {
            "type": "NamesAccepted",
            "status": "True",
            "lastTransitionTime": now,
            "reason": "NoConflicts",
            "message": "no conflicts found",
        }
        established = {
            "type": "Established",
            "status": "True",
            "lastTransitionTime": now,
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        }
        status = {
            **definition["status"],
            "acceptedNames": definition["spec"]["names"],
            "conditions": [accepted, established],
        }
        self._put({**definition, "status": status})

    def _put(self, definition: Object) -> None:
        collection = self._api.store.collections[r.CUSTOM_RESOURCE_DEFINITIONS.group_resource]
        key = ("", definition["metadata"]["name"])
        self._api.store.put(
            collection, key, {**definition, "metadata": dict(definition["metadata"])}
        )

    def _serve(self, definition: Object) -> None:
        def check(_: Cluster, gone: Object) -> None:
            self._check(definition)

        for version in definition["spec"]["versions"]:
            kind = custom_kind(definition, version)
            if version.get("served"):
                self._api.registry.add(kind)
                self._api.collection(kind)
                self._api.strategies.register(kind.resource, Strategy(removed=check))
            else:
                self._api.registry.remove(kind.resource)

    def _before_delete(self, api: Cluster, definition: Object) -> Object:
        metadata = dict(definition["metadata"])
        finalizers = list(metadata.get("finalizers") or [])
        if CLEANUP not in finalizers and not metadata.get("deletionTimestamp"):
            metadata["finalizers"] = [*finalizers, CLEANUP]
        return {**definition, "metadata": metadata}

    def _kinds(self, definition: Object) -> list[Kind]:
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        found = [
            self._api.registry.find(group, version["name"], plural)
            for version in definition["spec"]["versions"]
        ]
        return [kind for kind in found if kind is not None]

    def _clean_up(self, definition: Object) -> None:
        """Delete every object of the kind; the definition goes with the last of them."""
        for kind in self._kinds(definition)[:1]:
            for namespace, name in list(self._api.collection(kind).keys):
                delete(self._api, kind, name, namespace, DeleteOptions())
        self._check(definition)

    def _check(self, definition: Object) -> None:
        name = definition["metadata"]["name"]
        present = self._api.peek(r.CUSTOM_RESOURCE_DEFINITIONS, name)
        if present is None or not present["metadata"].get("deletionTimestamp"):
            return
        if any(self._api.collection(kind).objects for kind in self._kinds(present)):
            return
        metadata = dict(present["metadata"])
        rest = [one for one in metadata.get("finalizers") or [] if one != CLEANUP]
        collection = self._api.store.collections[r.CUSTOM_RESOURCE_DEFINITIONS.group_resource]
        if rest:
            if rest != metadata["finalizers"]:
                self._put({**present, "metadata": {**metadata, "finalizers": rest}})
            return
        self._api.store.remove(collection, ("", name))
        self._removed(self._api, present)

    def _removed(self, _: Cluster, definition: Object) -> None:
        for kind in self._kinds(definition):
            self._api.registry.remove(kind.resource)
            self._close_watches(kind.resource)
            self._api.store.collections.pop(kind.store_name, None)


def custom_kind(definition: Object, version: Object) -> Kind:
    """The served kind that one version of a definition describes."""
    spec = definition["spec"]
    names = spec["names"]
    namespaced = spec["scope"] == "Namespaced"
    resource = Resource(spec["group"], version["name"], names["plural"], namespaced, names["kind"])
    subresources = version.get("subresources") or {}
    schema = version["schema"]["openAPIV3Schema"]
    selectable = {
        path.removeprefix("."): _reader(path)
        for one in version.get("selectableFields") or []
        if (path := str(one["jsonPath"]))
    }
    return Kind(
        resource=resource,
        singular=names["singular"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=("status",) if "status" in subresources else (),
        generation=True,
        status_on_create=False,
        unconditional_update=False,
        custom=True,
        columns=_columns(version),
        fields={**metadata_fields(namespaced=namespaced), **selectable},
        indexed=("metadata.name", *selectable),
        schema=StructuralSchema(names["kind"], schema),
    )


def _reader(path: str) -> FieldReader:
    def read(obj: Any) -> str:
        found = find(obj, path)
        if not found or found[0] is None:
            return ""
        return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])

    return read


def _columns(version: Object) -> tuple[Column, ...]:
    stated = version.get("additionalPrinterColumns")
    if not stated:
        return (NAME, AGE)
    return (NAME, *(_column(one) for one in stated))


def _column(stated: Object) -> Column:
    path, type_ = stated["jsonPath"], stated["type"]

    def cell(obj: Object, now: float) -> Any:
        try:
            found = find(obj, path)
        except ValueError:
            return None
        if not found or found[0] is None:
            return None
        if type_ == "date":
            return age(str(found[0]), now)
        if type_ in {"integer", "number", "boolean"}:
            return found[0]
        texts = [one if isinstance(one, str) else _plain(one) for one in found]
        return ",".join(texts) if len(texts) > 1 else texts[0]

    return Column(
        stated["name"],
        type_,
        cell,
        wide=bool(stated.get("priority")),
        format=stated.get("format", ""),
        description=stated.get("description", ""),
    )


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return (
            "[" + ",".join(f'"{one}"' if isinstance(one, str) else str(one) for one in value) + "]"
        )
    return str(value)
