"""What happens when, in virtual time: a queue of calls, the earliest first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Clockwork:
    """The time of a simulation and what is to come. Calls of one moment keep their order."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.calls = 0
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Let something happen then; what lies in the past happens now."""
        heapq.heappush(self._due, (max(when, self.now), next(self._order), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Let something happen in a while."""
        self.at(self.now + seconds, call)

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until:
            self.now, _, call = heapq.heappop(self._due)
            self.calls += 1
            call()
        self.now = max(self.now, until)
