"""Faults on purpose: what a control plane does on its bad days, one rule at a time.

Tests and demos set rules; the proxy asks before it passes a request on and before it answers.
Nothing here touches stored objects.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.store.store import encode

Action = Literal["answer", "reset", "hang", "delay"]

EXPIRED = ApiError(410, "Expired", "too old resource version: injected by the test")


class OpenWatch(Protocol):
    """A watch that runs, between the server and one client."""

    def fail(self, error: ApiError) -> None:
        """End it with an ERROR event."""

    def close(self) -> None:
        """End it without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a rule may look at of a request."""

    method: str
    path: str
    agent: str = ""
    user: str = ""
    is_write: bool = False


@dataclass(slots=True, kw_only=True)
class Fault:
    """One rule: which requests it hits, how many of them, and what happens to those."""

    method: str = "*"
    path: str = ".*"
    agent: str = ".*"
    user: str = ".*"
    writes: bool = False
    """Hit only what changes objects: no reads, no dry runs, no reviews."""
    skip: int = 0
    """So many matching requests pass before the first is hit."""
    times: int | None = 1
    action: Action = "answer"
    status: int = 500
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    after: bool = False
    """Apply after the request took effect: the client cannot know whether it did."""
    then: Callable[[], None] | None = None
    """Called at each hit, before the client is answered: to stop the process that asked."""
    passed: int = 0
    hits: int = 0

    def takes(self, asked: Asked) -> bool:
        """Whether this request is hit (and counted)."""
        if self.times is not None and self.hits >= self.times:
            return False
        if self.method not in {"*", asked.method} or (self.writes and not asked.is_write):
            return False
        if not re.search(self.path, asked.path) or not re.search(self.agent, asked.agent):
            return False
        if not re.search(self.user, asked.user):
            return False
        if self.passed < self.skip:
            self.passed += 1
            return False
        self.hits += 1
        return True


class Faults:
    """The rules in force."""

    def __init__(self) -> None:
        self._rules: list[Fault] = []
        self._watches: set[OpenWatch] = set()
        self._thaw = asyncio.Event()
        self._thaw.set()

    def add(self, fault: Fault) -> Fault:
        """Put a rule in force; it is returned so that its `hits` can be read."""
        self._rules.append(fault)
        return fault

    def fail(
        self,
        error: ApiError,
        *,
        method: str = "*",
        path: str = ".*",
        agent: str = ".*",
        times: int | None = 1,
        after: bool = False,
    ) -> Fault:
        """Answer matching requests with this Status."""
        return self.add(
            Fault(
                method=method,
                path=path,
                agent=agent,
                times=times,
                status=error.code,
                body=encode(error.status()),
                headers=error.headers,
                after=after,
            )
        )

    def throttle(
        self, *, path: str = ".*", method: str = "*", times: int | None = 1, retry_after_s: int = 1
    ) -> Fault:
        """Answer as API priority and fairness does: 429 in plain text, with Retry-After."""
        return self.add(
            Fault(
                method=method,
                path=path,
                times=times,
                status=429,
                body=b"Too many requests, please try again later.\n",
                content_type="text/plain; charset=utf-8",
                headers={"Retry-After": str(retry_after_s)},
            )
        )

    def at_write(
        self,
        number: int,
        then: Callable[[], None],
        *,
        agent: str = ".*",
        path: str = ".*",
        after: bool = False,
    ) -> Fault:
        """At a client's write of that number from now on (1 is the next) call `then`.

        It never has an answer: the server does not see it or, with `after`, did it.
        """
        return self.add(
            Fault(
                writes=True,
                skip=number - 1,
                agent=agent,
                path=path,
                action="reset",
                after=after,
                then=then,
            )
        )

    def find(self, asked: Asked) -> Fault | None:
        """The first rule that hits the request."""
        if not self._rules:
            return None
        return next((one for one in self._rules if one.takes(asked)), None)

    def clear(self) -> None:
        """Let every rule go and the server run as usual."""
        self._rules.clear()
        self.thaw()

    def freeze(self) -> None:
        """Accept connections and never answer, until `thaw`."""
        self._thaw.clear()

    def thaw(self) -> None:
        """Answer again, also what was asked meanwhile."""
        self._thaw.set()

    async def while_frozen(self) -> None:
        """Wait as long as the server is frozen."""
        if not self._thaw.is_set():
            await self._thaw.wait()

    @contextmanager
    def watching(self, watch: OpenWatch) -> Iterator[None]:
        """A watch is open meanwhile, and does what the rules say of watches."""
        self._watches.add(watch)
        try:
            yield
        finally:
            self._watches.discard(watch)

    def expire_watches(self) -> int:
        """End every watch with an ERROR event of code 410; how many."""
        return self._end_watches(lambda watch: watch.fail(EXPIRED))

    def drop_watches(self) -> int:
        """End every watch without an answer; return how many."""
        return self._end_watches(lambda watch: watch.close())

    def _end_watches(self, end: Callable[[OpenWatch], None]) -> int:
        ended, self._watches = self._watches, set()
        for watch in ended:
            end(watch)
        return len(ended)
