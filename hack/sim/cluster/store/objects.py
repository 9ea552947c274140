"""Reads, creates, updates and patches of objects of every kind; deletion and eviction build on it.

Each call is synchronous and therefore atomic; it returns what is stored or raises `ApiError`.
"""

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import (
    ApiError,
    FieldProblem,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    required,
    unprocessable,
    unsupported_media,
)
from hack.sim.cluster.resource import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Resource, WriteOptions
from hack.sim.cluster.store.kinds import Kind, Registry, complete_new
from hack.sim.cluster.store.patching import merge_patch, strategic_merge, update_managed_fields
from hack.sim.cluster.store.selectors import is_label_key, is_label_value, is_name
from hack.sim.cluster.store.store import Collection, Key, Object, Store, Stored
from hack.sim.cluster.store.tables import rfc3339

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_KEPT_ON_UPDATE = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_NEVER_ON_CREATE = (
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "generation",
)
_ANNOTATIONS_LIMIT = 256 * 1024


def _nothing(_: Object) -> None:
    """For kinds whose changes have no consequence."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What else happens when an object of a kind was stored, or is gone."""

    changed: Callable[[Object], None] = _nothing
    removed: Callable[[Object], None] = _nothing


@dataclass(slots=True)
class ObjectApi:
    """Reads and writes of objects of every kind."""

    store: Store
    registry: Registry
    clock: Callable[[], float]
    hooks: dict[Resource, Hooks] = field(default_factory=dict)

    def collection(self, kind: Kind) -> Collection:
        """Where the kind's objects are."""
        return self.store.collection(
            kind.resource.group_resource, {name: kind.fields[name] for name in kind.indexed}
        )

    def key(self, kind: Kind, name: str, namespace: str | None) -> Key:
        """An object's place in its collection."""
        return (namespace or "" if kind.resource.namespaced else "", name)

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Stored:
        """The present revision."""
        found = self.collection(kind).objects.get(self.key(kind, name, namespace))
        if found is None:
            raise not_found(kind.resource, name)
        return found

    def peek(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """The present object or None; for the server's own decisions."""
        collection = self.store.collections.get(resource.group_resource)
        found = collection.objects.get((namespace, name)) if collection else None
        return found.obj if found else None

    def create(
        self, kind: Kind, body: Object, namespace: str | None, options: WriteOptions
    ) -> Stored:
        """Store a new object."""
        resource = kind.resource
        obj = self.complete_new(kind, body, options, namespace)
        metadata = obj["metadata"]
        problems = _metadata_problems(metadata) + kind.schema.problems(obj)
        if problems:
            raise unprocessable(resource, metadata.get("name") or "", problems)
        key = self.key(kind, metadata["name"], metadata.get("namespace"))
        collection = self.collection(kind)
        if key in collection.objects:
            raise already_exists(resource, metadata["name"])
        if options.dry_run:
            return Stored(obj, self.store.revision)
        stored = self.store.put(collection, key, obj)
        self.hooks.get(resource, Hooks()).changed(stored.obj)
        return collection.objects.get(key, stored)

    def complete_new(
        self, kind: Kind, body: Object, options: WriteOptions, namespace: str | None = None
    ) -> Object:
        """A new object as admission and defaults leave it, before validation."""
        obj, metadata = _decode_body(kind, body, namespace, options)
        if metadata.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = "".join(random.choice(_SUFFIX_LETTERS) for _ in range(5))
            metadata["name"] = metadata["generateName"][:58] + suffix
        self._check_namespace(kind, metadata)
        for name in _NEVER_ON_CREATE:
            metadata.pop(name, None)
        now = rfc3339(self.clock())
        metadata["uid"] = str(uuid.UUID(int=random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = now
        if kind.generation:
            metadata["generation"] = 1
        if kind.has_status and not kind.status_on_create:
            obj.pop("status", None)
        if not kind.custom:
            for part in ("spec", "status") if kind.has_status else ():
                obj.setdefault(part, {})
            if metadata.get("name"):
                complete_new(obj, self._priorities(obj))
        self._own(kind, None, obj, options, "")
        return obj

    def _priorities(self, obj: Object) -> dict[str, int]:
        name = str(obj.get("spec", {}).get("priorityClassName") or "")
        found = self.peek(r.PRIORITY_CLASSES, name) if name else None
        return {name: int(found["value"])} if found else {}

    def update(
        self,
        kind: Kind,
        name: str,
        namespace: str | None,
        body: Object,
        options: WriteOptions,
        subresource: str = "",
    ) -> Stored:
        """Replace an object, or only its status."""
        resource = kind.resource
        obj, metadata = _decode_body(kind, body, namespace, options)
        _check_name(metadata, name)
        old = self.collection(kind).objects.get(self.key(kind, name, namespace))
        if old is None:
            if kind.create_on_update and not subresource:
                return self.create(kind, obj, namespace, options)
            raise not_found(resource, name)
        uid, known = metadata.get("uid"), old.obj["metadata"]["uid"]
        if uid and uid != known:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            raise conflict(resource, name, why)
        if not metadata.get("resourceVersion") and not kind.unconditional_update:
            problem = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise unprocessable(resource, name, [problem])
        return self.replace(kind, old, obj, options, subresource)

    def patch(
        self,
        kind: Kind,
        name: str,
        namespace: str | None,
        patch: Any,
        content_type: str,
        options: WriteOptions,
        subresource: str = "",
    ) -> Stored:
        """Change an object by a patch."""
        accepted = [MERGE_PATCH] + ([] if kind.custom else [STRATEGIC_MERGE_PATCH])
        if content_type not in accepted:
            raise unsupported_media(accepted)
        old = self.get(kind, name, namespace)
        if not isinstance(patch, dict):
            raise bad_request("error decoding patch: a merge patch of an object is an object")
        apply = merge_patch if content_type == MERGE_PATCH else strategic_merge
        patched = apply(old.obj, patch)
        obj, metadata = _decode_body(kind, patched, namespace, options)
        _check_name(metadata, name)
        return self.replace(kind, old, obj, options, subresource)

    def replace(
        self, kind: Kind, old: Stored, obj: Object, options: WriteOptions, subresource: str = ""
    ) -> Stored:
        """Store `obj` (completed, not yet checked) as the next revision of `old`."""
        resource = kind.resource
        before, after = old.obj["metadata"], obj["metadata"]
        name = before["name"]
        if (after.get("resourceVersion") or str(old.revision)) != str(old.revision):
            raise conflict(resource, name)
        for one in _KEPT_ON_UPDATE:
            if not after.get(one) and before.get(one) is not None:
                after[one] = before[one]
        if before.get("generation") is not None:
            after["generation"] = before["generation"]
        after["managedFields"] = before.get("managedFields") or []
        after["resourceVersion"] = before["resourceVersion"]
        obj = self._isolate(kind, old.obj, obj, subresource)
        after = obj["metadata"]
        if _same(old.obj, obj):
            return old
        if kind.generation and _desired_changed(kind, old.obj, obj):
            after["generation"] = int(before.get("generation") or 0) + 1
        problems = _metadata_problems(after) + _change_problems(before, after)
        problems += kind.schema.problems(obj, old.obj)
        if problems:
            raise unprocessable(resource, name, problems)
        self._own(kind, old.obj, obj, options, subresource)
        if options.dry_run:
            return Stored(obj, old.revision)
        finished = (
            after.get("deletionTimestamp")
            and not after.get("finalizers")
            and not before.get("deletionGracePeriodSeconds")
        )
        if finished:
            return self.remove(kind, obj)
        return self.put(kind, obj)

    def _own(
        self, kind: Kind, old: Object | None, obj: Object, options: WriteOptions, subresource: str
    ) -> None:
        obj["metadata"]["managedFields"] = update_managed_fields(
            old,
            obj,
            manager=options.manager,
            subresource=subresource,
            api_version=kind.resource.api_version,
            at=rfc3339(self.clock()),
            custom=kind.custom,
        )

    def put(self, kind: Kind, obj: Object) -> Stored:
        """Store a change of an object, unchecked."""
        metadata, collection = obj["metadata"], self.collection(kind)
        key = self.key(kind, metadata["name"], metadata.get("namespace"))
        stored = self.store.put(collection, key, obj)
        self.hooks.get(kind.resource, Hooks()).changed(stored.obj)
        return collection.objects.get(key, stored)

    def remove(self, kind: Kind, last: Object) -> Stored:
        """Remove an object whose last state is `last`."""
        metadata, collection = last["metadata"], self.collection(kind)
        key = self.key(kind, metadata["name"], metadata.get("namespace"))
        collection.objects[key] = Stored(last, collection.objects[key].revision)
        removed = self.store.remove(collection, key)
        self.hooks.get(kind.resource, Hooks()).removed(removed.obj)
        return removed

    def _check_namespace(self, kind: Kind, metadata: Object) -> None:
        if not kind.resource.namespaced:
            return
        name = metadata.get("namespace") or ""
        if not name:
            raise bad_request("an empty namespace may not be set during creation")
        if self.peek(r.NAMESPACES, name) is None:
            raise not_found(r.NAMESPACES, name)

    def _isolate(self, kind: Kind, old: Object, new: Object, subresource: str) -> Object:
        """Keep an ordinary write out of status, and a status write out of everything else."""
        if subresource == "status":
            metadata = new["metadata"]
            if kind.custom:
                metadata = {**old["metadata"], "resourceVersion": metadata["resourceVersion"]}
            isolated = {**old, "metadata": metadata}
            isolated.pop("status", None)
            return isolated | ({"status": new["status"]} if "status" in new else {})
        if kind.has_status and not subresource:
            isolated = {key: value for key, value in new.items() if key != "status"}
            return isolated | ({"status": old["status"]} if "status" in old else {})
        return new


def _decode_body(
    kind: Kind, body: Any, namespace: str | None, options: WriteOptions
) -> tuple[Object, Object]:
    """The body completed for its kind, its type and namespace checked; and its metadata."""
    resource = kind.resource
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise bad_request(f"the body cannot be handled as a {resource.kind}")
    stated = (body.get("apiVersion"), body.get("kind"))
    expected = (resource.api_version, resource.kind)
    if kind.custom and not all(stated):
        raise bad_request("Object 'Kind' or 'apiVersion' is missing in the body")
    if any(one and one != wanted for one, wanted in zip(stated, expected, strict=True)):
        raise bad_request(f"the type in the data {stated} does not match the expected {expected}")
    obj = {
        **body,
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": body.get("metadata") or {},
    }
    obj, unknown = kind.schema.complete(obj)
    if unknown and options.strict:
        texts = [f'unknown field "{path}"' for path in unknown]
        raise bad_request(f"strict decoding error: {', '.join(texts)}")
    metadata = obj["metadata"] = dict(obj["metadata"])
    if not resource.namespaced:
        metadata.pop("namespace", None)
    elif namespace and metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    # What every object begins with: lists leave it out, and cut it off the encoded object.
    head = {"kind": obj.pop("kind"), "apiVersion": obj.pop("apiVersion"), "metadata": metadata}
    obj.pop("metadata")
    return {**head, **obj}, metadata


def _check_name(metadata: Object, asked: str) -> None:
    if metadata.get("name") != asked:
        raise bad_request(
            f"the name of the object ({metadata.get('name')}) does not match the name on the URL "
            f"({asked})"
        )


def _metadata_problems(metadata: Object) -> list[FieldProblem]:
    name = metadata.get("name") or ""
    if not name:
        return [required("metadata.name")]
    labels: Object = metadata.get("labels") or {}
    annotations: Object = metadata.get("annotations") or {}
    wrong = [
        ("metadata.name", name, is_name(name.replace(":", "").lower())),
        *(("metadata.labels", key, is_label_key(key)) for key in labels),
        *(("metadata.labels", value, is_label_value(value)) for value in labels.values()),
        *(("metadata.annotations", key, is_label_key(key.lower())) for key in annotations),
    ]
    problems = [
        invalid(where, value, "its syntax is wrong")
        for where, value, is_right in wrong
        if not is_right
    ]
    if (
        sum(len(key) + len(value.encode()) for key, value in annotations.items())
        > _ANNOTATIONS_LIMIT
    ):
        text = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        problems.append(FieldProblem("metadata.annotations", "FieldValueTooLong", text))
    return problems


def _change_problems(old: Object, new: Object) -> list[FieldProblem]:
    return [
        invalid(f"metadata.{name}", new.get(name), "field is immutable")
        for name in ("namespace", *_KEPT_ON_UPDATE)
        if new.get(name) != old.get(name)
    ]


def _same(old: Object, new: Object) -> bool:
    return new.keys() == old.keys() and all(
        value is old[key] or value == old[key] for key, value in new.items()
    )


def _desired_changed(kind: Kind, old: Object, new: Object) -> bool:
    skipped = {"metadata", "status"} if kind.has_status else {"metadata"}
    return any(old.get(key) != new.get(key) for key in (old.keys() | new.keys()) - skipped)
