"""Faults on purpose: what a control plane does on its bad days, one rule at a time.

Tests and demos set rules on ``server.faults``; the HTTP layer asks before and while it answers.
Nothing here touches stored objects.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.store import encode

Action = Literal["answer", "reset", "hang", "delay"]

EXPIRED = ApiError(410, "Expired", "too old resource version: injected by the test")


@dataclass(slots=True, kw_only=True)
class Fault:
    """One rule: which requests it hits, how many of them, and what happens to those."""

    method: str = "*"
    path: str = ".*"
    agent: str = ".*"
    times: int | None = 1
    action: Action = "answer"
    status: int = 500
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    after: bool = False
    """Apply after the request took effect: the client cannot know whether it did."""
    hits: int = 0

    def takes(self, method: str, path: str, agent: str) -> bool:
        """Whether this request is hit (and counted)."""
        if self.times is not None and self.hits >= self.times:
            return False
        if self.method not in {"*", method}:
            return False
        if not re.search(self.path, path) or not re.search(self.agent, agent):
            return False
        self.hits += 1
        return True


class Faults:
    """The rules in force."""

    def __init__(self, close_watches: Callable[[ApiError | None], int]) -> None:
        self._rules: list[Fault] = []
        self._close_watches = close_watches
        self._thaw = asyncio.Event()
        self._thaw.set()
        self._pause: Callable[[bool], None] = lambda paused: None
        self.watches_paused = False
        self.stale_revision: int | None = None

    def on_pause(self, pause: Callable[[bool], None]) -> None:
        """Say how running watches are paused (the server does)."""
        self._pause = pause

    def add(self, fault: Fault) -> Fault:
        """Put a rule in force; it is returned so that its ``hits`` can be read."""
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

    def find(self, method: str, path: str, agent: str) -> Fault | None:
        """The first rule that hits the request."""
        if not self._rules:
            return None
        return next((one for one in self._rules if one.takes(method, path, agent)), None)

    def clear(self) -> None:
        """Let every rule go and the server run as usual."""
        self._rules.clear()
        self.stale_revision = None
        self.thaw()
        self.resume_watches()

    def freeze(self) -> None:
        """Accept connections and never answer, until ``thaw``."""
        self._thaw.clear()

    def thaw(self) -> None:
        """Answer again, also what was asked meanwhile."""
        self._thaw.set()

    async def while_frozen(self) -> None:
        """Wait as long as the server is frozen."""
        if not self._thaw.is_set():
            await self._thaw.wait()

    def pause_watches(self) -> None:
        """Keep all watches open and silent, until ``resume_watches``."""
        self.watches_paused = True
        self._pause(True)

    def resume_watches(self) -> None:
        """Let watches speak again, beginning with what happened meanwhile."""
        self.watches_paused = False
        self._pause(False)

    def expire_watches(self) -> int:
        """End every watch with an ERROR event of code 410; how many."""
        return self._close_watches(EXPIRED)

    def drop_watches(self) -> int:
        """End every watch without a word; how many."""
        return self._close_watches(None)

    def stale_lists(self, revision: int | None) -> None:
        """Answer lists from this older revision (None: from the present again)."""
        self.stale_revision = revision
