"""The review APIs: may I, what may I, who am I, is this token good.

Answered by the HTTP layer; nothing is stored.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.calls import Caller
from hack.sim.cluster.http.addresses import Address
from hack.sim.cluster.http.authentication import Authenticator
from hack.sim.cluster.http.authorization import Authorizer
from hack.sim.cluster.statuses import bad_request
from hack.sim.cluster.store.kinds import Object

REVIEWS = {
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
}


class Reviews:
    """Answers reviews; `authorizer` is None while everything is allowed."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer | None) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer

    def answer(self, address: Address, caller: Caller, body: Any) -> Object:
        """The review with its status filled in."""
        if not isinstance(body, dict):
            raise bad_request("the body is no review")
        spec = body.get("spec") or {}
        if address.resource == "tokenreviews":
            status = self._token_status(spec)
        elif address.resource == "selfsubjectreviews":
            status = {"userInfo": _user_info(caller)}
        elif address.resource == "selfsubjectrulesreviews":
            status = self._rules_status(caller, spec.get("namespace") or "default")
        else:
            subject = caller
            if address.resource == "subjectaccessreviews":
                subject = Caller(spec.get("user") or "", tuple(spec.get("groups") or ()))
            status = self._access_status(subject, spec)
        return {**body, "metadata": {"creationTimestamp": None}, "status": status}

    def _token_status(self, spec: Object) -> Object:
        known = self._authenticator.known(spec.get("token") or "")
        if known is None:
            return {"authenticated": False, "user": {}, "error": "the token is not known"}
        return {"authenticated": True, "user": _user_info(known)}

    def _access_status(self, caller: Caller, spec: Object) -> Object:
        if self._authorizer is None:
            return {"allowed": True}
        wanted = spec.get("resourceAttributes")
        if wanted:
            address = Address(
                verb=wanted.get("verb") or "",
                path="",
                group=wanted.get("group") or "",
                resource=wanted.get("resource") or "*",
                subresource=wanted.get("subresource") or "",
                namespace=wanted.get("namespace") or "",
                name=wanted.get("name") or "",
            )
        else:
            path = spec.get("nonResourceAttributes") or {}
            address = Address(verb=path.get("verb") or "", path=path.get("path") or "")
        return {"allowed": self._authorizer.allowed(caller, address)}

    def _rules_status(self, caller: Caller, namespace: str) -> Object:
        everything: Object = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        if self._authorizer is None:
            return {"resourceRules": [everything], "nonResourceRules": [], "incomplete": False}
        rules = [
            grant.rule
            for grant in self._authorizer.grants(caller)
            if grant.namespace in {None, namespace}
        ]
        return {
            "resourceRules": [one for one in rules if one.get("resources")],
            "nonResourceRules": [one for one in rules if one.get("nonResourceURLs")],
            "incomplete": False,
        }


def _user_info(caller: Caller) -> Object:
    info: Object = {"username": caller.name, "groups": list(caller.groups)}
    if caller.uid:
        info["uid"] = caller.uid
    if caller.extra:
        info["extra"] = {key: list(values) for key, values in caller.extra.items()}
    return info
