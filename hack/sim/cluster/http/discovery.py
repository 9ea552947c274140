"""How clients find out what is served: API groups, resources, the version, health.

Answered by the HTTP layer for everything that is not a resource.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.store.kinds import Kind, Registry

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-06-01T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_REVIEWS = {
    "authentication.k8s.io": (
        ("tokenreviews", "TokenReview"),
        ("selfsubjectreviews", "SelfSubjectReview"),
    ),
    "authorization.k8s.io": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
    ),
}
_SUBRESOURCE_KINDS = {
    "eviction": ("policy", "v1", "Eviction"),
    "binding": ("", "", "Binding"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_READ_PATCH = ["get", "patch", "update"]
HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})


def discover(registry: Registry, path: str, address: str) -> dict[str, Any] | None:
    """The document at a discovery path, None where there is none."""
    parts = path.strip("/").split("/")
    if path == "/version":
        return VERSION
    if parts == ["api"]:
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }
    groups = registry.groups()
    if parts == ["apis"]:
        names = [name for name in groups if name] + list(_REVIEWS)
        found = [_group(name, groups.get(name, ["v1"])) for name in names]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
    if len(parts) == 2 and parts[0] == "apis":
        name = parts[1]
        versions = ["v1"] if name in _REVIEWS else groups.get(name)
        if not versions:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}
    if parts[0] == "api" and len(parts) == 2:
        return _resources(registry, "", parts[1])
    if parts[0] == "apis" and len(parts) == 3:
        return _resources(registry, parts[1], parts[2])
    if parts == [""]:
        return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/readyz", "/version"]}
    return None


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(registry: Registry, group: str, version: str) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = []
    for kind in registry.all():
        if kind.resource.group == group and kind.resource.version == version:
            found += _entries(kind)
    if version == "v1":
        found += [
            {
                "name": name,
                "singularName": kind_name.lower(),
                "namespaced": False,
                "kind": kind_name,
                "verbs": ["create"],
            }
            for name, kind_name in _REVIEWS.get(group, ())
        ]
    if not found:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": found,
    }


def _entries(kind: Kind) -> list[dict[str, Any]]:
    resource = kind.resource
    main: dict[str, Any] = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    entries = [main]
    for subresource in kind.subresources:
        group, version, name = _SUBRESOURCE_KINDS.get(subresource, ("", "", resource.kind))
        entry = {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": name,
            "verbs": ["create"] if subresource in _SUBRESOURCE_KINDS else _READ_PATCH,
        }
        if version:
            entry |= {"group": group, "version": version}
        entries.append(entry)
    return entries
