"""The review page's own HTTP site: GET only, nothing that writes, no address outside.

`mount` adds every route to an application; `service` puts it on its own port. Pages are made in a
worker thread, each address at most once per state.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import zlib
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from remediator.page import answers
from remediator.page.answers import NotThereError
from remediator.page.hosts import may_ask
from remediator.page.layout import opening
from remediator.page.markup import Element, document
from remediator.page.schema import schema_text
from remediator.view.lists.paging import RequestError
from remediator.view.live import PageSource
from remediator.view.shapes import ProblemShown
from remediator.view.state import PageState

_FOLDER = Path(__file__).parent
_STATIC: Final = {
    "page.css": "text/css",
    "parts.css": "text/css",
    "details.css": "text/css",
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
_PAGES = (
    "/docs/runbooks/{name}",
    "/docs/runbooks/blocked/{name}",
    "/sessions",
    "/sessions/{name}",
    "/nodes",
    "/nodes/{name}",
    "/history",
)
_ANSWERS: Final[dict[str, Callable[[PageState, web.Request], object]]] = {
    "/api/fleet": lambda state, _: answers.api_fleet(state),
    "/api/nodes": lambda state, request: answers.api_nodes(state, request.query),
    "/api/nodes/{name}": lambda state, request: answers.api_node(state, _name(request)),
    "/api/sessions": lambda state, request: answers.api_sessions(state, request.query),
    "/api/sessions/{name}": lambda state, request: answers.api_session(state, _name(request)),
    "/api/history": lambda state, _: answers.api_history(state),
}
_MOST_KEPT = 64
_COMPRESSED_FROM = 4096
_OPENING: Final = opening()
_BROKEN_OFF: Final = (
    "<title>gpuward</title></head><body><p>This page could not be made: a defect of gpuward, "
    "which its log has behind the words Error handling request. Other pages may be whole: "
    '<a href="/sessions">/sessions</a>.</p>'
)
_FIRST_PIECE = 32 * 1024
"""More than what stands above the map: a browser shows it while the map is on its way."""

_GZIP = 31
"""zlib's way to say: the largest window, in a gzip frame."""

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """Handlers over one source."""

    def __init__(self, source: PageSource, hosts: Collection[str]) -> None:
        self._source = source
        self._hosts = hosts
        self._static = {name: (_FOLDER / name).read_bytes() for name in _STATIC}
        self._of: PageState | None = None
        self._documents: dict[str, asyncio.Task[Element]] = {}
        self._texts: dict[str, asyncio.Task[str]] = {}

    def mount(self, app: web.Application) -> None:
        """Add every route."""
        routes = app.router
        for path in _PAGES:
            routes.add_get(path, self.page)
        routes.add_get("/", self.fleet)
        routes.add_get("/find", self.find)
        routes.add_get("/static/{name}", self.static)
        for path, answer in _ANSWERS.items():
            routes.add_get(path, self._json(answer))
        routes.add_get("/api/live", self.live)
        routes.add_get("/api/schema", self.schema)  # fmt: skip
        app.middlewares.extend([self.check_host, self.explain])
        app.on_response_prepare.append(_set_headers)

    async def page(self, request: web.Request) -> web.StreamResponse:
        """Any page, as HTML."""
        state = await self._source.state()
        address = request.rel_url.raw_path_qs
        text = await self._kept(state, self._texts, address, lambda: self._text(state, request))
        return _html(text)

    async def fleet(self, request: web.Request) -> web.StreamResponse:
        """The front page, as HTML in pieces, since it is the one that can be large: what is seen
        first does not wait until every node is drawn.
        """
        if request.method != "GET":
            return await self.page(request)
        response = web.StreamResponse()
        response.content_type, response.charset = "text/html", "utf-8"
        packer = None
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.headers["Content-Encoding"] = "gzip"
            packer = zlib.compressobj(wbits=_GZIP)

        def packed(text: str) -> bytes:
            data = text.encode()
            return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH) if packer else data

        await response.prepare(request)
        await response.write(packed(_OPENING))
        try:
            state = await self._source.state()
            address = request.rel_url.raw_path_qs
            made = self._kept(state, self._texts, address, lambda: self._text(state, request))
            body = (await made).removeprefix(_OPENING)
        except Exception:
            # The status is sent: a reader is told in the page, the connection breaks off after it.
            await response.write(packed(_BROKEN_OFF))
            raise
        await response.write(packed(body[:_FIRST_PIECE]))
        await response.write(await asyncio.to_thread(packed, body[_FIRST_PIECE:]))
        await response.write_eof(packer.flush() if packer else b"")
        return response

    async def _text(self, state: PageState, request: web.Request) -> str:
        url = request.rel_url
        if url.raw_path.startswith("/docs/runbooks/"):
            return await asyncio.to_thread(answers.runbook_of, state, url.raw_path)
        made = await self._document(state, url.raw_path, dict(request.query))
        return await asyncio.to_thread(document, made)

    async def _document(self, state: PageState, path: str, query: dict[str, str]) -> Element:
        async def make() -> Element:
            ready = await self._with_reads(state, path)
            return await asyncio.to_thread(answers.document_of, ready, path, query)

        return await self._kept(state, self._documents, f"{path}?{sorted(query.items())}", make)

    async def _with_reads(self, state: PageState, path: str) -> PageState:
        """The state with the verdicts that this path shows and that nobody watches."""
        names = await asyncio.to_thread(answers.nodes_to_read, state, path)
        if not names:
            return state
        found = await asyncio.gather(*(self._source.verdict(name) for name in names))
        read = {name: one for name, one in zip(names, found, strict=True) if one is not None}
        return dataclasses.replace(state, read=read)

    async def _kept(
        self,
        state: PageState,
        kept: dict[str, asyncio.Task[T]],
        key: str,
        make: Callable[[], Awaitable[T]],
    ) -> T:
        """What was made of this state already, else made now, once for all who wait for it."""
        if state is not self._of:
            self._of = state
            self._documents.clear()
            self._texts.clear()
        if key not in kept:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[key] = made = asyncio.ensure_future(make())
            # Everybody who waits may have gone by the time it fails; then nobody is to hear of it.
            made.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(kept[key])

    async def find(self, request: web.Request) -> web.StreamResponse:
        """The search field."""
        state = await self._source.state()
        raise web.HTTPFound(answers.find(state, request.query.get("name", "")))

    async def static(self, request: web.Request) -> web.StreamResponse:
        """Style sheet, script and icon."""
        name = _name(request)
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

    def _json(self, answer: Callable[[PageState, web.Request], object]) -> Handler:
        async def serve(request: web.Request) -> web.StreamResponse:
            state = await self._with_reads(await self._source.state(), request.rel_url.raw_path)
            return _json(await asyncio.to_thread(answer, state, request))

        return serve

    async def live(self, request: web.Request) -> web.StreamResponse:
        """`/api/live`: what changed on the page that the script stands on."""
        path, query = answers.split_page(request.query.get("page", ""))
        state = await self._source.state()
        made = await self._document(state, path, query)
        wanted = request.query.getall("region", [])
        return _json(await asyncio.to_thread(answers.api_live, made, state, wanted))

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
        return _json(ProblemShown(error=sentence), 421)

    @web.middleware
    async def explain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer what cannot be answered with a sentence, in the form that was asked for."""
        try:
            return await handler(request)
        except RequestError as problem:
            status, title, sentence = 400, "Not understood", str(problem)
        except NotThereError as problem:
            status, title, sentence = 404, "Not found", str(problem)
        except web.HTTPNotFound:
            status, title = 404, "Not found"
            sentence = "There is nothing at this address; the fleet is at /."
        if request.path.startswith("/api/"):
            return _json(ProblemShown(error=sentence), status)
        state = await self._source.state()
        return _html(document(answers.problem_page(state, title, sentence)), status)


def _name(request: web.Request) -> str:
    return request.match_info["name"]


async def _set_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")


def _html(text: str, status: int = 200) -> web.Response:
    return _squeezed(web.Response(text=text, status=status, content_type="text/html"))


def _json(value: object, status: int = 200) -> web.Response:
    return _squeezed(
        web.Response(
            body=msgspec.json.encode(value), status=status, content_type="application/json"
        )
    )


def _squeezed(response: web.Response) -> web.Response:
    if (response.content_length or 0) > _COMPRESSED_FROM:
        response.enable_compression()
    return response


def mount(app: web.Application, source: PageSource, hosts: Collection[str] = ()) -> None:
    """Serve the review page and its JSON from `source`; `hosts`: public names to answer to."""
    Site(source, hosts).mount(app)
