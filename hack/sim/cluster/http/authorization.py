"""Who may do what: RBAC over the Roles and bindings that are stored.

Called by the HTTP layer before every request in RBAC mode, and by the access reviews.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import Caller
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.http.addresses import Address
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.statuses import forbidden
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.kinds import Object

_RBAC = (r.ROLES, r.ROLE_BINDINGS, r.CLUSTER_ROLES, r.CLUSTER_ROLE_BINDINGS)
_BASIC_PATHS = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/readyz",
    "/version",
    "/version/",
    "/openapi",
    "/openapi/*",
)
_BASIC_RULES: tuple[Object, ...] = (
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    },
    {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
        "verbs": ["create"],
    },
    {"nonResourceURLs": list(_BASIC_PATHS), "verbs": ["get"]},
)
"""What every authenticated user may do on a real cluster (basic-user and discovery)."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One rule that a user has, and where (None: everywhere)."""

    namespace: str | None
    rule: Object


class Authorizer:
    """Evaluates RBAC for one server; remembers each user's rules until RBAC objects change."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._grants: dict[tuple[str, tuple[str, ...]], list[Grant]] = {}
        self._seen: tuple[int, ...] = ()

    def allowed(self, caller: Caller, address: Address) -> bool:
        """Whether the user may do it."""
        if "system:masters" in caller.groups:
            return True
        return any(
            _covers(grant.rule, address)
            for grant in self.grants(caller)
            if grant.namespace is None
            or (address.is_resource and grant.namespace == address.namespace)
        )

    def check(self, caller: Caller, address: Address) -> None:
        """403 in the server's words when the user may not do it."""
        if self.allowed(caller, address):
            return
        if not address.is_resource:
            raise ApiError(
                403,
                "Forbidden",
                f'forbidden: User "{caller.name}" cannot {address.verb} path "{address.path}"',
            )
        what = address.resource + (f"/{address.subresource}" if address.subresource else "")
        where = (
            f'in the namespace "{address.namespace}"'
            if address.namespace
            else "at the cluster scope"
        )
        resource = Resource(
            address.group, address.version, address.resource, bool(address.namespace), ""
        )
        raise forbidden(
            resource,
            address.name,
            f'User "{caller.name}" cannot {address.verb} resource "{what}" in API group '
            f'"{address.group}" {where}',
        )

    def grants(self, caller: Caller) -> list[Grant]:
        """Every rule the user has."""
        seen = tuple(self._revisions())
        if seen != self._seen:
            self._seen = seen
            self._grants.clear()
        key = (caller.name, caller.groups)
        if key not in self._grants:
            self._grants[key] = list(self._resolve(caller))
        return self._grants[key]

    def _revisions(self) -> Iterator[int]:
        for resource in _RBAC:
            yield self._engine.store.collection(resource.group_resource).last_revision

    def _resolve(self, caller: Caller) -> Iterator[Grant]:
        if "system:authenticated" in caller.groups:
            for rule in _BASIC_RULES:
                yield Grant(None, rule)
        for resource in (r.CLUSTER_ROLE_BINDINGS, r.ROLE_BINDINGS):
            collection = self._engine.store.collection(resource.group_resource)
            for (namespace, _), stored in collection.objects.items():
                binding = stored.obj
                if any(_is(one, caller, namespace) for one in binding.get("subjects") or []):
                    for rule in self._rules(binding.get("roleRef") or {}, namespace):
                        yield Grant(namespace or None, rule)

    def _rules(self, ref: Object, namespace: str) -> list[Object]:
        name = ref.get("name", "")
        if ref.get("kind") == "ClusterRole":
            role = self._engine.objects.peek(r.CLUSTER_ROLES, name)
        else:
            role = self._engine.objects.peek(r.ROLES, name, namespace)
        return (role or {}).get("rules") or []


def _is(subject: Object, caller: Caller, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(name == caller.name)
    if kind == "Group":
        return name in caller.groups
    if kind == "ServiceAccount":
        where = subject.get("namespace") or namespace
        return caller.name == f"system:serviceaccount:{where}:{name}"
    return False


def _covers(rule: Object, address: Address) -> bool:
    verbs = rule.get("verbs") or []
    if "*" not in verbs and address.verb not in verbs:
        return False
    if not address.is_resource:
        return any(
            path == "*"
            or path == address.path
            or (path.endswith("*") and address.path.startswith(path[:-1]))
            for path in rule.get("nonResourceURLs") or []
        )
    groups = rule.get("apiGroups") or []
    if "*" not in groups and address.group not in groups:
        return False
    what = address.resource + (f"/{address.subresource}" if address.subresource else "")
    resources = rule.get("resources") or []
    if not (
        "*" in resources
        or what in resources
        or (address.subresource and f"*/{address.subresource}" in resources)
    ):
        return False
    names = rule.get("resourceNames") or []
    return not names or (bool(address.name) and address.name in names)
