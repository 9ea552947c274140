"""An event loop in virtual time: whoever waits is served at once, in the order of the moments.

The real parts of the edge run on it unchanged, `asyncio.timeout` too: nothing here reads the
machine's clock or sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from remediator.kube.clock import SystemClock

_ROUNDS = 20_000
"""Rounds at one moment after which something never comes to rest."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Seconds since it was made; callbacks run in `work_until` and never otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0.0
        self._until = 0.0
        self._rounds = 0
        self._selector = self
        self._clock_resolution = 1e-6
        self.surprises: list[BaseException] = []
        """What was raised where nobody waits for it."""
        self.set_exception_handler(self._surprised)

    def time(self) -> float:
        """Virtual seconds."""
        return self._at

    def leap(self, to: float) -> None:
        """Time passes without anything being run: what falls due meanwhile is late."""
        assert to >= self._at, "time does not go back"
        self._at = to

    def work_until(self, at: float) -> None:
        """Run everything that is due up to then, and what follows from it at that moment."""
        self._until = max(at, self._at)
        self.run_forever()

    def cancel_all(self) -> None:
        """End whatever runs."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.work_until(self._at)

    def select(self, timeout: float | None) -> list[Any]:
        """Asked by the base class when nothing more is due now: go on to what is due next."""
        if timeout == 0:
            self._rounds += 1
            assert self._rounds < _ROUNDS, "something never comes to rest"
            return []
        self._rounds = 0
        due: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if due and due[0].when() <= self._until:
            self._at = max(self._at, due[0].when())
        else:
            self._at = self._until
            self.stop()
        return []

    def _surprised(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        self.surprises.append(error or RuntimeError(context["message"]))

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""


class LoopClock(SystemClock):
    """The clock of a process on such a loop; the API server's clock is the same."""

    def __init__(self, loop: VirtualLoop, began_at: float) -> None:
        """`began_at`: seconds since the epoch when the loop was made."""
        self._loop = loop
        self._began_at = began_at
        super().__init__()

    def elapsed(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    def local(self) -> float:
        """The same as a date."""
        return self._began_at + self._loop.time()
