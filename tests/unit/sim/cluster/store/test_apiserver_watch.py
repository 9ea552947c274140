"""Watches over HTTP: where they start, what they say, how they end."""

from __future__ import annotations

from tests.support.cluster.apiserver_support import (
    NODES,
    node,
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
