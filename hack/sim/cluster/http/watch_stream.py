"""Writes a watch to the wire: lines as they come, bookmarks in between, an end in time.

Called by the HTTP layer for every WATCH.  Lines are bytes encoded once for all watchers, except
for tables, which are rendered for the one who wants them.
"""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web

from hack.sim.cluster.http.negotiation import Answer
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.listing import shown
from hack.sim.cluster.store.store import encode
from hack.sim.cluster.store.watching import Notice, Subscription
from hack.sim.cluster.tables.tables import partial, table


async def stream_watch(
    request: web.BaseRequest,
    engine: Engine,
    subscription: Subscription,
    answer: Answer,
    timeout_s: float,
    bookmark_interval_s: float,
) -> web.StreamResponse:
    """Answer with a stream of events until the time is over or the watch ends."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    renderer = _Renderer(engine, subscription, answer, request)
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    ticker = loop.create_task(_bookmarks(subscription, bookmark_interval_s))
    closer = loop.call_at(ends, subscription.finish)
    try:
        while notices := await subscription.drain():
            await response.write(b"".join([renderer.line(one) for one in notices]))
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
    except ConnectionError:
        pass  # the watcher went away; there is nobody to tell
    finally:
        closer.cancel()
        ticker.cancel()
    return response


async def _bookmarks(subscription: Subscription, interval_s: float) -> None:
    while not subscription.ended:
        await asyncio.sleep(interval_s)
        subscription.bookmark()


class _Renderer:
    """Turns events into lines in the shape the client wants."""

    def __init__(
        self,
        engine: Engine,
        subscription: Subscription,
        answer: Answer,
        request: web.BaseRequest,
    ) -> None:
        self._engine = engine
        self._kind = subscription.kind
        self._answer = answer
        self._include = request.rel_url.query.get("includeObject", "Metadata")
        self._headers = True

    def line(self, notice: Notice) -> bytes:
        """One event."""
        if notice.type == "ERROR":
            return notice.line()
        if self._answer.shape == "Object":
            if not self._kind.respelled or notice.type == "BOOKMARK":
                return notice.line()
            respelled = shown(self._kind, notice.stored)
            return encode({"type": notice.type, "object": respelled.obj}) + b"\n"
        if self._answer.shape == "Metadata":
            obj = partial(notice.stored.obj, self._answer.version)
        elif notice.type == "BOOKMARK":
            obj = {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{self._answer.version}",
                "metadata": notice.stored.obj["metadata"],
                "columnDefinitions": None,
                "rows": [],
            }
        else:
            obj = table(
                self._kind,
                [notice.stored],
                self._engine.clock(),
                include=self._include,
                headers=self._headers,
                version=self._answer.version,
            )
            self._headers = False
        return encode({"type": notice.type, "object": obj}) + b"\n"
