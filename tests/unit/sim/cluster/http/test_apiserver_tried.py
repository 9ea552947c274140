"""Refusals that were tried side by side on a real 1.36.2 server, and that were once let pass
here.
"""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.clients.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tests.support.cluster.apiserver_support import (
    BUDGETS,
    EVENTS,
    NODES,
    PODS,
    Object,
    node,
    pod,
    serving,
)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SYSTEM_EVENTS = "/api/v1/namespaces/kube-system/events"
NODE = {"kind": "Node", "name": "n1"}
TIMED = {
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "a.example/b",
    "reportingInstance": "i",
    "action": "A",
    "reason": "R",
    "regarding": NODE,
}


def named(**rest: Any) -> Object:
    return {"metadata": {"name": "x"}, **rest}


def lease(**spec: Any) -> Object:
    return named(spec=spec)


def budget(**spec: Any) -> Object:
    return named(spec={"selector": {"matchLabels": {"app": "x"}}, **spec})


@pytest.mark.parametrize(
    ("path", "body", "code", "why"),
    [
        pytest.param(
            LEASES, lease(renewTime="2026-01-01T00:00:00Z"), 400, "parsing time", id="seconds only"
        ),
        pytest.param(
            LEASES, lease(renewTime="2026-01-01T00:00:00.123Z"), 400, "parsing time", id="millis"
        ),
        pytest.param(
            SYSTEM_EVENTS, named(involvedObject=NODE), 422, "does not match", id="event elsewhere"
        ),
        pytest.param(
            NEW_EVENTS, named(regarding=NODE, type="Normal"), 422, "eventTime: Required",
            id="untimed"
        ),
        pytest.param(
            NEW_EVENTS, named(**TIMED, type="Strange"), 422, "invalid value: Strange", id="type"
        ),
        pytest.param(
            EVENTS,
            named(involvedObject=NODE, eventTime=TIMED["eventTime"]),
            422,
            "reportingComponent: Required",
            id="timed without a reporter",
        ),
        pytest.param(
            ROLES, named(rules=[{"apiGroups": [""], "resources": ["pods"]}]), 422,
            "rules[0].verbs", id="no verbs",
        ),
        pytest.param(BUDGETS, budget(maxUnavailable="150%"), 422, "maxUnavailable",
                     id="over 100%"),
    ],
)  # fmt: skip
async def test_what_cannot_be_created(path: str, body: Object, code: int, why: str) -> None:
    async with serving() as api:
        answer = await api("POST", path, body)
        assert answer.code == code, answer.body
        assert why in answer.message


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"key": "a", "operator": "Nope"}]},
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
async def test_pods_that_cannot_be_created(spec: Object) -> None:
    async with serving() as api:
        body = pod()
        assert (await api("POST", PODS, {**body, "spec": {**body["spec"], **spec}})).code == 422


@pytest.mark.parametrize(
    ("path", "patch", "content_type", "code"),
    [
        (f"{NODES}/n1", {"metadata": {"labels": {"x": 1}}}, MERGE_PATCH, 422),
        (f"{NODES}/n1", {"metadata": {"name": "n2"}}, MERGE_PATCH, 400),
        (
            f"{NODES}/n1/status",
            {"status": {"conditions": [{"type": "A", "lastHeartbeatTime": "now"}]}},
            STRATEGIC_MERGE_PATCH,
            422,
        ),
        (f"{PODS}/p1", {"spec": {"terminationGracePeriodSeconds": 5}}, MERGE_PATCH, 422),
        # The server's library asks only whether the parent is there.
        (f"{NODES}/n1", [{"op": "replace", "path": "/metadata/new", "value": 1}], JSON_PATCH, 200),
    ],
)
async def test_patches(path: str, patch: Any, content_type: str, code: int) -> None:
    async with serving() as api:
        await api.post(NODES, node())
        await api.post(PODS, pod())
        answer = await api("PATCH", path, patch, content_type=content_type)
        assert answer.code == code, answer.body


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"resourceVersionMatch": "Exact"}, "forbidden unless resourceVersion"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 'for resourceVersion "0"'),
        ({"resourceVersionMatch": "Nope", "resourceVersion": "1"}, "supported values"),
        ({"watch": "true", "sendInitialEvents": "true"}, "requires setting resourceVersionMatch"),
    ],
)
async def test_list_options_that_contradict_themselves(query: dict[str, Any], why: str) -> None:
    async with serving() as api:
        answer = await api("GET", NODES, **query)
        assert (answer.code, answer.details["kind"]) == (422, "ListOptions")
        assert why in answer.message


async def test_an_update_that_creates_answers_201() -> None:
    async with serving() as api:
        body = {**lease(), "apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        assert (await api("PUT", f"{LEASES}/x", body)).code == 201
