"""Which nodes need a look, and when: a queue keyed by node name.

Changes seen by watches, answers of writes and the passing of time add names; workers take them.
A name is worked on by one worker at a time, waits in the queue once however often it is added,
and a name added during its own work is looked at again afterwards. So a blocked node blocks no
other, and nothing is lost. One dispatcher (`loop`) takes.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from remediator.kube.clock import Clock, heard

_CROWDED_S: Final = 0.005
"""Between two names that are not urgent: none waits for ever behind an API server that hangs."""


class WorkQueue:
    """Names to work on now, and names to work on at a time (CLOCK_BOOTTIME)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._urgent: OrderedDict[str, None] = OrderedDict()
        self._busy: set[str] = set()
        self._again: dict[str, bool] = {}
        """Names added during their own work, and whether that is urgent."""
        self._later: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + len(self._urgent)

    def add(self, name: str, *, urgent: bool = False) -> None:
        """Look at this soon; urgent names go first."""
        if name in self._busy:
            self._again[name] = urgent or self._again.get(name, False)
            return
        if urgent:
            self._ready.pop(name, None)
            self._urgent[name] = None
        elif name not in self._urgent:
            self._ready[name] = None
        self._changed.set()

    def add_at(self, name: str, at: float) -> None:
        """Look at this at that time; only the earliest time asked for counts."""
        known = self._due.get(name)
        if known is not None and known <= at:
            return
        self._due[name] = at
        heapq.heappush(self._later, (at, name))
        self._changed.set()

    async def take(self, crowded: Callable[[], bool] = lambda: False) -> str:
        """The next name; `done` must follow. While it is `crowded`, names that are not urgent come
        one by one.
        """
        while True:
            wait_s = self._promote()
            if self._ready and not self._urgent and crowded():
                await self._until_urgent()
            for waiting in (self._urgent, self._ready):
                if waiting:
                    name, _ = waiting.popitem(last=False)
                    self._busy.add(name)
                    return name
            self._changed.clear()
            await heard(self._changed, wait_s)

    async def _until_urgent(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CROWDED_S):
                while not self._urgent:
                    self._changed.clear()
                    await self._changed.wait()

    def done(self, name: str) -> None:
        """The work on this name ended."""
        self._busy.discard(name)
        urgent = self._again.pop(name, None)
        if urgent is not None:
            self.add(name, urgent=urgent)

    def _promote(self) -> float | None:
        """Move what is due to the ready names; seconds until the next is due."""
        now = self._clock.elapsed()
        while self._later:
            at, name = self._later[0]
            if self._due.get(name) != at:
                heapq.heappop(self._later)
                continue
            if at > now:
                return at - now
            heapq.heappop(self._later)
            del self._due[name]
            self.add(name)
        return None
