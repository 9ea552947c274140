"""The review page's own HTTP site: GET only, nothing that writes, no address outside.

`mount` adds every route to an application; `service` puts it on its own port. Three pages (fleet,
node, history) and the runbooks; `/api/` answers with the same values as JSON. Pages are made in a
worker thread, each address at most once per state.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from remediator.page.hosts import may_ask
from remediator.page.rendering import render, render_page
from remediator.page.runbook_page import runbook_html, runbook_title
from remediator.page.schema import schema_text
from remediator.view.fleet_view import fleet_page, search
from remediator.view.history_view import history_page
from remediator.view.live import PageSource
from remediator.view.node_view import node_page
from remediator.view.shapes import (
    FleetFilter,
    FleetPage,
    HistoryPage,
    NodePage,
    ProblemShown,
)
from remediator.view.state import PageState

_FOLDER = Path(__file__).parent
_STATIC: Final = {
    "page.css": "text/css",
    "map.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
HEADERS: Final = {
    "Server": "gpuward",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_MOST_KEPT = 64
_COMPRESSED_FROM = 4096
_MOST_ASKED = 253
"""Characters of a filter: no name of a node is longer."""
_NAMES_THERE = "/api/fleet"

Page = FleetPage | NodePage | HistoryPage
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NotThereError(Exception):
    """There is nothing at this address; one sentence."""


def fleet_of(state: PageState, request: web.Request) -> Page:
    """`/` and `/api/fleet`."""
    return fleet_page(state, filter_of(request.query))


def node_of(state: PageState, request: web.Request) -> Page:
    """`/nodes/NAME` and `/api/nodes/NAME`."""
    name = request.match_info["name"]
    page = node_page(name, state)
    if page is None:
        raise NotThereError(f"No GPU node {name} is known; {_NAMES_THERE} lists them.")
    return page


def history_of(state: PageState, _: web.Request) -> Page:
    """`/history` and `/api/history`."""
    return history_page(state)


PAGES: Final[Mapping[str, Callable[[PageState, web.Request], Page]]] = {
    "/": fleet_of,
    "/nodes/{name}": node_of,
    "/history": history_of,
    "/api/fleet": fleet_of,
    "/api/nodes/{name}": node_of,
    "/api/history": history_of,
}


def filter_of(query: Mapping[str, str]) -> FleetFilter:
    """What a request asks the fleet page to show."""
    given = {
        name: query.get(name, "").strip()[:_MOST_ASKED] for name in FleetFilter.__struct_fields__
    }
    return FleetFilter(**given)


def node_address(name: str, session: str = "") -> str:
    """The page of a node, at one of its sessions; an address on this server, quoted."""
    anchor = f"#session-{quote(session, safe='')}" if session else ""
    return f"/nodes/{quote(name, safe='')}{anchor}"


def only_match(state: PageState, wanted: FleetFilter) -> str:
    """The page of the only node that a search means; "" where it means none or several."""
    if not wanted.q or wanted != FleetFilter(q=wanted.q):
        return ""
    if wanted.q in state.snapshot.nodes:
        return node_address(wanted.q)
    found = search(state, wanted.q)
    if session := state.snapshot.quarantines.get(wanted.q):
        return node_address(session.spec.node_name, session.name)
    return node_address(*next(iter(found.items()))) if len(found) == 1 else ""


class Site:
    """Handlers over one source."""

    def __init__(self, source: PageSource, hosts: Collection[str]) -> None:
        self._source = source
        self._hosts = hosts
        self._static = {name: (_FOLDER / name).read_bytes() for name in _STATIC}
        self._of: PageState | None = None
        self._made: dict[str, asyncio.Task[bytes]] = {}

    def mount(self, app: web.Application) -> None:
        """Add every route."""
        routes = app.router
        for path, make in PAGES.items():
            routes.add_get(path, self._page(make, path))
        routes.add_get("/sessions/{name}", self.session)
        routes.add_get("/docs/runbooks/{name:.+}", self.runbook)
        routes.add_get("/static/{name}", self.static)
        routes.add_get("/api/schema", self.schema)
        app.middlewares.extend([self.check_host, self.explain])
        app.on_response_prepare.append(_set_headers)

    def _page(self, make: Callable[[PageState, web.Request], Page], path: str) -> Handler:
        as_json = path.startswith("/api/")

        async def serve(request: web.Request) -> web.StreamResponse:
            state = await self._source.state()
            if path == "/" and (address := only_match(state, filter_of(request.query))):
                raise web.HTTPFound(address)

            async def body() -> bytes:
                ready = await self._with_read(state, request.match_info.get("name", ""))
                return await asyncio.to_thread(encoded, ready)

            def encoded(ready: PageState) -> bytes:
                page = make(ready, request)
                return msgspec.json.encode(page) if as_json else render_page(page).encode()

            made = await self._once(state, request.rel_url.raw_path_qs, body)
            return _json_bytes(made) if as_json else _html(made)

        return serve

    async def _with_read(self, state: PageState, node: str) -> PageState:
        """The state with the health status of a node that the state has none of."""
        if node not in state.snapshot.nodes or state.health(node):
            return state
        found = await self._source.verdict(node)
        return state if found is None else dataclasses.replace(state, read={node: found})

    async def _once(
        self, state: PageState, key: str, make: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """What was made of this state already, else made now, once for all who wait for it."""
        if state is not self._of or len(self._made) >= _MOST_KEPT:
            self._of = state
            self._made.clear()
        if key not in self._made:
            self._made[key] = made = asyncio.ensure_future(make())
            # All who wait may have gone by the time it fails; then nobody retrieves the exception.
            made.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._made[key])

    async def session(self, request: web.Request) -> web.StreamResponse:
        """The way to a session, which is on the page of its node."""
        name = request.match_info["name"]
        session = (await self._source.state()).snapshot.quarantines.get(name)
        if session is None:
            raise NotThereError(f"There is no session {name}; {_NAMES_THERE} lists the open ones.")
        raise web.HTTPFound(node_address(session.spec.node_name, name))

    async def runbook(self, request: web.Request) -> web.StreamResponse:
        """A runbook."""
        path = request.match_info["name"]
        replica = (await self._source.state()).replica()
        try:
            title, text = runbook_title(path), runbook_html(path)
        except KeyError:
            raise NotThereError(f"There is no runbook {path[:200]}.") from None
        return _html(render("runbook", replica, title=title, text=text).encode())

    async def static(self, request: web.Request) -> web.StreamResponse:
        """Style sheet, script and icon."""
        name = request.match_info["name"]
        if name not in self._static:
            raise NotThereError("There is no such file.")
        body = self._static[name]
        tag = hashlib.sha256(body).hexdigest()[:16]
        headers = {"ETag": f'"{tag}"', "Cache-Control": "no-cache"}
        if any(one.value == tag for one in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=body, headers=headers, content_type=_STATIC[name], charset="utf-8"
        )

    async def schema(self, _: web.Request) -> web.StreamResponse:
        """The JSON Schema of every answer."""
        return web.Response(body=schema_text(), content_type="application/schema+json")

    @web.middleware
    async def check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse names that a stranger may have pointed here (`hosts`)."""
        if may_ask(request.headers.get("Host", ""), self._hosts):
            return await handler(request)
        sentence = (
            "This name is not served; use kubectl port-forward and 127.0.0.1, or allow the name "
            "with --page-hosts."
        )
        return _json_bytes(msgspec.json.encode(ProblemShown(error=sentence)), 421)

    @web.middleware
    async def explain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer what is not there with a sentence, in the form that was asked for."""
        try:
            return await handler(request)
        except NotThereError as problem:
            sentence = str(problem)
        except web.HTTPNotFound:
            sentence = "There is nothing at this address; the fleet is at /."
        if request.path.startswith("/api/"):
            return _json_bytes(msgspec.json.encode(ProblemShown(error=sentence)), 404)
        replica = (await self._source.state()).replica()
        text = render("problem", replica, title="Not found", sentence=sentence)
        return _html(text.encode(), 404)


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")


def _html(body: bytes, status: int = 200) -> web.Response:
    return _answer(body, status, "text/html", charset="utf-8")


def _json_bytes(body: bytes, status: int = 200) -> web.Response:
    return _answer(body, status, "application/json")


def _answer(
    body: bytes, status: int, content_type: str, charset: str | None = None
) -> web.Response:
    """Compressed in a thread where it is large: a fleet of 5,000 nodes is a page of 1 MB."""
    response = web.Response(
        body=body,
        status=status,
        content_type=content_type,
        charset=charset,
        zlib_executor_size=_COMPRESSED_FROM,
    )
    if len(body) > _COMPRESSED_FROM:
        response.enable_compression()
    return response


def mount(app: web.Application, source: PageSource, hosts: Collection[str] = ()) -> None:
    """Serve the review page and its JSON from `source`; `hosts`: public names to answer to."""
    Site(source, hosts).mount(app)
