"""Tokens and RBAC over HTTP."""

from typing import Any

import pytest

from hack.sim.cluster.http.access import service_account
from hack.sim.cluster.resource import ADMIN, MERGE_PATCH, Caller
from tests.support.cluster.apiserver_support import (
    NODES,
    PODS,
    node,
    serving,
)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
TOKENS = {
    "admin": ADMIN,
    "eve": Caller("eve", ("system:authenticated", "team-a")),
    "agent": service_account("gpuward-system", "agent"),
}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def secured():
    return serving(tokens=TOKENS, authorization="RBAC")


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
