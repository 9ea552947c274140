"""Watches over HTTP: where they start, what they say, how they end."""

from __future__ import annotations

import pytest

from hack.sim.cluster import resource as r
from tests.support.cluster.apiserver_support import (
    NODES,
    PODS,
    eventually,
    node,
    pod,
    running_pod,
    serving,
)


async def test_a_watch_without_a_version_begins_with_what_is_there():
    async with serving() as api:
        await api.post(NODES, node("n1"))
        async with api.watch(NODES) as watch:
            assert (await watch.next())[0] == "ADDED"
            await api.post(NODES, node("n2"))
            type_, obj = await watch.next()
            assert (type_, obj["metadata"]["name"]) == ("ADDED", "n2")
            assert (obj["kind"], obj["apiVersion"]) == ("Node", "v1")


async def test_a_watch_from_a_version_says_all_that_happened_since():
    async with serving() as api:
        made = await api.post(NODES, node("n1"))
        await api.patch(f"{NODES}/n1", {"metadata": {"labels": {"a": "b"}}})
        await api.delete(f"{NODES}/n1")
        version = made["metadata"]["resourceVersion"]
        async with api.watch(NODES, resourceVersion=version) as watch:
            modified, deleted = await watch.next(), await watch.next()
        assert (modified[0], deleted[0]) == ("MODIFIED", "DELETED")
        versions = [int(one[1]["metadata"]["resourceVersion"]) for one in (modified, deleted)]
        assert int(version) < versions[0] < versions[1]


async def test_a_no_op_is_no_event():
    async with serving() as api:
        made = await api.post(NODES, node())
        async with api.watch(NODES, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
            await api.patch(f"{NODES}/n1", {"spec": {"unschedulable": False}})
            await api.patch(f"{NODES}/n1", {"spec": {"unschedulable": True}})
            type_, obj = await watch.next()
            assert (type_, obj["spec"]["unschedulable"]) == ("MODIFIED", True)


async def test_leaving_and_entering_a_selection_are_deletion_and_addition():
    async with serving() as api:
        await api.post(NODES, node())
        async with api.watch(NODES, labelSelector="sick=true") as watch:
            sick = {"metadata": {"labels": {"sick": "true"}}}
            await api.patch(f"{NODES}/n1", sick)
            assert (await watch.next())[0] == "ADDED"
            healed = await api.patch(f"{NODES}/n1", {"metadata": {"labels": {"sick": "false"}}})
            type_, obj = await watch.next()
            assert type_ == "DELETED"
            assert obj["metadata"]["labels"] == {"sick": "true"}
            assert obj["metadata"]["resourceVersion"] == healed["metadata"]["resourceVersion"]


async def test_a_watch_by_node_sees_only_that_nodes_pods():
    selected = {"fieldSelector": "spec.nodeName=n2"}
    async with serving() as api, api.watch("/api/v1/pods", **selected) as watch:
        await running_pod(api, "p1", node_name="n1")
        await api.post(PODS, pod("p2", None))
        body = {"metadata": {"name": "p2"}, "target": {"kind": "Node", "name": "n2"}}
        await api.post(f"{PODS}/p2/binding", body)
        type_, obj = await watch.next()
        assert (type_, obj["metadata"]["name"]) == ("ADDED", "p2")
        await api.delete(f"{PODS}/p2", gracePeriodSeconds=0)
        assert [(await watch.next())[0] for _ in range(2)] == ["MODIFIED", "DELETED"]


async def test_selective_watchers_are_not_asked_about_other_nodes():
    async with serving() as api:
        async with api.watch("/api/v1/pods", fieldSelector="spec.nodeName=n2"):
            collection = api.server.store.collections["pods"]
            await eventually(lambda: collection.by_field)
            assert not collection.subscribers
            assert list(collection.by_field) == [("spec.nodeName", "n2")]
        await eventually(lambda: not collection.by_field)


async def test_too_old_a_version_is_an_error_event_of_code_410():
    async with serving() as api:
        await api.post(NODES, node())
        api.server.store.compact()
        async with api.watch(NODES, resourceVersion="1") as watch:
            assert watch.code == 200
            type_, status = await watch.next()
            assert (type_, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
            assert status["message"].startswith("too old resource version: 1 (")
            assert await watch.ended()


async def test_history_is_finite():
    async with serving(history_limit=3) as api:
        made = await api.post(NODES, node())
        for index in range(5):
            await api.patch(f"{NODES}/n1", {"metadata": {"labels": {"a": str(index)}}})
        version = made["metadata"]["resourceVersion"]
        async with api.watch(NODES, resourceVersion=version) as watch:
            assert (await watch.next())[0] == "ERROR"


async def test_bookmarks_come_to_those_who_ask():
    async with (
        serving(bookmark_interval_s=0.01) as api,
        api.watch("/api/v1/pods", resourceVersion=0, allowWatchBookmarks="true") as watch,
    ):
        await api.post(NODES, node())
        while True:
            type_, obj = await watch.next()
            assert type_ == "BOOKMARK"
            assert (obj["kind"], obj["apiVersion"]) == ("Pod", "v1")
            if obj["metadata"]["resourceVersion"] == str(api.server.store.revision):
                break


async def test_a_watch_ends_after_its_timeout():
    async with serving() as api:
        query = {"timeoutSeconds": 1, "allowWatchBookmarks": "true", "resourceVersion": 0}
        async with api.watch(NODES, **query) as watch:
            assert (await watch.next())[0] == "BOOKMARK"
            assert await watch.ended()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"timeoutSeconds": "soon"}, 400),
        ({"fieldSelector": "spec.color=red"}, 400),
    ],
)
async def test_a_bad_watch_is_refused_before_it_begins(query, code):
    async with serving() as api, api.watch(NODES, **query) as watch:
        assert watch.code == code


async def test_hundreds_of_watchers_share_the_bytes_of_one_event():
    async with serving() as api:
        kind = api.server.engine.kind(r.NODES)
        from hack.sim.cluster.store.listing import Selection

        watchers = [api.server.engine.watch(kind, Selection()) for _ in range(200)]
        await api.post(NODES, node())
        lines = {id((await one.drain())[0].line()) for one in watchers}
        assert len(lines) == 1
