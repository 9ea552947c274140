"""An event loop in virtual time: timers fire at once, in the order of their times.

The real parts of a replica run on it unchanged, `asyncio.timeout` included. It never sleeps and
never reads the machine's clock.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, TypeVarTuple

from remediator.kube.clock import Clock

Ts = TypeVarTuple("Ts")

_SAME_S = 1e-6
"""Moments closer than this are one."""
_ROUNDS = 20_000
"""Rounds at one moment after which something never comes to rest."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Seconds since it was made; callbacks run in `work_until` and never otherwise.

    Rounds and moments are its own: the base class asks in each round for what only threads,
    sockets and a clock need.
    """

    def __init__(self) -> None:
        super().__init__()
        self._at = 0.0
        self._soon: deque[asyncio.Handle] = deque()
        self._later: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap; of one moment in the order in which they were asked for."""
        self._asked = count()
        self._stops = False
        self.surprises: list[BaseException] = []
        """What was raised where nobody waits for it."""
        self.set_exception_handler(self._surprised)

    def time(self) -> float:
        """Virtual seconds."""
        return self._at

    get_debug = staticmethod(bool)  # type: ignore[assignment]
    """False, and soon: asked for with every callback."""

    def leap(self, to: float) -> None:
        """Time passes without anything being run: what falls due meanwhile is late."""
        assert to >= self._at, "time does not go back"
        self._at = to

    def work_until(self, at: float) -> None:
        """Run everything that is due up to then, and what follows from it at that moment."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(
            self._asyncgen_firstiter_hook,  # type: ignore[attr-defined]
            self._asyncgen_finalizer_hook,  # type: ignore[attr-defined]
        )
        # A test of a real server may play a scenario in between: its own loop goes on afterwards.
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            self._rounds_until(max(at, self._at))
        finally:
            self._stops = False
            asyncio._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)

    def cancel_all(self) -> None:
        """End whatever runs."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.work_until(self._at)

    def stop(self) -> None:
        """Not one round more."""
        self._stops = True

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """In the next round."""
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same: there is one thread. Generators that nobody ended are ended so."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """At this virtual second."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._later, (when, next(self._asked), handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """After so many virtual seconds."""
        return self.call_at(self._at + delay, callback, *args, context=context)

    def _rounds_until(self, end: float) -> None:
        soon, later = self._soon, self._later
        rounds = 0
        while True:
            now = self._at + _SAME_S
            while later and (later[0][0] < now or later[0][2]._cancelled):
                at, _, timer = heappop(later)
                if not timer._cancelled:
                    # A timer that fires early would be set again for no time.
                    self._at = max(self._at, at)
                soon.append(timer)
            for _ in range(len(soon)):
                handle = soon.popleft()
                if not handle._cancelled:
                    handle._run()
            if self._stops:
                return
            due = later[0][0] if later else inf
            if soon or due <= self._at:
                rounds += 1
                assert rounds < _ROUNDS, "something never comes to rest"
            elif self._at < end:
                self._at, rounds = min(due, end), 0
            else:
                return

    def _surprised(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        self.surprises.append(error or RuntimeError(context["message"]))


class LoopClock(Clock):
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
