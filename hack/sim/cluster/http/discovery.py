"""How clients find out what is served: API groups, resources, schemas, the version, health."""

from typing import Any

from hack.sim.cluster.store.kinds import Kind, Registry
from hack.sim.cluster.store.schema import StructuralSchema

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-06-01T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}
HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
_READ_WRITE = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_POSTED = {
    "eviction": ("policy", "v1", "Eviction"),
    "binding": ("", "", "Binding"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_REVIEWS = {
    "authentication.k8s.io": ("SelfSubjectReview",),
    "authorization.k8s.io": ("SelfSubjectAccessReview", "SubjectAccessReview"),
}
"""Kinds that are answered and never stored, by their group; all of version v1."""
_OPENAPI = "/openapi/v3"


def discover(registry: Registry, path: str, address: str) -> dict[str, Any] | None:
    """The document at a path that names no objects, None where there is none."""
    parts = path.strip("/").split("/")
    groups = {**registry.groups(), **{name: ["v1"] for name in _REVIEWS}}
    match parts:
        case ["version"]:
            return VERSION
        case ["api"]:
            reach = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": reach,
            }
        case ["apis"]:
            found = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
        case ["apis", name] if name in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, groups[name])}
        case ["api", version]:
            return _resources(registry, "", version)
        case ["apis", name, version] if version in groups.get(name, ()):
            return _resources(registry, name, version)
        case ["openapi", "v3"]:
            names = [
                f"apis/{group}/{version}" if group else f"api/{version}"
                for group, versions in registry.groups().items()
                for version in versions
            ]
            urls = {name: {"serverRelativeURL": f"{_OPENAPI}/{name}?hash=x"} for name in names}
            return {"paths": urls}
        case ["openapi", "v3", "api", version]:
            return _openapi(registry, "", version)
        case ["openapi", "v3", "apis", name, version]:
            return _openapi(registry, name, version)
    return None


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _kinds(registry: Registry, group: str, version: str) -> list[Kind]:
    wanted = (group, version)
    return [one for one in registry.all() if (one.resource.group, one.resource.version) == wanted]


def _resources(registry: Registry, group: str, version: str) -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            *(entry for kind in _kinds(registry, group, version) for entry in _entries(kind)),
            *(_review(kind) for kind in _REVIEWS.get(group, ())),
        ],
    }


def _review(kind: str) -> dict[str, Any]:
    names = {"name": f"{kind.lower()}s", "singularName": kind.lower(), "kind": kind}
    return {**names, "namespaced": False, "verbs": ["create"]}


def _entries(kind: Kind) -> list[dict[str, Any]]:
    resource = kind.resource
    main = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _READ_WRITE,
        "shortNames": list(kind.short_names),
    }
    entries = [main]
    for subresource in kind.subresources:
        group, version, name = _POSTED.get(subresource, ("", "", resource.kind))
        entry = {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": name,
            "verbs": ["create"] if subresource in _POSTED else ["get", "patch", "update"],
        }
        entries.append(entry | ({"group": group, "version": version} if version else {}))
    return entries


def _openapi(registry: Registry, group: str, version: str) -> dict[str, Any] | None:
    """Just enough for kubectl: which kinds take `fieldValidation`, and custom schemas."""
    kinds = _kinds(registry, group, version)
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    for kind in kinds:
        resource = kind.resource
        type_ = {"group": group, "version": version, "kind": resource.kind}
        write = {"parameters": parameters, "x-kubernetes-group-version-kind": type_}
        read = {**write, "parameters": []}
        patch = {**write, "x-kubernetes-action": "patch"}
        paths[resource.path("{name}", "{namespace}")] = {"get": read, "patch": patch, "put": write}
        paths[resource.path(namespace="{namespace}")] = {"get": read, "post": write}
        if isinstance(kind.schema, StructuralSchema):
            name = ".".join([*reversed(group.split(".")), version, resource.kind])
            schemas[name] = {**kind.schema.source, "x-kubernetes-group-version-kind": [type_]}
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes (simulated)", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    return document if kinds else None
