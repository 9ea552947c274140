"""The one handler of every request: the rule that hits it, the upstream's answer, the log.

Called by aiohttp, through a `listener`. `RequestLog` keeps what was asked, for assertions.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from hack.sim.cluster.resource import Address, read_address
from hack.sim.proxy.faults import Asked, Fault, Faults

KEPT = 200_000
MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answered call."""

    at: float
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    code: int = 200
    agent: str = ""
    user: str = ""
    dry_run: bool = False
    path: str = ""
    body: bytes = b""

    @property
    def is_mutation(self) -> bool:
        """Whether it was to change an object."""
        return self.verb in MUTATING and not self.dry_run


class RequestLog:
    """The calls a server answered."""

    def __init__(self) -> None:
        self.all: deque[Request] = deque(maxlen=KEPT)
        self._counts: Counter[tuple[str, str, str, int, str, bool]] = Counter()

    def note(self, request: Request) -> None:
        """Remember an answered HTTP call."""
        self.all.append(request)
        key = (
            request.verb,
            request.resource,
            request.subresource,
            request.code,
            request.agent,
            request.dry_run,
        )
        self._counts[key] += 1

    def count(
        self,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        *,
        code: int | None = None,
        agent: str | None = None,
        dry_run: bool | None = None,
    ) -> int:
        """How many HTTP calls match; None matches all, `agent` is the user agent's beginning."""
        return sum(
            count
            for (v, r, s, c, a, d), count in self._counts.items()
            if (verb is None or v == verb)
            and (resource is None or r == resource)
            and (subresource is None or s == subresource)
            and (code is None or c == code)
            and (agent is None or a.startswith(agent))
            and (dry_run is None or d == dry_run)
        )

    @property
    def mutations(self) -> list[Request]:
        """Every mutating HTTP call that was not a dry run, oldest first."""
        return [one for one in self.all if one.is_mutation]

    def clear(self) -> None:
        """Forget everything, to count from here."""
        self.all.clear()
        self._counts.clear()


_REVIEWS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups whose objects are questions: nothing is stored."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One request on its way: what it is about, who asks, what it carries."""

    request: web.BaseRequest
    address: Address
    body: bytes | None
    """None when it was larger than the listener takes."""
    user: str
    note: Callable[[int], None] = field(repr=False)
    """Write it down with this code: for streams, when they begin; others are written down here."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.request.method

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing is to be stored."""
        return b'"dryRun"' in (self.body or b"") or "dryRun" in self.request.rel_url.query

    def asked(self) -> Asked:
        """What rules look at."""
        changes = self.address.verb in MUTATING and self.address.group not in _REVIEWS
        return Asked(
            method=self.method,
            path=self.request.path,
            agent=self.request.headers.get("User-Agent", ""),
            user=self.user,
            is_write=changes and self.address.subresource != "token" and not self.is_dry_run,
        )


class Upstream(Protocol):
    """What answers the requests that no rule takes away."""

    def user(self, request: web.BaseRequest) -> str:
        """Who asks, as far as the credentials say; nobody is refused here."""

    async def answer(self, call: Call) -> web.StreamResponse:
        """The answer; a stream is already sent when this returns."""


class Proxy:
    """Answers requests, by rule or by its upstream."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        faults: Faults,
        log: RequestLog,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._upstream = upstream
        self._faults = faults
        self._log = log
        self._clock = clock

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, answered whatever happens."""
        call = await self._read(request)
        await self._faults.while_frozen()
        fault = self._faults.find(call.asked())
        if fault is not None and not fault.after:
            injured = await self._injure(request, fault)
            if injured is not None:
                call.note(injured.status)
                return injured
        response = await self._upstream.answer(call)
        if fault is not None and fault.after:
            response = await self._injure(request, fault) or response
        if not response.prepared:
            call.note(response.status)
        return response

    async def _read(self, request: web.BaseRequest) -> Call:
        watch = request.rel_url.query.get("watch", "") in {"true", "1"}
        body: bytes | None = b""
        if request.method in {"POST", "PUT", "PATCH", "DELETE"}:
            try:
                body = await request.read()
            except web.HTTPRequestEntityTooLarge:
                body = None
        call = Call(
            request=request,
            address=read_address(request.method, request.path, watch=watch),
            body=body,
            user=self._upstream.user(request),
            note=lambda code: self._note(call, code),
        )
        return call

    @staticmethod
    async def _injure(request: web.BaseRequest, fault: Fault) -> web.Response | None:
        """What a fault makes of the request; None when it is answered as usual after all."""
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        if fault.then is not None:
            fault.then()
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

    def _note(self, call: Call, code: int) -> None:
        address = call.address
        self._log.note(
            Request(
                at=self._clock(),
                verb=address.verb,
                group=address.group,
                resource=address.resource,
                subresource=address.subresource,
                namespace=address.namespace,
                name=address.name,
                code=code,
                agent=call.request.headers.get("User-Agent", ""),
                user=call.user,
                dry_run=call.is_dry_run,
                path=call.request.path_qs,
                body=call.body or b"",
            )
        )
