"""Serve the review page: pages for fleet, node and history, the runbooks, and the same as JSON.

All routes are GET and read-only, and pages load nothing from other sites. `serve_page` listens on
its own port, so that probes and metrics can be exposed without the page. Pages are rendered in a
worker thread, once per address and state.
"""

import asyncio
import dataclasses
import functools
import hashlib
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import structlog
from aiohttp import web

from remediator.page import rendering, server
from remediator.page.server import ListenError, Served
from remediator.view import fleet_view, node_view
from remediator.view.shapes import FleetFilter, FleetPage, HistoryPage, NodePage, ProblemShown
from remediator.view.state import LiveSource, PageState

_LOG = structlog.get_logger()
OFF = "off"
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
_INSIDE: Final = (".localhost", ".svc", ".svc.cluster.local")
_MOST_KEPT = 64
_COMPRESSED_FROM = 4096
_MOST_ASKED = 253
"""Longest value of a filter, as long as the longest node name."""
_NAMES_THERE = "/api/fleet"

Page = FleetPage | NodePage | HistoryPage
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NotThereError(Exception):
    """Nothing exists at this address; the text is one sentence."""


def hosts_of(setting: str) -> frozenset[str]:
    """Return the host names of a comma-separated setting."""
    return frozenset(name for part in setting.split(",") if (name := part.strip().lower()))


def may_ask(header: str, allowed: Collection[str]) -> bool:
    """Return whether a request with this Host header is answered.

    IP addresses and cluster-internal names are allowed. A public DNS name must be in `allowed`, as
    protection against DNS rebinding: a hostile site could resolve its own name to 127.0.0.1, and
    its script could read the page through a port-forward.
    """
    name = header.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.rpartition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        inside = "." not in name or name.endswith(_INSIDE) or name in allowed
        return ":" not in name and inside
    return True


def filter_of(query: Mapping[str, str]) -> FleetFilter:
    """Return the filter in the query of a request."""
    names = FleetFilter.__struct_fields__
    return FleetFilter(**{name: query.get(name, "").strip()[:_MOST_ASKED] for name in names})


def node_address(name: str, session: str = "") -> str:
    """Return the quoted address of a node's page, at one of its sessions."""
    anchor = f"#session-{quote(session, safe='')}" if session else ""
    return f"/nodes/{quote(name, safe='')}{anchor}"


def only_match(state: PageState, wanted: FleetFilter) -> str:
    """Return the address of the only node that a search matches; "" for none or several."""
    if not wanted.q or wanted != FleetFilter(q=wanted.q):
        return ""
    if wanted.q in state.snapshot.nodes:
        return node_address(wanted.q)
    if session := state.snapshot.quarantines.get(wanted.q):
        return node_address(session.spec.node_name, session.name)
    found = fleet_view.search(state, wanted.q)
    return node_address(*next(iter(found.items()))) if len(found) == 1 else ""


def _fleet(state: PageState, request: web.Request) -> Page:
    return fleet_view.fleet_page(state, filter_of(request.query))


def _node(state: PageState, request: web.Request) -> Page:
    name = request.match_info["name"]
    if (page := node_view.node_page(name, state)) is None:
        raise NotThereError(f"No GPU node {name} is known; {_NAMES_THERE} lists them.")
    return page


def _history(state: PageState, _: web.Request) -> Page:
    return fleet_view.history_page(state)


