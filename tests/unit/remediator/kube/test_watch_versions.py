"""What a watch makes of versions that it has seen, and of a server that goes back in time."""

import asyncio
import json
from functools import partial

import msgspec
from aiohttp import web

from rules.api.nodes import NodeView
from tests.support.remediator.scripted_server import event, node, page, refusal, stream, until
from tests.support.remediator.watched_cache import SkippingClock, is_watch, watching


async def test_an_answer_older_than_the_watch_brings_nothing_back(tmp_path):
    """What the watch has taken away since the write stays away."""

    async def handler(request):
        return await stream(request) if is_watch(request) else page([], 5)

    async with watching(tmp_path, handler) as (cache, _):
        await until(lambda: cache.unfollowed_since is None)
        cache.learn(msgspec.convert(node("gone", 4), NodeView))
        assert cache.items == {}
        cache.learn(msgspec.convert(node("made", 6), NodeView))
        assert list(cache.items) == ["made"]


async def test_an_object_of_a_known_version_is_neither_decoded_nor_reported(
    tmp_path,
):
    written = asyncio.Event()

    async def handler(request):
        if not is_watch(request):
            return page([node("a", 1)], 5)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await written.wait()
        for changed in (node("a", 6), node("c", 8)):
            await response.write(json.dumps(event("MODIFIED", changed)).encode() + b"\n")
        await asyncio.sleep(3600)
        return response

    async with watching(tmp_path, handler) as (cache, heard):
        await until(lambda: cache.unfollowed_since is None)
        mine = cache.learn(msgspec.convert(node("a", 6), NodeView))
        written.set()
        await until(lambda: "c" in cache.items)
        assert cache.items["a"] is mine
        assert heard.changes == [("added", "a"), ("added", "c")]


async def test_s43_an_older_list_is_not_believed_at_once(tmp_path):
    versions = iter([page([node("a", 90)], 100), page([], 50), page([node("a", 90)], 110)])

    async def handler(request):
        if not is_watch(request):
            return next(versions)
        if request.query["resourceVersion"] == "100":
            return refusal(410, "Expired", "too old")
        return await stream(request, event("ADDED", node("b", 111)))

    async with watching(tmp_path, handler) as (cache, heard):
        await until(lambda: "b" in cache.items)
        assert heard.changes == [("added", "a"), ("added", "b")]


async def test_a_server_that_was_restored_from_a_backup_is_believed_after_a_failure(tmp_path):
    """A real server begins a watch at a version that it has not reached, and is silent on it."""
    restored = False

    async def handler(request):
        if not is_watch(request):
            return page([node("a", 3)], 9) if restored else page([node("a", 5), node("b", 6)], 50)
        return await stream(request, hold_s=3600 if restored else 0.05)

    async with watching(tmp_path, handler, clock=SkippingClock) as (cache, heard):
        await until(lambda: cache.unfollowed_since is None)
        assert cache.rewound_at == float("-inf")
        restored = True
        await until(lambda: "b" not in cache.items)
        assert cache.items["a"].metadata.resource_version == "3"
        assert cache.rewound_at > 0
        assert ("removed", "b") in heard.changes


async def test_a_backup_that_was_restored_with_higher_versions_is_believed(tmp_path):
    """What is held at a version that the list has passed is not newer than the list."""
    answers = iter([page([node("a", 90)], 100), page([node("a", 30)], 1_000)])

    async def handler(request):
        if not is_watch(request):
            return next(answers)
        if request.query["resourceVersion"] == "100":
            return refusal(410, "Expired", "too old")
        return await stream(request)

    async with watching(tmp_path, handler) as (cache, _):
        await until(lambda: cache.rewound_at > 0)
        assert cache.items["a"].metadata.resource_version == "30"


async def test_a_watch_that_returns_to_older_versions_is_listed_again(tmp_path):
    lists = 0

    async def handler(request):
        nonlocal lists
        if not is_watch(request):
            lists += 1
            return page([node("a", 5)], 50)
        return await stream(request, event("BOOKMARK", node("", 20)))

    async with watching(tmp_path, handler, clock=SkippingClock):
        await until(lambda: lists >= 2)


async def test_what_the_server_contradicts_is_listed_at_once(tmp_path):
    lists = 0

    async def handler(request):
        nonlocal lists
        if is_watch(request):
            return await stream(request)
        lists += 1
        return page([node("a", 60)] if lists == 1 else [], 60 + lists)

    async with watching(tmp_path, handler, clock=SkippingClock) as (cache, _):
        await until(lambda: cache.unfollowed_since is None)
        assert not cache.contradicted_by(msgspec.convert(node("a", 60), NodeView))
        assert not cache.contradicted_by(msgspec.convert(node("other", 1), NodeView))
        assert cache.contradicted_by(msgspec.convert(node("a", 40), NodeView))
        await until(lambda: not cache.items)


async def test_an_object_is_shown_only_by_a_watch_with_a_recent_event(tmp_path):
    sent = asyncio.Event()

    async def handler(request):
        if not is_watch(request):
            return page([node("n1", 5)], 5)
        await sent.wait()
        return await stream(request, event("MODIFIED", node("n1", 6)))

    async with watching(tmp_path, handler) as (cache, heard):
        shown = partial(cache.shown, "n1", heard_s=5.0, owed_s=1.0)
        await until(lambda: cache.synced)
        assert shown() is None, "a list may be old when the watch opens"
        sent.set()
        await until(lambda: ("changed", "n1") in heard.changes)
        assert shown() is cache.items["n1"]
        heard.clock.ahead_s += 4.0
        assert shown() is cache.items["n1"]
        heard.clock.ahead_s += 1.1
        assert shown() is None


async def test_an_object_is_not_shown_while_the_watch_owes_an_own_write(tmp_path):
    async def handler(request):
        if not is_watch(request):
            return page([node("n1", 5)], 5)
        return await stream(request, event("MODIFIED", node("n1", 6)))

    async with watching(tmp_path, handler) as (cache, heard):
        await until(lambda: ("changed", "n1") in heard.changes)
        written = cache.learn(msgspec.convert(node("n1", 9), NodeView))
        assert cache.shown("n1", heard_s=5.0, owed_s=1.0) is written
        heard.clock.ahead_s += 1.1
        assert cache.shown("n1", heard_s=5.0, owed_s=1.0) is None
