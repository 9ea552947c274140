"""Who is asking: bearer tokens, static ones and those that the server issued itself.

Called by the HTTP layer for every request when tokens are configured.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import ADMIN, Caller
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.statuses import (
    bad_request,
    conflict,
    invalid,
    not_found,
    unprocessable,
)
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.store.store import encode
from hack.sim.cluster.store.timestamps import rfc3339

DEFAULT_LIFETIME_S = 3600
_CLAIM = "authentication.kubernetes.io/"
_SHORTEST_S = 600
ANONYMOUS = Caller("system:anonymous", ("system:unauthenticated",))
"""Who asks without credentials: known to the server, and allowed next to nothing."""


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


class Authenticator:
    """Knows every token of one server."""

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
        if authorization and authorization.startswith("Bearer "):
            token = authorization.removeprefix("Bearer ").strip()
            known = self.known(token)
            if known is not None:
                return known
            raise unauthorized()
        return ADMIN if self._open else ANONYMOUS

    def known(self, token: str) -> Caller | None:
        """The user of a token that is valid now."""
        if token in self._static:
            return self._static[token]
        issued = self._issued.get(token)
        if issued is None or issued[1] <= self._clock():
            return None
        return issued[0]

    def add(self, token: str, caller: Caller) -> None:
        """Accept a static token from now on."""
        self._static[token] = caller

    def revoke(self, token: str) -> None:
        """Accept a token no longer (a rotation, seen from the client)."""
        self._static.pop(token, None)
        self._issued.pop(token, None)

    def issue(self, namespace: str, name: str, body: Any) -> Object:
        """Answer a TokenRequest for a service account."""
        account = self._engine.objects.peek(r.SERVICE_ACCOUNTS, name, namespace)
        if account is None:
            raise not_found(r.SERVICE_ACCOUNTS, name)
        spec = dict((body if isinstance(body, dict) else {}).get("spec") or {})
        lifetime = int(spec.get("expirationSeconds") or DEFAULT_LIFETIME_S)
        if lifetime < _SHORTEST_S:
            raise unprocessable(
                r.Resource("authentication.k8s.io", "v1", "", True, "TokenRequest"),
                "",
                [
                    invalid(
                        "spec.expirationSeconds",
                        lifetime,
                        "may not specify a duration less than 10 minutes",
                    )
                ],
            )
        ends = self._clock() + lifetime
        credential = "JTI=" + secrets.token_hex(16)
        extra: dict[str, tuple[str, ...]] = {f"{_CLAIM}credential-id": (credential,)}
        extra |= self._bound(namespace, name, spec.get("boundObjectRef"))
        caller = service_account(namespace, name, account["metadata"]["uid"], extra)
        token = _token(caller, ends)
        self._issued[token] = (caller, ends)
        spec.setdefault("expirationSeconds", lifetime)
        spec.setdefault("audiences", ["https://kubernetes.default.svc"])
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": rfc3339(ends)},
        }

    def _bound(
        self, namespace: str, account: str, ref: Object | None
    ) -> dict[str, tuple[str, ...]]:
        """The claims of a token bound to a pod: the pod and the node it runs on."""
        if not ref or ref.get("kind") != "Pod":
            return {}
        name = str(ref.get("name"))
        pod = self._engine.objects.peek(r.PODS, name, namespace)
        if pod is None:
            raise not_found(r.PODS, name)
        if pod["spec"].get("serviceAccountName") != account:
            raise bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with different '
                "serviceaccount name."
            )
        uid = pod["metadata"]["uid"]
        if ref.get("uid") and ref["uid"] != uid:
            raise conflict(
                r.PODS,
                name,
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID in "
                f"record. The object might have been deleted and then recreated",
            )
        claims: dict[str, tuple[str, ...]] = {
            f"{_CLAIM}pod-name": (name,),
            f"{_CLAIM}pod-uid": (uid,),
        }
        node = (pod.get("spec") or {}).get("nodeName")
        if node:
            claims[f"{_CLAIM}node-name"] = (node,)
            found = self._engine.objects.peek(r.NODES, node)
            if found is not None:
                claims[f"{_CLAIM}node-uid"] = (found["metadata"]["uid"],)
        return claims


def service_account(
    namespace: str, name: str, uid: str = "", extra: dict[str, tuple[str, ...]] | None = None
) -> Caller:
    """A service account as a user."""
    return Caller(
        f"system:serviceaccount:{namespace}:{name}",
        (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ),
        uid,
        extra or {},
    )


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
