"""Who is asking, and what they may do: bearer tokens, RBAC, and the reviews that ask for both."""

import base64
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.errors import ApiError, forbidden, not_found
from hack.sim.cluster.resource import ADMIN, Address, Caller, Resource
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.store.store import encode
from hack.sim.cluster.store.tables import rfc3339

ANONYMOUS = Caller("system:anonymous", ("system:unauthenticated",))
"""Who asks without credentials: known to the server, and allowed next to nothing."""
REVIEWS = {
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
}
_LIFETIME_S = 3600
_RBAC = (r.ROLES, r.ROLE_BINDINGS, r.CLUSTER_ROLES, r.CLUSTER_ROLE_BINDINGS)
_BASIC_RULES: tuple[Object, ...] = (
    {
        "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectreviews"],
        "verbs": ["create"],
    },
    {
        "nonResourceURLs": [
            "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/readyz", "/version",
            "/openapi", "/openapi/*",
        ],
        "verbs": ["get"],
    },
)  # fmt: skip
"""What every authenticated user may do on a real cluster (basic-user and discovery)."""


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


class Authenticator:
    """Knows every token of one server: static ones, and those it issued itself."""

    def __init__(
        self, engine: Engine, tokens: Mapping[str, Caller] | None, clock: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._open = tokens is None
        self._static = dict(tokens or {})
        self._issued: dict[str, tuple[Caller, float]] = {}
        self._clock = clock

    def authenticate(self, authorization: str | None) -> Caller:
        """The user behind an Authorization header, 401 for a bad one; nobody without one."""
        if not authorization or not authorization.startswith("Bearer "):
            return ADMIN if self._open else ANONYMOUS
        token = authorization.removeprefix("Bearer ").strip()
        issued, ends = self._issued.get(token, (None, 0.0))
        known = self._static.get(token) or (issued if ends > self._clock() else None)
        if known is None:
            raise unauthorized()
        return known

    def add(self, token: str, caller: Caller) -> None:
        """Accept a static token from now on."""
        self._static[token] = caller

    def issue(self, namespace: str, name: str, body: Any) -> Object:
        """Answer a TokenRequest for a service account."""
        if self._engine.objects.peek(r.SERVICE_ACCOUNTS, name, namespace) is None:
            raise not_found(r.SERVICE_ACCOUNTS, name)
        spec = dict((body if isinstance(body, dict) else {}).get("spec") or {})
        ends = self._clock() + int(spec.get("expirationSeconds") or _LIFETIME_S)
        caller = service_account(namespace, name)
        token = _token(caller, ends)
        self._issued[token] = (caller, ends)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": rfc3339(ends)},
        }


def service_account(namespace: str, name: str) -> Caller:
    """A service account as a user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    user = f"system:serviceaccount:{namespace}:{name}"
    return Caller(user, (*groups, "system:authenticated"))


def impersonated(name: str, groups: Sequence[str]) -> Caller:
    """The user that a caller wants to be for one request (`kubectl --as`)."""
    parts = name.split(":")
    if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"] and not groups:
        return service_account(parts[2], parts[3])
    return Caller(name, (*groups, "system:authenticated"))


def _token(caller: Caller, ends: float) -> str:
    """A token in the shape of the real ones, so that clients may look inside."""
    parts = (
        encode({"alg": "none", "typ": "JWT"}),
        encode({"sub": caller.name, "exp": int(ends), "jti": secrets.token_hex(8)}),
        secrets.token_bytes(24),
    )
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


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
            for grant in self._of(caller)
            if grant.namespace is None
            or (address.is_resource and grant.namespace == address.namespace)
        )

    def check(self, caller: Caller, address: Address) -> None:
        """403 with the server's text when the user may not do it."""
        if self.allowed(caller, address):
            return
        may_not = f'User "{caller.name}" cannot {address.verb}'
        if not address.is_resource:
            raise ApiError(403, "Forbidden", f'forbidden: {may_not} path "{address.path}"')
        place = f'in the namespace "{address.namespace}"'
        where = place if address.namespace else "at the cluster scope"
        resource = Resource(
            address.group, address.version, address.resource, bool(address.namespace), ""
        )
        why = f'{may_not} resource "{address.what}" in API group "{address.group}" {where}'
        raise forbidden(resource, address.name, why)

    def _of(self, caller: Caller) -> list[Grant]:
        collections = [self._engine.store.collection(one.group_resource) for one in _RBAC]
        seen = tuple(one.last_revision for one in collections)
        if seen != self._seen:
            self._seen = seen
            self._grants.clear()
        key = (caller.name, caller.groups)
        if key not in self._grants:
            self._grants[key] = list(self._resolve(caller))
        return self._grants[key]

    def _resolve(self, caller: Caller) -> Iterator[Grant]:
        if "system:authenticated" in caller.groups:
            yield from (Grant(None, rule) for rule in _BASIC_RULES)
        for resource in (r.CLUSTER_ROLE_BINDINGS, r.ROLE_BINDINGS):
            collection = self._engine.store.collection(resource.group_resource)
            for (namespace, _), stored in collection.objects.items():
                binding = stored.obj
                if any(_is(one, caller, namespace) for one in binding.get("subjects") or []):
                    for rule in self._rules(binding.get("roleRef") or {}, namespace):
                        yield Grant(namespace or None, rule)

    def _rules(self, ref: Object, namespace: str) -> list[Object]:
        everywhere = ref.get("kind") == "ClusterRole"
        resource = r.CLUSTER_ROLES if everywhere else r.ROLES
        where = "" if everywhere else namespace
        role = self._engine.objects.peek(resource, ref.get("name", ""), where)
        return (role or {}).get("rules") or []


def _is(subject: Object, caller: Caller, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "Group":
        return name in caller.groups
    if kind == "ServiceAccount":
        where = subject.get("namespace") or namespace
        return caller.name == f"system:serviceaccount:{where}:{name}"
    return kind == "User" and bool(name == caller.name)


def _covers(rule: Object, address: Address) -> bool:
    verbs = rule.get("verbs") or []
    if "*" not in verbs and address.verb not in verbs:
        return False
    if not address.is_resource:
        return any(
            path in {"*", address.path}
            or (path.endswith("*") and address.path.startswith(path[:-1]))
            for path in rule.get("nonResourceURLs") or []
        )
    groups = rule.get("apiGroups") or []
    resources = rule.get("resources") or []
    any_of = {"*", address.what, f"*/{address.subresource}" if address.subresource else "*"}
    if not {"*", address.group} & set(groups) or not any_of & set(resources):
        return False
    names = rule.get("resourceNames") or []
    return not names or (bool(address.name) and address.name in names)


def review(
    address: Address, caller: Caller, body: Object, authorizer: Authorizer | None
) -> Object:
    """The review with its status filled in; without an authorizer everything is allowed."""
    spec = body.get("spec") or {}
    if address.resource == "selfsubjectreviews":
        user = {"username": caller.name, "groups": list(caller.groups)}
        return {**body, "status": {"userInfo": user}}
    if address.resource == "subjectaccessreviews":
        caller = Caller(spec.get("user") or "", tuple(spec.get("groups") or ()))
    wanted = spec.get("resourceAttributes")
    if wanted:
        names = ("verb", "group", "resource", "subresource", "namespace", "name")
        asked = Address(path="", **{name: wanted.get(name) or "" for name in names})
    else:
        path = spec.get("nonResourceAttributes") or {}
        asked = Address(verb=path.get("verb") or "", path=path.get("path") or "")
    allowed = authorizer is None or authorizer.allowed(caller, asked)
    return {**body, "status": {"allowed": allowed}}
