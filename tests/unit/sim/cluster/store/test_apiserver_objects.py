"""Creating objects over HTTP: names, defaults, refusals, bindings, events."""

from __future__ import annotations

import io

import pytest

from tests.support.cluster.apiserver_support import (
    NODES,
    PODS,
    node,
    pod,
    serving,
)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
FOREIGN = {"key": "other.io/x", "effect": "NoSchedule"}


async def test_a_new_object_gets_identity_and_time():
    async with serving(clock=lambda: 1_700_000_000.9) as api:
        made = (await api.post(NODES, node()))["metadata"]
        assert made["creationTimestamp"] == "2023-11-14T22:13:20Z"
        assert len(made["uid"]) == 36
        assert made["resourceVersion"].isdigit()
        assert "generation" not in made
        assert (await api.post(PODS, pod()))["metadata"]["generation"] == 1


async def test_generated_names_are_the_prefix_and_five_letters():
    async with serving() as api:
        body = pod()
        del body["metadata"]["name"]
        body["metadata"]["generateName"] = "web-"
        names = {(await api.post(PODS, body))["metadata"]["name"] for _ in range(5)}
        assert len(names) == 5
        assert all(name.startswith("web-") and len(name) == 9 for name in names)


async def test_a_taken_name_answers_409_already_exists():
    async with serving() as api:
        await api.post(NODES, node())
        answer = await api("POST", NODES, node())
        assert (answer.code, answer.reason) == (409, "AlreadyExists")
        assert answer.message == 'nodes "n1" already exists'
        assert answer.details == {"name": "n1", "kind": "nodes"}


@pytest.mark.parametrize(
    ("path", "body", "code", "text"),
    [
        pytest.param(NODES, node("N_1"), 422, "metadata.name: Invalid value", id="name-syntax"),
        pytest.param(NODES, {"metadata": {}}, 422, "metadata.name: Required value", id="no-name"),
        pytest.param(
            NODES,
            node(labels={"a": "no spaces"}),
            422,
            "metadata.labels: Inval",
            id="label-value",
        ),
        pytest.param(
            NODES,
            node(labels={"a" * 64: "b"}),
            422,
            "metadata.labels: Inval",
            id="label-key",
        ),
        pytest.param(
            NODES,
            node(labels={"a": "b" * 64}),
            422,
            "metadata.labels: Inval",
            id="long-label-value",
        ),
        pytest.param(
            NODES, node(annotations={"a": "b" * 262_144}), 422, "262144 bytes", id="annotations"
        ),
        pytest.param(NODES, node(resourceVersion="1"), 500, "should not be set", id="version"),
        pytest.param(
            NODES, {**node(), "kind": "Pod"}, 400, "does not match the expected", id="kind"
        ),
        pytest.param(
            NODES, {**node(), "apiVersion": "v2"}, 400, "does not match the expected", id="version"
        ),
        pytest.param(NODES, {"metadata": "x"}, 400, "cannot be handled", id="metadata-is-text"),
        pytest.param(NODES, b"{", 400, "json parse error", id="broken-json"),
        pytest.param(
            PODS, {**pod(), "metadata": {"name": "p", "namespace": "x"}}, 400, "namespace", id="ns"
        ),
        pytest.param(
            "/api/v1/namespaces/none/pods", pod(), 404, 'namespaces "none" not found', id="no-ns"
        ),
        pytest.param(
            "/api/v1/pods", pod(), 405, "does not allow this method", id="all-namespaces"
        ),
    ],
)
async def test_what_is_wrong_is_refused_with_a_status(path, body, code, text):
    async with serving() as api:
        answer = await api("POST", path, body)
        assert answer.code == code
        assert text in answer.message
        assert (answer.body["kind"], answer.body["code"]) == ("Status", code)


