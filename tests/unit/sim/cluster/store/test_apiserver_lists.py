"""Lists over HTTP: selectors, pages, versions, encodings."""

from __future__ import annotations

import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.store.selectors import parse_label_selector, selector_of_object
from tests.support.cluster.apiserver_support import (
    EVENTS,
    NODES,
    PODS,
    node,
    pod,
    running_pod,
    serving,
)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def names(listed):
    return [one["metadata"]["name"] for one in listed["items"]]


async def fleet(api, count=5):
    for index in range(count):
        await api.post(NODES, node(f"n{index}", labels={"pool": "ab"[index % 2]}))


async def test_a_list_is_sorted_and_carries_the_version():
    async with serving() as api:
        for name in ("b", "c", "a"):
            await api.post(NODES, node(name))
        listed = await api.get(NODES)
        assert (listed["kind"], listed["apiVersion"]) == ("NodeList", "v1")
        assert names(listed) == ["a", "b", "c"]
        assert listed["metadata"]["resourceVersion"] == str(api.server.store.revision)
        assert not {"kind", "apiVersion"} & set(listed["items"][0])


async def test_objects_of_all_namespaces_come_by_namespace_then_name():
    async with serving() as api:
        for namespace, name in (("default", "z"), ("kube-system", "a"), ("default", "b")):
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            await api.post(path, {"metadata": {"name": name}})
        assert names(await api.get("/api/v1/configmaps")) == ["b", "z", "a"]
        assert names(await api.get(CONFIG_MAPS)) == ["b", "z"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("pool=a", ["n0", "n2", "n4"]),
        ("pool==b", ["n1", "n3"]),
        ("pool!=a", ["n1", "n3"]),
        ("pool in (a, b)", ["n0", "n1", "n2", "n3", "n4"]),
        ("pool notin (a)", ["n1", "n3"]),
        ("pool,other", []),
        ("!other", ["n0", "n1", "n2", "n3", "n4"]),
        ("pool=a,other!=x", ["n0", "n2", "n4"]),
    ],
)
async def test_label_selectors(selector, found):
    async with serving() as api:
        await fleet(api)
        assert names(await api.get(NODES, labelSelector=selector)) == found


@pytest.mark.parametrize("selector", ["a b", "=x", "a in x", "a=(b", ",,"])
async def test_a_bad_label_selector_answers_400(selector):
    async with serving() as api:
        answer = await api("GET", NODES, labelSelector=selector)
        assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("path", "selector", "found"),
    [
        pytest.param(NODES, "metadata.name=n1", ["n1"], id="name"),
        pytest.param(NODES, "metadata.name!=n1", ["n2"], id="not-name"),
        pytest.param(NODES, "spec.unschedulable=true", ["n2"], id="unschedulable"),
        pytest.param(NODES, "spec.unschedulable=false", ["n1"], id="schedulable"),
        pytest.param(PODS, "spec.nodeName=n1", ["p1"], id="node-of-pods"),
        pytest.param(PODS, "spec.nodeName=", ["p2"], id="unbound-pods"),
        pytest.param(PODS, "status.phase=Running,spec.nodeName=n1", ["p1"], id="two-terms"),
        pytest.param(PODS, "status.phase!=Running", ["p2"], id="not-running"),
        pytest.param("/api/v1/pods", "metadata.namespace=default", ["p1", "p2"], id="namespace"),
        pytest.param(EVENTS, "involvedObject.name=n1,type=Warning", ["e1"], id="events"),
        pytest.param(EVENTS, "reason=Other", [], id="event-reason"),
        pytest.param(EVENTS, "involvedObject.uid=u1,source=us", ["e1"], id="event-source"),
    ],
)
async def test_field_selectors(path, selector, found):
    async with serving() as api:
        await api.post(NODES, node("n1"))
        await api.post(NODES, {**node("n2"), "spec": {"unschedulable": True}})
        await running_pod(api, "p1")
        await api.post(PODS, pod("p2", None))
        event = {
            "metadata": {"name": "e1"},
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "u1"},
            "type": "Warning",
            "reason": "Broken",
            "source": {"component": "us"},
        }
        await api.post(EVENTS, event)
        assert names(await api.get(path, fieldSelector=selector)) == found


