"""HTTP in front of the engine: one handler for every request of one server.

Called by aiohttp.  Order as on a real server: faults, authentication, authorization, routing; every
refusal is a Status.  Watches are answered in ``watch_stream``, resource calls in ``resource_calls``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

import msgspec
from aiohttp import web

from hack.sim.cluster.addresses import Address, read_address
from hack.sim.cluster.authentication import ANONYMOUS, Authenticator, impersonated, unauthorized
from hack.sim.cluster.authorization import Authorizer
from hack.sim.cluster.calls import ADMIN, Caller
from hack.sim.cluster.discovery import HEALTH_PATHS, discover
from hack.sim.cluster.engine import Engine
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.faults import Fault, Faults
from hack.sim.cluster.openapi import openapi_document
from hack.sim.cluster.request_log import Request, RequestLog
from hack.sim.cluster.resource_calls import Reply, ResourceCalls
from hack.sim.cluster.reviews import Reviews
from hack.sim.cluster.statuses import no_such_path
from hack.sim.cluster.store import encode
from hack.sim.cluster.watch_stream import stream_watch

_JSON = "application/json"
_OPEN_PATHS = HEALTH_PATHS | {"/version"}
BODY_LIMIT = 3 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class HttpLayer:
    """Answers requests."""

    engine: Engine
    authenticator: Authenticator
    authorizer: Authorizer | None
    faults: Faults
    log: RequestLog
    url: str = ""
    bookmark_interval_s: float = 60.0
    tells_time: bool = False
    """Whether answers are dated by the server's own clock (one that was set on purpose)."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, answered whatever happens."""
        path, method = request.path, request.method
        agent = request.headers.get("User-Agent", "")
        watch = request.rel_url.query.get("watch", "") in {"true", "1"}
        address = read_address(method, path, watch=watch)
        await self.faults.while_frozen()
        fault = self.faults.find(method, path, agent)
        if fault is not None:
            answered = await self._fault(request, fault)
            if answered is not None:
                self._note(request, address, ADMIN, answered.status, b"")
                return answered
        caller, body = Caller("system:anonymous"), b""
        try:
            caller = self._authenticate(request, address)
            if self.authorizer is not None:
                self.authorizer.check(caller, address)
            if method in {"POST", "PUT", "PATCH", "DELETE"}:
                body = await self._read(request)
            response = await self._answer(request, address, caller, body)
        except ApiError as error:
            response = refusal(error)
        if fault is not None and fault.after:
            response = await self._after(request, fault)
        if not response.prepared:
            if self.tells_time:
                response.headers["Date"] = format_datetime(
                    datetime.fromtimestamp(self.engine.clock(), UTC), usegmt=True
                )
            self._note(request, address, caller, response.status, body)
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

    @staticmethod
    async def _read(request: web.BaseRequest) -> bytes:
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise ApiError(
                413,
                "RequestEntityTooLarge",
                f"Request entity too large: limit is {BODY_LIMIT}",
            ) from None

    async def _answer(
        self, request: web.BaseRequest, address: Address, caller: Caller, body: bytes
    ) -> web.StreamResponse:
        if not address.is_resource:
            return self._plain(request, address)
        calls = ResourceCalls(
            self.engine, self.authenticator, Reviews(self.authenticator, self.authorizer)
        )
        if address.verb == "watch":
            selection, options, answer, timeout_s = calls.watch(address, request)
            kind = calls.kind(address)
            subscription = self.engine.watch(kind, selection, options)
            subscription.pause(paused=self.faults.watches_paused)
            self._note(request, address, caller, 200, body)
            try:
                return await stream_watch(
                    request,
                    self.engine,
                    subscription,
                    answer,
                    timeout_s,
                    self.bookmark_interval_s,
                )
            finally:
                self.engine.forget(subscription)
        reply = await calls.answer(address, request, caller, body, self.faults.stale_revision)
        return respond(reply)

    def _plain(self, request: web.BaseRequest, address: Address) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            raise no_such_path()
        if address.path.rstrip("/") in HEALTH_PATHS:
            return web.Response(text="ok")
        if address.path.startswith("/openapi"):
            document = openapi_document(self.engine.registry, address.path)
        else:
            document = discover(self.engine.registry, address.path, self.url)
        if document is None:
            if address.path.startswith(("/openapi", "/api")):
                raise no_such_path()
            return web.Response(status=404, text="404 page not found\n")
        return web.Response(body=encode(document), content_type=_JSON)

    async def _fault(self, request: web.BaseRequest, fault: Fault) -> web.Response | None:
        """What a fault makes of the request; None when it is answered as usual after all."""
        if fault.after:
            return None
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        return await self._injure(request, fault)

    async def _after(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        injured = await self._injure(request, fault)
        return injured if injured is not None else web.Response()

    async def _injure(self, request: web.BaseRequest, fault: Fault) -> web.Response | None:
        if fault.action == "delay":
            return None
        if fault.action == "hang":
            await asyncio.Event().wait()
        if fault.action == "reset":
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)
        return web.Response(
            status=fault.status,
            body=fault.body,
            headers={"Content-Type": fault.content_type, **fault.headers},
        )

    def _note(
        self, request: web.BaseRequest, address: Address, caller: Caller, code: int, body: bytes
    ) -> None:
        self.log.note(
            Request(
                at=self.engine.clock(),
                verb=address.verb,
                group=address.group,
                resource=address.resource,
                subresource=address.subresource,
                namespace=address.namespace,
                name=address.name,
                code=code,
                agent=request.headers.get("User-Agent", ""),
                user=caller.name,
                dry_run=b'"dryRun"' in body or "dryRun" in request.rel_url.query,
                path=request.path_qs,
                body=body,
            )
        )


def respond(reply: Reply) -> web.Response:
    """A reply as HTTP."""
    response = web.Response(status=reply.code, body=reply.body, content_type=_JSON)
    for warning in reply.warnings:
        quoted = msgspec.json.encode(warning).decode()
        response.headers.add("Warning", f"299 - {quoted}")
    return response


def refusal(error: ApiError) -> web.Response:
    """A refusal as HTTP: its Status."""
    response = web.Response(
        status=error.code, body=encode(error.status()), content_type=_JSON, headers=error.headers
    )
    seconds = error.details.get("retryAfterSeconds")
    if seconds and "Retry-After" not in error.headers:
        response.headers["Retry-After"] = str(seconds)
    return response