async def test_every_broken_rule_is_a_cause():
    async with serving() as api:
        answer = await api("POST", NODES, node("N_1", labels={"a": "b c"}))
        assert answer.details["kind"] == "Node"
        assert {one["field"] for one in answer.causes} == {"metadata.name", "metadata.labels"}
        assert answer.message.startswith(
            'Node "N_1" is invalid: [metadata.name: Invalid value: "N_1": '
        )


async def test_a_new_pod_is_pending_with_the_defaults_of_admission():
    async with serving() as api:
        made = await api.post(PODS, {**pod(), "status": {"phase": "Running"}})
        assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
        spec = made["spec"]
        assert (spec["terminationGracePeriodSeconds"], spec["restartPolicy"]) == (30, "Always")
        assert [one["key"] for one in spec["tolerations"]] == [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
        ]
        assert spec["priority"] == 0


@pytest.mark.parametrize(
    ("name", "priority"), [("system-node-critical", 2_000_001_000), ("mine", 7)]
)
async def test_priority_classes_are_resolved(name, priority):
    async with serving() as api:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await api.post(path, {"metadata": {"name": "mine"}, "value": 7})
        body = pod()
        body["spec"]["priorityClassName"] = name
        assert (await api.post(PODS, body))["spec"]["priority"] == priority


async def test_a_dry_run_create_stores_nothing():
    async with serving() as api:
        assert (await api("POST", NODES, node(), dryRun="All")).code == 201
        assert (await api("GET", f"{NODES}/n1")).code == 404


@pytest.mark.parametrize(
    ("method", "path", "headers", "code"),
    [
        pytest.param("GET", "/api/v1/unicorns", {}, 404, id="no-such-resource"),
        pytest.param("GET", "/apis/no.such/v1/things", {}, 404, id="no-such-group"),
        pytest.param("GET", f"{NODES}/n1/log", {}, 404, id="no-such-subresource"),
        pytest.param("GET", "/openapi/v2", {}, 404, id="no-openapi-v2"),
        pytest.param("PUT", NODES, {}, 405, id="put-to-a-collection"),
        pytest.param("POST", f"{NODES}/n1", {}, 405, id="post-to-an-object"),
        pytest.param("POST", NODES, {"Content-Type": "text/xml"}, 415, id="unreadable-body"),
    ],
)
async def test_wrong_addresses_and_languages(method, path, headers, code):
    async with serving() as api:
        await api.post(NODES, node())
        body = b"{}" if method in {"POST", "PUT"} else None
        headers = {"Content-Type": "application/json", **headers}
        url = api.server.url + path
        async with api.session.request(method, url, data=body, headers=headers) as response:
            assert response.status == code
            status = await response.json()
            assert (status["kind"], status["code"]) == ("Status", code)


async def test_bodies_over_3_mib_answer_413():
    async with serving() as api:
        body = io.BytesIO(b" " * (3 * 1024 * 1024 + 1))
        headers = {"Content-Type": "application/json"}
        async with api.session.post(api.server.url + NODES, data=body, headers=headers) as answer:
            assert answer.status == 413
            assert (await answer.json())["reason"] == "RequestEntityTooLarge"


async def test_binding_gives_a_pod_its_node_once():
    async with serving() as api:
        await api.post(PODS, pod(node_name=None))
        body = {"metadata": {"name": "p1"}, "target": {"kind": "Node", "name": "n7"}}
        assert (await api.post(f"{PODS}/p1/binding", body))["status"] == "Success"
        bound = await api.get(f"{PODS}/p1")
        assert bound["spec"]["nodeName"] == "n7"
        assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
        again = await api("POST", f"{PODS}/p1/binding", body)
        assert (again.code, again.reason) == (409, "Conflict")
        assert "already assigned to a node" in again.message


async def test_a_deployment_is_completed():
    async with serving() as api:
        path = "/apis/apps/v1/namespaces/default/deployments"
        template = {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"]}
        template["spec"] = {"containers": template["spec"]["containers"]}
        spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
        made = await api.post(path, {"metadata": {"name": "d"}, "spec": spec})
        assert (made["spec"]["replicas"], made["metadata"]["generation"]) == (1, 1)
