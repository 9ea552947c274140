"""HTTP in front of the engine: one handler for every request of one server.

The upstream of the proxy that stands in front of it. Order as on a real server: authentication,
authorization, routing; every refusal is a Status.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

from aiohttp import web

from hack.sim.cluster.errors import ApiError, no_such_path
from hack.sim.cluster.http.access import (
    ANONYMOUS,
    REVIEWS,
    Authenticator,
    Authorizer,
    impersonated,
    review,
    unauthorized,
)
from hack.sim.cluster.http.discovery import HEALTH_PATHS, discover
from hack.sim.cluster.http.resource_calls import Asked, Reply, ResourceCalls
from hack.sim.cluster.resource import ADMIN, Address, Caller
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.listing import Subscription
from hack.sim.cluster.store.store import encode
from hack.sim.proxy.faults import Faults
from hack.sim.proxy.layer import Call

_JSON = "application/json"
_OPEN_PATHS = HEALTH_PATHS | {"/version"}
_MAX_WATCH_S = 3600
BODY_LIMIT = 3 * 1024 * 1024
BOOKMARK_EVERY_S = 60.0


@dataclass(slots=True, kw_only=True)
class HttpLayer:
    """Answers requests."""

    engine: Engine
    authenticator: Authenticator
    authorizer: Authorizer | None
    faults: Faults
    url: str = ""
    sends_date: bool = False
    """Whether answers are dated by the server's own clock (one that was set on purpose)."""

    def user(self, request: web.BaseRequest) -> str:
        """Who asks, as far as the credentials say."""
        try:
            caller = self.authenticator.authenticate(request.headers.get("Authorization"))
        except ApiError:
            caller = ANONYMOUS
        return request.headers.get("Impersonate-User") or caller.name

    async def answer(self, call: Call) -> web.StreamResponse:
        """One request, answered whatever happens."""
        try:
            caller = self._authenticate(call.request, call.address)
            call.user = caller.name
            if self.authorizer is not None:
                self.authorizer.check(caller, call.address)
            if call.body is None:
                text = f"Request entity too large: limit is {BODY_LIMIT}"
                raise ApiError(413, "RequestEntityTooLarge", text)
            response = await self._answer(call, caller, call.body)
        except ApiError as error:
            response = refusal(error)
        if self.sends_date and not response.prepared:
            response.headers["Date"] = format_datetime(
                datetime.fromtimestamp(self.engine.clock(), UTC), usegmt=True
            )
        return response

    def _authenticate(self, request: web.BaseRequest, address: Address) -> Caller:
        if not address.is_resource and address.path in _OPEN_PATHS:
            return ADMIN
        caller = self.authenticator.authenticate(request.headers.get("Authorization"))
        if caller is ANONYMOUS and self.authorizer is None:
            raise unauthorized()  # where everybody may do everything, somebody must be known
        wanted = request.headers.get("Impersonate-User")
        if not wanted:
            return caller
        if self.authorizer is not None:
            impersonation = Address(
                verb="impersonate", path="", version="v1", resource="users", name=wanted
            )
            self.authorizer.check(caller, impersonation)
        return impersonated(wanted, request.headers.getall("Impersonate-Group", []))

    async def _answer(self, call: Call, caller: Caller, body: bytes) -> web.StreamResponse:
        request, address = call.request, call.address
        if not address.is_resource:
            return self._plain(request, address)
        asked = Asked(
            address=address,
            query=request.rel_url.query,
            body=body,
            content_type=request.headers.get("Content-Type", ""),
            accept=request.headers.get("Accept", ""),
            agent=request.headers.get("User-Agent", ""),
        )
        if (address.group, address.resource) in REVIEWS and address.verb == "create":
            return respond(
                Reply(201, encode(review(address, caller, asked.posted, self.authorizer)))
            )
        calls = ResourceCalls(self.engine, self.authenticator)
        if address.verb != "watch":
            return respond(calls.answer(asked))
        timeout_s = asked.number("timeoutSeconds") or _MAX_WATCH_S
        subscription = calls.watch(asked)
        call.note(200)
        try:
            with self.faults.watching(subscription):
                return await self._stream(request, subscription, timeout_s)
        finally:
            self.engine.forget(subscription)

    async def _stream(
        self, request: web.BaseRequest, subscription: Subscription, timeout_s: float
    ) -> web.StreamResponse:
        """Answer with events until the time is over or the watch ends, bookmarks in between."""
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        ticker = loop.create_task(self._bookmarks(subscription))
        closer = loop.call_later(timeout_s, subscription.finish)
        # A watcher that went away cannot be reported anything.
        with contextlib.suppress(ConnectionError), contextlib.ExitStack() as ends:
            ends.callback(closer.cancel)
            ends.callback(ticker.cancel)
            while notices := await subscription.drain():
                await response.write(b"".join([one.line() for one in notices]))
            await response.write_eof()
        return response

    async def _bookmarks(self, subscription: Subscription) -> None:
        while not subscription.ended:
            await asyncio.sleep(BOOKMARK_EVERY_S)
            subscription.bookmark()

    def _plain(self, request: web.BaseRequest, address: Address) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            raise no_such_path()
        if address.path.rstrip("/") in HEALTH_PATHS:
            return web.Response(text="ok")
        document = discover(self.engine.registry, address.path, self.url)
        if document is None:
            raise no_such_path()
        return web.Response(body=encode(document), content_type=_JSON)


def respond(reply: Reply) -> web.Response:
    """A reply as HTTP."""
    return web.Response(status=reply.code, body=reply.body, content_type=_JSON)


def refusal(error: ApiError) -> web.Response:
    """A refusal as HTTP: its Status."""
    response = web.Response(
        status=error.code, body=encode(error.status()), content_type=_JSON, headers=error.headers
    )
    seconds = error.details.get("retryAfterSeconds")
    if seconds and "Retry-After" not in error.headers:
        response.headers["Retry-After"] = str(seconds)
    return response
