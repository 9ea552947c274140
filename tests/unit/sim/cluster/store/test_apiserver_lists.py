"""Lists over HTTP: selectors, pages, versions, encodings."""

from __future__ import annotations

import pytest

from tests.support.cluster.apiserver_support import (
    EVENTS,
    NODES,
    PODS,
    node,
    pod,
    running_pod,
    serving,
)


def names(listed):
    return [one["metadata"]["name"] for one in listed["items"]]


async def fleet(api, count=5):
    for index in range(count):
        await api.post(NODES, node(f"n{index}", labels={"pool": "ab"[index % 2]}))


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