@pytest.mark.parametrize(
    ("path", "selector"),
    [
        (NODES, "status.phase=x"),
        (PODS, "spec.color=red"),
        (CONFIG_MAPS, "data=x"),
        (NODES, "what"),
    ],
)
async def test_an_unknown_field_selector_answers_400(path, selector):
    async with serving() as api:
        answer = await api("GET", path, fieldSelector=selector)
        assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_pages_show_one_moment_however_much_changes_between_them():
    async with serving() as api:
        await fleet(api, 6)
        first = await api.get(NODES, limit=2)
        assert names(first) == ["n0", "n1"]
        assert first["metadata"]["remainingItemCount"] == 4
        await api.delete(f"{NODES}/n2")
        await api.post(NODES, node("n2a"))
        await api.patch(f"{NODES}/n3", {"metadata": {"labels": {"new": "x"}}})
        second = await api.get(NODES, limit=2, continue_=first["metadata"]["continue"])
        assert names(second) == ["n2", "n3"]
        assert "new" not in second["items"][1]["metadata"]["labels"]
        third = await api.get(NODES, limit=2, continue_=second["metadata"]["continue"])
        assert names(third) == ["n4", "n5"]
        assert "continue" not in third["metadata"]
        versions = {one["metadata"]["resourceVersion"] for one in (first, second, third)}
        assert len(versions) == 1


async def test_selected_pages_do_not_count_what_remains():
    async with serving() as api:
        await fleet(api, 6)
        page = await api.get(NODES, limit=1, labelSelector="pool=a")
        assert page["metadata"]["continue"]
        assert "remainingItemCount" not in page["metadata"]


async def test_an_expired_continue_token_answers_410():
    async with serving() as api:
        await fleet(api)
        token = (await api.get(NODES, limit=2))["metadata"]["continue"]
        await api.post(NODES, node("later"))
        api.server.store.compact()
        answer = await api("GET", NODES, limit=2, continue_=token)
        assert (answer.code, answer.reason) == (410, "Expired")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        pytest.param({"continue_": "rubbish"}, 400, id="bad-token"),
        pytest.param({"limit": "many"}, 400, id="bad-limit"),
        pytest.param({"resourceVersion": "0"}, 200, id="any-version"),
        pytest.param(
            {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"}, 200, id="old"
        ),
    ],
)
async def test_list_options(query, code):
    async with serving() as api:
        await fleet(api)
        answer = await api("GET", NODES, **query)
        assert answer.code == code


async def test_a_whole_fleet_loads_in_process_and_lists_by_node():
    async with serving() as api:
        api.server.load(r.NODES, (node(f"n{i:04}") for i in range(300)))
        pods = (
            {
                **pod(f"p{i:05}", f"n{i % 300:04}", namespace="default"),
                "status": {"phase": "Running"},
            }
            for i in range(2400)
        )
        assert api.server.load(r.PODS, pods) == 2400
        assert len((await api.get(NODES))["items"]) == 300
        found = await api.get("/api/v1/pods", fieldSelector="spec.nodeName=n0007")
        assert len(found["items"]) == 8
        assert found["items"][0]["status"]["phase"] == "Running"


async def test_only_metadata_is_sent_to_those_who_want_no_more():
    async with serving() as api:
        await api.post(NODES, node())
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        listed = (await api("GET", NODES, accept=accept)).body
        assert listed["kind"] == "PartialObjectMetadataList"
        assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ("a in (,)", {"a": ""}, True),
        ("x.io/a=b", {"x.io/a": "b"}, True),
        ("", {}, True),
    ],
)
def test_rarer_label_selectors(selector, labels, expected):
    assert parse_label_selector(selector).matches(labels) is expected


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ({"matchLabels": {"a": "b"}}, {"a": "b"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
        ({}, {"x": "y"}, True),
    ],
)
def test_selector_objects(selector, labels, expected):
    found = selector_of_object(selector)
    assert found is not None
    assert found.matches(labels) is expected
