"""What a watch makes of versions it has seen already."""

from __future__ import annotations

import asyncio
import json

import msgspec
from aiohttp import web

from rules.api.nodes import NodeView
from tests.support.remediator.scripted_server import event, node, page, stream, until
from tests.support.remediator.watched_cache import is_watch, watching


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


async def test_what_is_held_at_this_version_already_is_neither_decoded_nor_told(
    tmp_path,
):
    """The echo of an own write, and an object that another watch brought."""
    written = asyncio.Event()
    other = msgspec.convert({**node("b", 7), "kind": "Other"}, NodeView)

    async def handler(request):
        if not is_watch(request):
            return page([node("a", 1)], 5)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await written.wait()
        for changed in (node("a", 6), node("b", 7), node("c", 8)):
            await response.write(json.dumps(event("MODIFIED", changed)).encode() + b"\n")
        await asyncio.sleep(3600)
        return response

    elsewhere = {"b": other}.get
    async with watching(tmp_path, handler, elsewhere=elsewhere) as (cache, heard):
        await until(lambda: cache.unfollowed_since is None)
        mine = cache.learn(msgspec.convert(node("a", 6), NodeView))
        written.set()
        await until(lambda: "c" in cache.items)
        assert cache.items["a"] is mine
        assert cache.items["b"] is other
        assert heard.changes == [("added", "a"), ("added", "b"), ("added", "c")]
