"""The heart of the server: what happens to objects, whoever asks and by whatever transport.

`ObjectApi` reads, creates, updates and patches; deletion and eviction build on it.  Each call is
synchronous and therefore atomic; it returns what is stored or raises `ApiError`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import WriteOptions
from hack.sim.cluster.clients.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.statuses import (
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    unprocessable,
    unsupported_media,
    wrong_name,
)
from hack.sim.cluster.store.bodies import decode_body, decode_patched
from hack.sim.cluster.store.kinds import Kind, Registry
from hack.sim.cluster.store.managed_fields import update_managed_fields
from hack.sim.cluster.store.patching import json_patch, merge_patch
from hack.sim.cluster.store.store import Collection, Key, Object, Store, Stored
from hack.sim.cluster.store.strategic import strategic_merge
from hack.sim.cluster.store.timestamps import rfc3339
from hack.sim.cluster.validation.event_shapes import to_new
from hack.sim.cluster.validation.names import metadata_change_problems, metadata_problems
from hack.sim.cluster.validation.strategies import Strategies

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
    "selfLink",
    "managedFields",
    "generation",
)


class ObjectApi:
    """Reads and writes of objects of every kind."""

    def __init__(self, store: Store, registry: Registry, clock: Callable[[], float]) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.strategies = Strategies(self)

    def collection(self, kind: Kind) -> Collection:
        """Where the kind's objects are."""
        return self.store.collection(
            kind.store_name, {name: kind.fields[name] for name in kind.indexed}
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

    def peek(self, resource: r.Resource, name: str, namespace: str = "") -> Object | None:
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
        problems = metadata_problems(resource, metadata)
        problems += kind.schema.problems(obj)
        problems += self.strategies.problems(kind, obj, None)
        if problems:
            raise unprocessable(resource, metadata.get("name") or "", problems)
        key = self.key(kind, metadata["name"], metadata.get("namespace"))
        collection = self.collection(kind)
        if key in collection.objects:
            raise already_exists(resource, metadata["name"])
        if options.dry_run:
            return Stored(obj, self.store.revision)
        stored = self.store.put(collection, key, obj)
        self.strategies.created(kind, stored.obj)
        return collection.objects.get(key, stored)

    def complete_new(
        self, kind: Kind, body: Object, options: WriteOptions, namespace: str | None = None
    ) -> Object:
        """A new object as admission and defaults leave it, before validation."""
        obj, metadata = decode_body(kind, body, namespace, options)
        if metadata.get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generated(metadata["generateName"])
        self._check_namespace(kind, metadata)
        if kind.custom:
            self._check_definition(kind)
        for field in _NEVER_ON_CREATE:
            metadata.pop(field, None)
        now = rfc3339(self.clock())
        metadata["uid"] = str(uuid.UUID(int=random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = now
        if kind.generation:
            metadata["generation"] = 1
        if kind.has_status and not kind.status_on_create:
            obj.pop("status", None)
            if not kind.custom:
                obj["status"] = {}
        self.strategies.prepare_create(kind, obj)
        metadata["managedFields"] = update_managed_fields(
            None,
            obj,
            manager=options.manager,
            subresource="",
            api_version=kind.resource.api_version,
            at=now,
            custom=kind.custom,
        )
        return obj

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
        obj, metadata = decode_body(kind, body, namespace, options)
        if not metadata.get("name"):
            raise bad_request("name must be provided")
        if metadata["name"] != name:
            raise wrong_name(metadata["name"], name)
        old = self.collection(kind).objects.get(self.key(kind, name, namespace))
        if old is None:
            if kind.create_on_update and not subresource:
                return self.create(kind, obj, namespace, options)
            raise not_found(resource, name)
        version = metadata.get("resourceVersion") or ""
        uid = metadata.get("uid")
        if uid and uid != old.obj["metadata"]["uid"]:
            raise conflict(
                resource,
                name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                f"{old.obj['metadata']['uid']}",
            )
        if not version and not kind.unconditional_update:
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
        accepted = [JSON_PATCH, MERGE_PATCH] + ([] if kind.custom else [STRATEGIC_MERGE_PATCH])
        if content_type not in accepted:
            raise unsupported_media(accepted)
        old = self.get(kind, name, namespace)
        base = to_new(old.obj) if kind.respelled else old.obj
        if content_type == JSON_PATCH:
            patched = json_patch(base, patch)
        elif not isinstance(patch, dict):
            raise bad_request("error decoding patch: a merge patch of an object is an object")
        elif content_type == MERGE_PATCH:
            patched = merge_patch(base, patch)
        else:
            patched = strategic_merge(base, patch, service=kind.resource == r.SERVICES)
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise bad_request("the patched object has no metadata")
        if patched["metadata"].get("name") != name:
            raise wrong_name(str(patched["metadata"].get("name")), name)
        obj, _ = decode_patched(kind, patched, namespace, options, old.obj)
        return self.replace(kind, old, obj, options, subresource)

    def replace(
        self, kind: Kind, old: Stored, obj: Object, options: WriteOptions, subresource: str = ""
    ) -> Stored:
        """Store `obj` (completed, not yet checked) as the next revision of `old`."""
        resource = kind.resource
        before, after = old.obj["metadata"], obj["metadata"]
        name = before["name"]
        version = after.get("resourceVersion") or str(old.revision)
        if not version.isdigit():
            raise bad_request(f'resourceVersion: Invalid value: "{version}"')
        if int(version) != old.revision:
            raise conflict(resource, name)
        for field in _KEPT_ON_UPDATE:
            if not after.get(field) and before.get(field) is not None:
                after[field] = before[field]
        if before.get("generation") is not None:
            after["generation"] = before["generation"]
        after["managedFields"] = before.get("managedFields") or []
        after["resourceVersion"] = before["resourceVersion"]
        obj = self._isolate(kind, old.obj, obj, subresource)
        after = obj["metadata"]
        self.strategies.prepare_update(kind, old.obj, obj, subresource)
        if self._same(old.obj, obj):
            return old
        if kind.generation and self._desired_changed(kind, old.obj, obj):
            after["generation"] = int(before.get("generation") or 0) + 1
        problems = metadata_problems(resource, after)
        problems += metadata_change_problems(before, after)
        problems += kind.schema.problems(obj, old.obj)
        problems += self.strategies.problems(kind, obj, old.obj)
        if problems:
            raise unprocessable(resource, name, problems)
        after["managedFields"] = update_managed_fields(
            old.obj,
            obj,
            manager=options.manager,
            subresource=subresource,
            api_version=resource.api_version,
            at=rfc3339(self.clock()),
            custom=kind.custom,
        )
        if options.dry_run:
            return Stored(obj, old.revision)
        collection = self.collection(kind)
        key = self.key(kind, name, before.get("namespace"))
        finished = (
            after.get("deletionTimestamp")
            and not after.get("finalizers")
            and not before.get("deletionGracePeriodSeconds")
            and not self.strategies.holds(kind, obj)
        )
        if finished:
            collection.objects[key] = Stored(obj, old.revision)
            removed = self.store.remove(collection, key)
            self.strategies.removed(kind, removed.obj)
            return removed
        stored = self.store.put(collection, key, obj)
        self.strategies.updated(kind, stored.obj)
        return collection.objects.get(key, stored)

    def put(self, kind: Kind, old: Stored, obj: Object) -> Stored:
        """Store the server's own change of an object, unchecked."""
        metadata = obj["metadata"]
        key = self.key(kind, metadata["name"], metadata.get("namespace"))
        return self.store.put(self.collection(kind), key, obj)

    def _generated(self, prefix: str) -> str:
        suffix = "".join(random.choice(_SUFFIX_LETTERS) for _ in range(5))
        return prefix[:58] + suffix

    def _check_namespace(self, kind: Kind, metadata: Object) -> None:
        if not kind.resource.namespaced:
            return
        name = metadata.get("namespace") or ""
        if not name:
            raise bad_request("an empty namespace may not be set during creation")
        namespace = self.peek(r.NAMESPACES, name)
        if namespace is None:
            raise not_found(r.NAMESPACES, name)
        if namespace["metadata"].get("deletionTimestamp"):
            raise forbidden(
                kind.resource,
                metadata.get("name") or "",
                f"unable to create new content in namespace {name} because it is being terminated",
                [namespace_terminating(name)],
            )

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

    def _check_definition(self, kind: Kind) -> None:
        definition = self.peek(r.CUSTOM_RESOURCE_DEFINITIONS, kind.resource.group_resource)
        if definition is not None and definition["metadata"].get("deletionTimestamp"):
            raise ApiError(
                405,
                "MethodNotAllowed",
                "create not allowed while custom resource definition is terminating",
            )

    @staticmethod
    def _same(old: Object, new: Object) -> bool:
        return new.keys() == old.keys() and all(
            value is old[key] or value == old[key] for key, value in new.items()
        )

    @staticmethod
    def _desired_changed(kind: Kind, old: Object, new: Object) -> bool:
        skipped = {"metadata", "status"} if kind.has_status else {"metadata"}
        keys = (old.keys() | new.keys()) - skipped
        return any(old.get(key) != new.get(key) for key in keys)


def namespace_terminating(name: str) -> dict[str, str]:
    """The cause by which clients recognise a namespace on its way out."""
    return {
        "reason": "NamespaceTerminating",
        "message": f"namespace {name} is being terminated",
        "field": "metadata.namespace",
    }
