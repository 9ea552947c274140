"""Objects of repair providers in the virtual cluster, held to the schemas of their definitions."""

from __future__ import annotations

import json
from typing import Any

from hack.sim.cluster.store.schema import StructuralSchema
from rules.api.repair_writes import ObjectAddress, Verb, WriteRepairObject
from rules.api.requests import MERGE_PATCH, Request
from rules.repair.objects import Sight
from tests.support.cluster.provider_definitions import DEFINITIONS, schema_of
from tests.support.scenario.session_cluster import Cluster

VERSIONS = {d["spec"]["group"]: d["spec"]["versions"][0]["name"] for d in DEFINITIONS}


class ProviderObjects(Cluster):
    """Holds them by path; strict about UID, version and schema."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, dict[str, Any]] = {}
        self.unserved: set[str] = set()
        """API groups that are not installed."""
        self.undefined: set[str] = set()
        """Resources of ours whose definition is gone."""
        self.unreadable: dict[str, Sight] = {}
        """Resources whose reading fails, and how."""
        self.rejected: list[str] = []
        """What the schemas said of writes."""

    def put(
        self, api_version: str, resource: str, name: str, namespace: str = "", **body: Any
    ) -> dict[str, Any]:
        """Somebody else's object."""
        at = ObjectAddress(
            api_version=api_version, resource=resource, namespace=namespace, name=name
        )
        meta = self._meta(name, **body.pop("metadata", {}))
        if namespace:
            meta["namespace"] = namespace
        made = {"apiVersion": api_version, "metadata": meta, **body}
        self.objects[at.path] = made
        return made

    def held(self, resource: str) -> list[dict[str, Any]]:
        """All objects of a resource."""
        return [o for path, o in self.objects.items() if f"/{resource}/" in path]

    def write_object(self, write: WriteRepairObject, wire: Request) -> int:
        """The API server's answer to a request for a repair or its end."""
        at = write.address
        group = at.api_version.rpartition("/")[0]
        if group in self.unserved:
            return 404
        assert "*" not in at.api_version, "a write names its version"
        body = json.loads(json.dumps(wire.body))
        if at.resource == "nodes":
            return self._patch_object(self.nodes.get(at.name), body, wire)
        match write.verb:
            case Verb.CREATE:
                assert wire.method == "POST"
                if at.path in self.objects:
                    return 409
                return self._store(at, body)
            case Verb.PATCH:
                return self._patch_object(self.objects.get(at.path), body, wire)
            case Verb.DELETE:
                return self._delete_object(at.path, body)

    def _store(self, at: ObjectAddress, body: dict[str, Any]) -> int:
        kind, schema = schema_of(at.api_version.rpartition("/")[0], at.resource)
        assert (body["kind"], body["apiVersion"]) == (kind, at.api_version)
        assert (body["metadata"]["name"], body["metadata"].get("namespace", "")) == (
            at.name,
            at.namespace,
        )
        structural = StructuralSchema(schema)
        complete, pruned = structural.complete(body)
        self.rejected += pruned
        if problems := structural.problems(complete):
            self.rejected += [str(problem) for problem in problems]
            return 422
        assert not pruned, f"{kind} has no {pruned}"
        complete["metadata"] = {**body["metadata"], **self._meta(at.name)}
        if at.namespace:
            complete["metadata"]["namespace"] = at.namespace
        self.objects[at.path] = complete
        return 201

    def _patch_object(
        self, item: dict[str, Any] | None, body: dict[str, Any], wire: Request
    ) -> int:
        if item is None:
            return 404
        assert wire.content_type == MERGE_PATCH
        for field in ("uid", "resourceVersion"):
            wanted = body["metadata"].pop(field, None)
            if wanted is not None and wanted != item["metadata"][field]:
                return 409
        merge(item, body)
        self.touch(item)
        return 200

    def _delete_object(self, path: str, body: dict[str, Any]) -> int:
        item = self.objects.get(path)
        if item is None:
            return 404
        for field, wanted in body["preconditions"].items():
            if item["metadata"][field] != wanted:
                return 409
        if item["metadata"].get("finalizers"):
            item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.touch(item)
        else:
            del self.objects[path]
        return 200


def merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """A JSON merge patch, in place."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
