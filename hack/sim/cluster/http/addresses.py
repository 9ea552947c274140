"""Reads a URL as Kubernetes does: which verb on which resource, where.

Used by the HTTP layer for routing, authorization and the request log.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What a request is about."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def what(self) -> str:
        """Resource and subresource as RBAC names them."""
        return self.resource + (f"/{self.subresource}" if self.subresource else "")

    @property
    def is_resource(self) -> bool:
        """Whether it names objects rather than a path such as /version."""
        return bool(self.resource)


def read_address(method: str, path: str, *, watch: bool) -> Address:
    """The address behind an HTTP method and path."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    plain = Address(verb=method.lower(), path=path)
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return plain
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    verb = _VERBS.get(method, "get")
    if verb == "get" and not name:
        verb = "watch" if watch else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return Address(
        verb=verb,
        path=path,
        group=group,
        version=version,
        resource=rest[0],
        subresource=subresource,
        namespace=namespace,
        name=name,
    )
