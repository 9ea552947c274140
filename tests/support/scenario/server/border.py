"""What a replica in virtual time meets instead of a network, a lease to fight for, and a log."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

import msgspec

from remediator.kube.answer import NO_ANSWER, Answer, ApiError, Sent
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, RateLimiter
from remediator.kube.elector import Elector
from remediator.kube.gateway import AboutWrite, Gateway
from remediator.kube.isolation import Isolation, expected
from remediator.metrics import Metrics
from remediator.replica import Border
from rules.api.requests import Request
from rules.api.writes import Write
from tests.support.remediator.virtual_loop import LoopClock
from tests.support.scenario.server.apiserver import CrashError, refusal
from tests.support.scenario.server.watches import Watches

EVICTION_S = 0.05
"""How long the answer to an eviction is on its way."""
_HANGS_S = 0.25
_SENDING: ContextVar[Write | None] = ContextVar("sending", default=None)
"""What the gateway sends just now: on the wire one cannot see what a request is for."""


@cache
def _kept_metrics() -> Metrics:
    """The same for every replica: to make a registry takes longer than a step of a scenario."""
    return Metrics()


class Process:
    """One life of a replica: what goes wrong in it, and whether it is over."""

    def __init__(self, server: Watches, clock: LoopClock, stop: Callable[[], None]) -> None:
        self.server = server
        self.clock = clock
        self.stop = stop
        self.crashed = False
        self.surprises: list[BaseException] = []
        self.never = asyncio.Event()
        """What a hanging caller waits for."""
        self.alone: Callable[[], bool] = lambda: False
        self.hand_over: Callable[[], None] = lambda: None

    def border(self) -> Border:
        """The set that a replica is made with."""
        return Border(
            clock=lambda: self.clock,
            rate_limiter=lambda rates, clock: RateLimiter(self.server.rates or rates, clock),
            metrics=_kept_metrics,
            api=partial(_MemoryApi, self),
            gateway=_SayingGateway,
            elector=partial(_SeatedElector, self),
            isolation=partial(_StrictIsolation, self),
        )

    def ended(self, part: asyncio.Task[None]) -> None:
        """A part that goes on for ever does not any more."""
        if not part.cancelled() and (error := part.exception()) is not None:
            self.surprises.append(error)
            self.stop()

    def answer(self, method: str, path: str, query: Mapping[str, str], wire: Request) -> Answer:
        """The server's answer; what a write changed is shown to the watches at once."""
        if method == "GET":
            return self.server.read(path, query)
        write = _SENDING.get()
        if write is None:
            return self.server.receive_lease(wire)
        answer = self.server.receive(write, wire)
        self.server.show()
        return answer


class _MemoryApi(Api):
    """Calls that a server in this process answers; rate limiter, turns and slots are the real
    ones.
    """

    def __init__(self, process: Process, *args: Any) -> None:
        super().__init__(*args)
        self._process = process

    @property
    def last_answer_at(self) -> float:  # type: ignore[override]
        """The lease is asked for every 2 s, and answered."""
        return self._process.clock.elapsed()

    @last_answer_at.setter
    def last_answer_at(self, at: float | None) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    @asynccontextmanager
    async def stream(  # type: ignore[override]
        self, path: str, query: Mapping[str, str], silence_s: float, accept: str = ""
    ) -> AsyncIterator[Any]:
        server = self._process.server
        if server.is_undefined(path):
            raise ApiError(refusal(404))
        if path in server.unwatched:
            raise ApiError(refusal(403))
        watch = server.watch(path, query, silence_s)
        try:
            yield watch
        finally:
            server.end_watch(path, watch)

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
        process = self._process
        if before_send is not None:
            before_send()
        if process.crashed:
            await process.never.wait()
        waited_s = 0.0
        while process.server.hangs(path):
            if waited_s >= timeout_s:
                return Answer(code=NO_ANSWER, failure=f"nothing within {timeout_s:.0f} s")
            waited_s += _HANGS_S
            await asyncio.sleep(_HANGS_S)
        body = msgspec.json.decode(data) if data is not None else None
        wire = Request(method=method, path=path, body=body, content_type=media[0])
        try:
            answer = process.answer(method, path, query or {}, wire)
            if call_queue is CallQueue.EVICT:
                await asyncio.sleep(EVICTION_S)
            return answer
        except CrashError:
            # The process and its callers are dead from here on.
            process.crashed = True
            process.stop()
        except Exception as error:
            process.surprises.append(error)
            process.stop()
            raise
        await process.never.wait()
        raise AssertionError("nobody comes back from there")


class _SayingGateway(Gateway):
    """Passes its messages to a callback."""

    async def send(self, write: Write, about: AboutWrite | None = None) -> Sent:
        before = _SENDING.set(write)
        try:
            return await super().send(write, about)
        finally:
            _SENDING.reset(before)


class _SeatedElector(Elector):
    """Campaigns once and stays: what becomes of the lease has tests of its own."""

    def __init__(self, process: Process, *args: Any, **more: Any) -> None:
        self._process = process
        super().__init__(*args, **more)

    async def run(self) -> None:
        while not self._leading:
            await self.campaign()
            await self._clock.sleep(0.0 if self._leading else 0.02)
        await self._process.never.wait()

    def may_write(self) -> bool:
        return self._leading

    def may_disrupt(self) -> bool:
        return self._leading

    def step_aside(self) -> None:
        self._process.hand_over()

    @property
    def no_other_replica(self) -> bool:  # type: ignore[override]
        """Whether the lease was offered in vain."""
        return self._process.alone()

    @no_other_replica.setter
    def no_other_replica(self, alone: bool) -> None: ...


class _StrictIsolation(Isolation):
    """Whatever is unexpected ends the test."""

    def __init__(self, process: Process, *args: Any) -> None:
        super().__init__(*args)
        self._process = process

    def note(self, part: str, about: str, error: BaseException) -> str:
        if not expected(error):
            self._process.surprises.append(error)
            self._process.stop()
        return super().note(part, about, error)
