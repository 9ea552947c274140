"""Just enough OpenAPI v3 for kubectl: which kinds take `fieldValidation`, custom schemas.

Answered by the HTTP layer.  kubectl asks before `create` and `apply` whether the server checks
fields itself, and `explain` reads the schemas of custom kinds; built-in kinds carry none here.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.store.kinds import Kind, Registry
from hack.sim.cluster.validation.structural import StructuralSchema

_ROOT = "/openapi/v3"


def openapi_document(registry: Registry, path: str) -> dict[str, Any] | None:
    """The document at a path below /openapi, None where there is none."""
    if path == _ROOT:
        found = {}
        for group, versions in registry.groups().items():
            for version in versions:
                name = f"apis/{group}/{version}" if group else f"api/{version}"
                found[name] = {"serverRelativeURL": f"{_ROOT}/{name}?hash=simulated"}
        return {"paths": found}
    parts = path.removeprefix(_ROOT).strip("/").split("/")
    if parts[0] == "api" and len(parts) == 2:
        group, version = "", parts[1]
    elif parts[0] == "apis" and len(parts) == 3:
        group, version = parts[1], parts[2]
    else:
        return None
    kinds = [
        kind
        for kind in registry.all()
        if (kind.resource.group, kind.resource.version) == (group, version)
    ]
    return _document(kinds) if kinds else None


def _document(kinds: list[Kind]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    for kind in kinds:
        resource = kind.resource
        type_ = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        path = resource.path("{name}", "{namespace}")
        operation = {"parameters": parameters, "x-kubernetes-group-version-kind": type_}
        read = {"parameters": [], "x-kubernetes-group-version-kind": type_}
        paths[path] = {
            "get": read,
            "patch": {**operation, "x-kubernetes-action": "patch"},
            "put": operation,
        }
        paths[resource.path(namespace="{namespace}")] = {"get": read, "post": operation}
        if isinstance(kind.schema, StructuralSchema):
            name = ".".join(
                [*reversed(resource.group.split(".")), resource.version, resource.kind]
            )
            schemas[name] = {**kind.schema.source, "x-kubernetes-group-version-kind": [type_]}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes (simulated)", "version": "v1.36.2"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