class Site:
    """The handlers of all routes."""

    def __init__(self, source: LiveSource, hosts: Collection[str]) -> None:
        self._source = source
        self._hosts = hosts
        self._static = {name: (_FOLDER / name).read_bytes() for name in _STATIC}
        self._of: PageState | None = None
        self._made: dict[str, asyncio.Task[bytes]] = {}

    def mount(self, app: web.Application) -> None:
        """Add every route."""
        routes = app.router
        for html, api, make in (
            ("/", "/api/fleet", _fleet),
            ("/nodes/{name}", "/api/nodes/{name}", _node),
            ("/history", "/api/history", _history),
        ):
            routes.add_get(html, functools.partial(self._page, make, as_json=False))
            routes.add_get(api, functools.partial(self._page, make, as_json=True))
        routes.add_get("/sessions/{name}", self.session)
        routes.add_get("/docs/{name:.+}", self.runbook)
        routes.add_get("/static/{name}", self.static)
        app.middlewares.extend([self.check_host, self.explain])
        app.on_response_prepare.append(_set_headers)

    async def _page(
        self,
        make: Callable[[PageState, web.Request], Page],
        request: web.Request,
        *,
        as_json: bool,
    ) -> web.StreamResponse:
        state = await self._source.state()
        found = only_match(state, filter_of(request.query)) if request.path == "/" else ""
        if found:
            raise web.HTTPFound(found)

        def encoded(ready: PageState) -> bytes:
            page = make(ready, request)
            return msgspec.json.encode(page) if as_json else rendering.render_page(page).encode()

        async def body() -> bytes:
            ready = await self._with_read(state, request.match_info.get("name", ""))
            return await asyncio.to_thread(encoded, ready)

        made = await self._once(state, request.rel_url.raw_path_qs, body)
        return _json(made) if as_json else _html(made)

    async def _with_read(self, state: PageState, node: str) -> PageState:
        """Return the state with the GPUNodeHealth of a healthy node, which must be read."""
        if node not in state.snapshot.nodes or node in state.snapshot.healths:
            return state
        found = await self._source.health(node)
        return state if found is None else dataclasses.replace(state, read={node: found})

    async def _once(
        self, state: PageState, key: str, make: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """Return the cached body, or make it once for all requests that wait for it."""
        if state is not self._of or len(self._made) >= _MOST_KEPT:
            self._of = state
            self._made.clear()
        if key not in self._made:
            self._made[key] = made = asyncio.ensure_future(make())
            # Retrieve the exception, in case all requests were cancelled.
            made.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._made[key])

    async def session(self, request: web.Request) -> web.StreamResponse:
        """Redirect to a session on the page of its node."""
        name = request.match_info["name"]
        session = (await self._source.state()).snapshot.quarantines.get(name)
        if session is None:
            raise NotThereError(f"There is no session {name}; {_NAMES_THERE} lists the open ones.")
        raise web.HTTPFound(node_address(session.spec.node_name, name))

    async def runbook(self, request: web.Request) -> web.StreamResponse:
        """Return a runbook."""
        path = request.match_info["name"]
        replica = (await self._source.state()).replica
        try:
            title, text = rendering.runbook_title(path), rendering.runbook_html(path)
        except KeyError:
            raise NotThereError(f"There is no runbook {path[:200]}.") from None
        return _html(rendering.render("runbook", replica, title=title, text=text).encode())

    async def static(self, request: web.Request) -> web.StreamResponse:
        """Serve style sheets, script and icon."""
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

    @web.middleware
    async def check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse host names that are not allowed (`may_ask`)."""
        if may_ask(request.headers.get("Host", ""), self._hosts):
            return await handler(request)
        sentence = (
            "This host name is not allowed; use kubectl port-forward and 127.0.0.1, or allow it "
            "with --page-hosts."
        )
        return _json(msgspec.json.encode(ProblemShown(error=sentence)), 421)

    @web.middleware
    async def explain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer 404 with one sentence, as HTML or JSON."""
        try:
            return await handler(request)
        except NotThereError as problem:
            sentence = str(problem)
        except web.HTTPNotFound:
            sentence = "There is nothing at this address; the fleet is at /."
        if request.path.startswith("/api/"):
            return _json(msgspec.json.encode(ProblemShown(error=sentence)), 404)
        replica = (await self._source.state()).replica
        text = rendering.render("problem", replica, title="Not found", sentence=sentence)
        return _html(text.encode(), 404)


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")


def _html(body: bytes, status: int = 200) -> web.Response:
    return _answer(body, status, "text/html", "utf-8")


def _json(body: bytes, status: int = 200) -> web.Response:
    return _answer(body, status, "application/json", None)


def _answer(body: bytes, status: int, content_type: str, charset: str | None) -> web.Response:
    """Return a response; large bodies are compressed in a thread."""
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


def mount(app: web.Application, source: LiveSource, hosts: Collection[str] = ()) -> None:
    """Add the routes of the page to `app`; `hosts` are allowed public names."""
    Site(source, hosts).mount(app)


async def serve_page(
    source: LiveSource, listen: str, hosts: Collection[str] = ()
) -> Served | None:
    """Serve the page on `listen`, unless it is `off`. If the port is in use, log it and return
    None. ListenError for an invalid address.
    """
    if listen == OFF:
        return None
    try:
        server.parse_listen(listen)
    except ListenError:
        raise ListenError(
            f"--page-listen {listen} is not HOST:PORT; write for example :9414, or off."
        ) from None
    app = web.Application(client_max_size=64 * 1024)
    mount(app, source, hosts)
    try:
        served = await server.start_server(app, listen)
    except ListenError as problem:
        _LOG.warning("review page", problem=str(problem).replace("--listen", "--page-listen"))
        return None
    _LOG.info("review page", page_port=served.port)
    return served
