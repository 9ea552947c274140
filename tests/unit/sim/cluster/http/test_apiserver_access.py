"""Tokens, RBAC, reviews and TLS over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.clients.client import MERGE_PATCH
from hack.sim.cluster.http.access import service_account
from hack.sim.cluster.resource import ADMIN, Caller
from tests.support.cluster.apiserver_support import (
    NAMESPACES,
    NODES,
    PODS,
    node,
    serving,
)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
TOKENS = {
    "admin": ADMIN,
    "eve": Caller("eve", ("system:authenticated", "team-a")),
    "agent": service_account("gpuward-system", "agent"),
}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def secured(**options):
    return serving(tokens=TOKENS, authorization="RBAC", **options)


async def grant(api, rules, subject, *, namespace=None, role_kind="ClusterRole"):
    headers = bearer("admin")
    where = f"/namespaces/{namespace}" if namespace else ""
    role_path = f"{RBAC}{where}/roles" if role_kind == "Role" else f"{RBAC}/clusterroles"
    await api("POST", role_path, {"metadata": {"name": "r"}, "rules": rules}, headers=headers)
    path = f"{RBAC}{where}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    body = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": "r"},
        "subjects": [subject],
    }
    answer = await api("POST", path, body, headers=headers)
    assert answer.code == 201, answer.body


@pytest.mark.parametrize("headers", [{}, bearer("stolen"), {"Authorization": "Basic eDp5"}])
async def test_without_a_known_token_everything_but_health_answers_401(headers):
    async with serving(tokens=TOKENS) as api:
        answer = await api("GET", NODES, headers=headers)
        assert (answer.code, answer.reason, answer.message) == (
            401,
            "Unauthorized",
            "Unauthorized",
        )
        assert (await api("GET", "/readyz", headers=headers)).code == 200
        assert (await api("GET", NODES, headers=bearer("eve"))).code == 200


ALL_NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}
EVE = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}
TEAM = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "team-a"}


@pytest.mark.parametrize(
    ("rule", "subject", "method", "path", "code"),
    [
        pytest.param(ALL_NODES, EVE, "GET", f"{NODES}/n1", 200, id="user"),
        pytest.param(ALL_NODES, TEAM, "GET", f"{NODES}/n1", 200, id="group"),
        pytest.param(ALL_NODES, EVE, "GET", NODES, 403, id="other-verb"),
        pytest.param(ALL_NODES, EVE, "PATCH", f"{NODES}/n1/status", 403, id="subresource"),
        pytest.param(
            {**ALL_NODES, "resources": ["nodes/status"]},
            EVE,
            "PATCH",
            f"{NODES}/n1/status",
            200,
            id="subresource-granted",
        ),
        pytest.param(
            {**ALL_NODES, "resources": ["nodes/status"]},
            EVE,
            "PATCH",
            f"{NODES}/n1",
            403,
            id="only-the-subresource",
        ),
        pytest.param(
            {**ALL_NODES, "resourceNames": ["n2"]}, EVE, "GET", f"{NODES}/n1", 403, id="other-name"
        ),
        pytest.param(
            {**ALL_NODES, "resourceNames": ["n1"]}, EVE, "GET", f"{NODES}/n1", 200, id="this-name"
        ),
        pytest.param(
            {**ALL_NODES, "apiGroups": ["apps"]}, EVE, "GET", f"{NODES}/n1", 403, id="other-group"
        ),
        pytest.param(
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            EVE,
            "GET",
            NODES,
            200,
            id="all",
        ),
        pytest.param(
            {"nonResourceURLs": ["/met*"], "verbs": ["get"]},
            EVE,
            "GET",
            "/metrics",
            404,
            id="path",
        ),
    ],
)
async def test_cluster_roles(rule, subject, method, path, code):
    async with secured() as api:
        await api("POST", NODES, node(), headers=bearer("admin"))
        await grant(api, [rule], subject)
        body: dict[str, Any] | None = {} if method == "PATCH" else None
        answer = await api(method, path, body, content_type=MERGE_PATCH, headers=bearer("eve"))
        assert answer.code == code


async def test_a_role_binding_reaches_its_namespace_only():
    async with secured() as api:
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
        account = {"kind": "ServiceAccount", "name": "agent", "namespace": "gpuward-system"}
        await grant(api, [rule], account, namespace="default", role_kind="Role")
        assert (await api("GET", PODS, headers=bearer("agent"))).code == 200
        elsewhere = PODS.replace("default", "kube-system")
        assert (await api("GET", elsewhere, headers=bearer("agent"))).code == 403
        assert (await api("GET", "/api/v1/pods", headers=bearer("agent"))).code == 403


async def issue(api, namespace, account, spec=None):
    headers = bearer("admin")
    await api("POST", NAMESPACES, {"metadata": {"name": namespace}}, headers=headers)
    path = f"{NAMESPACES}/{namespace}/serviceaccounts"
    await api("POST", path, {"metadata": {"name": account}}, headers=headers)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec or {}}
    return await api("POST", f"{path}/{account}/token", body, headers=headers)


async def test_tokens_of_service_accounts_work_until_they_expire():
    now = [1_700_000_000.0]
    async with secured(clock=lambda: now[0]) as api:
        answer = await issue(api, "default", "robot", {"expirationSeconds": 600})
        assert answer.code == 201
        assert answer.body["status"]["expirationTimestamp"] == "2023-11-14T22:23:20Z"
        token = answer.body["status"]["token"]
        review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        path = f"{AUTHENTICATION}/selfsubjectreviews"
        who = (await api("POST", path, review, headers=bearer(token))).body["status"]["userInfo"]
        assert who["username"] == "system:serviceaccount:default:robot"
        assert "system:serviceaccounts:default" in who["groups"]
        now[0] += 601
        assert (await api("POST", path, review, headers=bearer(token))).code == 401


@pytest.mark.parametrize(
    ("attributes", "allowed"),
    [
        ({"verb": "get", "resource": "nodes", "name": "n1"}, True),
        ({"verb": "delete", "resource": "nodes"}, False),
        ({"verb": "patch", "resource": "nodes", "subresource": "status"}, False),
    ],
)
async def test_may_i(attributes, allowed):
    async with secured() as api:
        await grant(api, [ALL_NODES], EVE)
        review = {"spec": {"resourceAttributes": attributes}}
        path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
        answer = await api("POST", path, review, headers=bearer("eve"))
        assert (answer.code, answer.body["status"]["allowed"]) == (201, allowed)
        about = {"spec": {"resourceAttributes": attributes, "user": "eve"}}
        path = f"{AUTHORIZATION}/subjectaccessreviews"
        answer = await api("POST", path, about, headers=bearer("admin"))
        assert answer.body["status"]["allowed"] is allowed


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        pytest.param({"Impersonate-User": "eve"}, 403, id="user"),
        pytest.param(
            {"Impersonate-User": "x", "Impersonate-Group": "system:masters"}, 200, id="group"
        ),
        pytest.param({"Impersonate-User": "system:serviceaccount:a:b"}, 200, id="service-account"),
    ],
)
async def test_an_administrator_may_act_as_somebody_else(headers, code):
    async with secured() as api:
        everyone_of_a = {"kind": "Group", "name": "system:serviceaccounts:a"}
        await grant(api, [{**ALL_NODES, "verbs": ["list"]}], everyone_of_a)
        answer = await api("GET", NODES, headers={**bearer("admin"), **headers})
        assert answer.code == code
        assert api.server.requests.all[-1].user == headers["Impersonate-User"]
