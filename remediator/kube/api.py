"""HTTP calls to the API server, with rate limits, connection limits and metrics.

All readers and the gateway call `Api`; nothing else opens a connection to the API server. Refusals
and timeouts are returned as values, too (`answer.Answer`). This module never retries a write,
because only the caller knows whether that is safe.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import lru_cache, partial
from typing import Any, TypeVar

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload
from yarl import URL

from remediator import version
from remediator.kube.access import Access
from remediator.kube.answer import (
    EXCHANGE_ERRORS,
    NO_ANSWER,
    Answer,
    Items,
    Rejection,
    TooLargeError,
    is_tls_failure,
    seconds,
    served_at,
    why,
)
from remediator.kube.clock import CallQueue, Clock, RateLimiter, Slots
from rules.api.kube_config import KubeConfigError

T = TypeVar("T")

MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"

# An eviction of a Pending or terminating pod may take 10 s on the server before its 409
# (EvictionsRetry of the eviction registry).
CALL_TIMEOUT_S = 30.0
# Most calls in flight per queue (`Slots`); evictions wait on the server, so they need the most.
# Each connection costs about 0.4 MiB, most of it a TLS buffer of asyncio.
IN_FLIGHT = {
    CallQueue.LEASE: 2,
    CallQueue.TAINT: 32,
    CallQueue.EVICT: 64,
    CallQueue.READ: 24,
    CallQueue.OPEN: 24,
    CallQueue.STATUS: 24,
    CallQueue.RECORD: 16,
}
# In a storm all nodes are quarantined first, then pods are evicted, then the rest is recorded. A
# call waits for these queues before it takes a slot, but at most so many seconds.
AFTER = {
    CallQueue.STATUS: (frozenset({CallQueue.TAINT, CallQueue.OPEN}), 2.0),
    CallQueue.RECORD: (
        frozenset({CallQueue.TAINT, CallQueue.OPEN, CallQueue.STATUS, CallQueue.EVICT}),
        3.0,
    ),
}
_RELOAD_AFTER_401_S = 5.0
# A replaced credential file is in use after at most this time.
_COMPARE_FILES_S = 10.0
_BODY_LIMIT = 256 * 1024 * 1024

Observer = Callable[[str, CallQueue, int, float], None]
"""Called after every call, and once a watch is open, with (method, queue, code, seconds)."""


class Api:
    """HTTP calls to one API server."""

    def __init__(
        self,
        access: Access,
        clock: Clock,
        rate_limiter: RateLimiter,
        observe: Observer | None = None,
    ) -> None:
        self._access = access
        self._clock = clock
        self._rate_limiter = rate_limiter
        self._observe = observe or (lambda *_: None)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}  # True: that of the lease alone
        self._slots = {call_queue: Slots(count) for call_queue, count in IN_FLIGHT.items()}
        self._under_way = dict.fromkeys(CallQueue, 0)
        """Calls in flight or waiting, by queue."""
        self._clear = {call_queue: asyncio.Event() for call_queue in AFTER}
        """By queue, set while no call that goes before it is under way."""
        self._count(CallQueue.LEASE, 0)
        self._reloaded_at = self._compared_at = float("-inf")
        self.rejection = Rejection(clock.elapsed())
        self.last_answer_at: float | None = None
        """CLOCK_BOOTTIME of the last answer of any kind; None before the first."""

    async def open(self) -> None:
        """Create the connection pools; `Access.load` must come first."""
        self._sessions = {
            of_lease: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": version.user_agent(), "Accept": JSON},
                timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S, sock_connect=10),
            )
            for of_lease in (True, False)
        }

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions = {}

    @property
    def host(self) -> str:
        """Scheme, name and port of the API server."""
        return self._access.host

    async def call(
        self,
        call_queue: CallQueue,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = CALL_TIMEOUT_S,
        before_send: Callable[[], None] | None = None,
        in_turn: bool = False,
    ) -> Answer:
        """Send one call and return its answer, refusals included.

        Set `in_turn` inside `turn`. `body` is JSON-encoded unless it is bytes. `before_send` needs
        a body. It runs on the open connection just before the request is written. If it raises
        HeldError, nothing is sent and the error is raised here.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        media = (content_type, accept)
        send = partial(
            self._send, call_queue, method, path, query, data, media, timeout_s, before_send
        )
        async with nullcontext() if in_turn else self.turn(call_queue):
            sent_at = self._clock.elapsed()
            answer = await send()
            if (answer.code == 401 or answer.untrusted) and await self._renew_credentials():
                answer = await send()
            await self._adapt(call_queue, answer, sent_at)
        return answer

    async def _adapt(self, call_queue: CallQueue, answer: Answer, sent_at: float) -> None:
        if call_queue is CallQueue.LEASE:
            return  # it is renewed whatever the load is
        slots, now = self._slots[call_queue], self._clock.elapsed()
        if answer.overloaded:
            slots.limit.overloaded(sent_at, now, answer.retry_after_s or 0.0)
        elif answer.code != NO_ANSWER:
            slots.limit.answered(now)
        await slots.adapt()

    @asynccontextmanager
    async def turn(self, call_queue: CallQueue) -> AsyncIterator[None]:
        """Wait for a slot and a token of this queue. Data read inside stays fresh, because the
        call inside does not wait again.
        """
        self._count(call_queue, 1)
        try:
            await self._yield_to_others(call_queue)
            async with self._slots[call_queue]:
                await self._rate_limiter.acquire(call_queue)
                await self._slots[call_queue].pause(self._clock)
                yield
        finally:
            self._count(call_queue, -1)

    def limits(self) -> dict[CallQueue, int]:
        """How many calls of each queue may be in flight now."""
        return {call_queue: slots.limit.number for call_queue, slots in self._slots.items()}

    def under_way(self, call_queue: CallQueue) -> int:
        """The calls of this queue in flight or waiting."""
        return self._under_way[call_queue]

    def _count(self, call_queue: CallQueue, change: int) -> None:
        self._under_way[call_queue] += change
        for waiting, (before, _) in AFTER.items():
            if any(self._under_way[one] for one in before):
                self._clear[waiting].clear()
            else:
                self._clear[waiting].set()

    async def _yield_to_others(self, call_queue: CallQueue) -> None:
        if call_queue in AFTER:
            with suppress(TimeoutError):
                async with asyncio.timeout(AFTER[call_queue][1]):
                    await self._clear[call_queue].wait()

    async def get(self, path: str, kind: type[T], *, query: Mapping[str, str] | None = None) -> T:
        """One object or list, decoded; ApiError for any refusal."""
        return (await self.call(CallQueue.READ, "GET", path, query=query)).decode(kind)

    async def items(
        self,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, str] | None = None,
        limit: int = 500,
        pages: int | None = None,
        accept: str = JSON,
    ) -> Items[T]:
        """All items of a list, page by page, each decoded by itself; ApiError for any refusal.

        At most `pages` pages are read, so that memory stays bounded.
        """
        found: list[T] = []
        unread: list[str] = []
        asked = {**(query or {}), **({"limit": str(limit)} if limit else {})}
        while pages is None or pages > 0:
            answer = await self.call(CallQueue.READ, "GET", path, query=asked, accept=accept)
            page = answer.items(kind)
            found += page.found
            unread += page.unread
            pages = pages - 1 if pages is not None else None
            if not page.more:
                break
            asked["continue"] = page.more
        return Items(found=tuple(found), unread=tuple(unread))

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float, accept: str = JSON
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a watch. Silence of more than `silence_s` is an error."""
        headers = [*await self._headers(), ("Accept", accept)]
        began = self._clock.elapsed()
        request = self._opened(CallQueue.READ).get(
            self._access.host + path,
            params=dict(query),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence_s),
            **self._connection(),
        )
        try:
            response = await request
        except EXCHANGE_ERRORS as error:
            self.rejection.failed(error, now := self._clock.elapsed())
            self._observe("GET", CallQueue.READ, NO_ANSWER, now - began)
            if is_tls_failure(error):
                await self._renew_credentials()
            raise
        async with response:
            self.last_answer_at = now = self._clock.elapsed()
            self.rejection.answered(response.status, now)
            self._observe("GET", CallQueue.READ, response.status, now - began)
            yield response

    async def read_answer(self, response: aiohttp.ClientResponse) -> Answer:
        """Read a response as an answer, for a watch that was refused."""
        answer = await _answer(response)
        if answer.code == 401:
            await self._renew_credentials()
        return answer

    def _opened(self, call_queue: CallQueue) -> aiohttp.ClientSession:
        if not self._sessions:
            raise RuntimeError("Api.open() must come before the first call")
        return self._sessions[call_queue is CallQueue.LEASE]

    def _connection(self) -> dict[str, Any]:
        tls: ssl.SSLContext | bool = self._access.tls or True
        return {
            "ssl": tls,
            "server_hostname": self._access.server_name,
            "proxy": self._access.proxy,
        }

    async def _send(
        self,
        call_queue: CallQueue,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        media: tuple[str, str],
        timeout_s: float,
        before_send: Callable[[], None] | None,
    ) -> Answer:
        """Send one request and return its answer. Only reads follow redirects."""
        content_type, accept = media
        headers = [*await self._headers(), ("Accept", accept)]
        if data is not None:
            headers.append(("Content-Type", content_type))
        body = data if before_send is None else _Guarded(data or b"", before_send)
        local = self._clock
        sent_at, began = local.local(), local.elapsed()
        try:
            async with self._opened(call_queue).request(
                method,
                _url(self._access.host + path),
                params=query,
                data=body,
                headers=headers,
                timeout=_timeout(timeout_s),
                allow_redirects=method == "GET",
                **self._connection(),
            ) as response:
                if (response.content_length or 0) > _BODY_LIMIT:
                    raise TooLargeError(_BODY_LIMIT)
                answer, date = await _answer(response), response.headers.get("Date", "")
            self.last_answer_at = now = local.elapsed()
            self.rejection.answered(answer.code, now)
            self._learn_date(date, sent_at)
        except TimeoutError:
            answer = Answer(code=NO_ANSWER, failure=f"nothing within {timeout_s:g} s", late=True)
        except EXCHANGE_ERRORS as error:
            if isinstance(body, _Guarded) and body.raised is not None:
                raise body.raised from None
            self.rejection.failed(error, local.elapsed())
            untrusted = isinstance(error, aiohttp.ClientSSLError)
            answer = Answer(code=NO_ANSWER, failure=why(error), untrusted=untrusted)
        self._observe(method, call_queue, answer.code, local.elapsed() - began)
        return answer

    def _learn_date(self, date: str, sent_at: float) -> None:
        if not date:
            return
        at = served_at(date)
        if at is not None:
            self._clock.learn(at, sent_at)

    async def _headers(self) -> list[tuple[str, str]]:
        """The credential headers; checks every few seconds whether the files changed."""
        now = self._clock.elapsed()
        if now - self._compared_at >= _COMPARE_FILES_S:
            self._compared_at = now
            if self._access.changed():
                await self._renew_credentials()
        return self._access.headers()

    async def _renew_credentials(self) -> bool:
        """Read credentials and certificates again; False when that was done a moment ago."""
        now = self._clock.elapsed()
        if now - self._reloaded_at < _RELOAD_AFTER_401_S:
            return False
        self._reloaded_at = now
        try:
            await self._access.load()
        except KubeConfigError:
            return False
        return True


@lru_cache(maxsize=16)
def _timeout(total_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=10)


class _Guarded(BytesPayload):
    """A body that is written after a last check. aiohttp sends the head together with the first
    bytes of the body, so that nothing is sent if the check raises.
    """

    def __init__(self, value: bytes, check: Callable[[], None]) -> None:
        super().__init__(value)
        self.raised: Exception | None = None
        """The error of the check; aiohttp reports a lost connection instead."""
        self._check = check

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        try:
            self._check()
        except Exception as error:
            self.raised = error
            raise
        await super().write_with_length(writer, content_length)


def _url(address: str) -> URL:
    """The address as URL, without normalisation that could change the path."""
    if not address.isascii() or not address.isprintable() or " " in address:
        raise ValueError(f"not the address of a request: {address[:200]!r}")
    return URL(address, encoded=True)


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    return Answer(
        code=response.status,
        body=await response.read(),
        content_type=response.headers.get("Content-Type", ""),
        retry_after_s=seconds(response.headers.get("Retry-After", "")),
    )
