"""Time at the edge: one monotonic clock that a suspended process cannot stop, and API server time.

Everything that acts asks a `Clock`; nothing else in the remediator reads a clock of the machine.
Wall time is anchored once and then advanced by CLOCK_BOOTTIME, so a step of this machine's clock
moves no deadline; it is corrected by what the `Date` headers of API answers agree on
(`kube.clock_skew`), because the times that deadlines start from were written by other machines
through that server.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from remediator.kube.clock_skew import SkewEstimate


async def heard(event: asyncio.Event, within_s: float | None) -> bool:
    """Wait until the event is set, at most that long (None: for ever); whether it was in time.

    Otherwise it is set by the time that passed: for events that one waiter clears and waits for.
    A quarter of what `asyncio.timeout` costs, which cancels whoever waits.
    """
    if event.is_set() or within_s is None:
        return await event.wait()
    in_time = True

    def late() -> None:
        nonlocal in_time
        in_time = event.is_set()
        event.set()

    timer = asyncio.get_running_loop().call_later(within_s, late)
    try:
        await event.wait()
    finally:
        timer.cancel()
    return in_time


class Clock(Protocol):
    """What the remediator needs to know about time."""

    def now(self) -> float:
        """Seconds since the epoch, in the API server's time."""
        ...

    def elapsed(self) -> float:
        """Monotonic seconds that go on while the machine sleeps (CLOCK_BOOTTIME)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others run for that long."""
        ...


class SystemClock:
    """The machine's clocks, corrected to the API server's."""

    def __init__(self, first_agreeing: int = 3) -> None:
        """`first_agreeing` answers move the clock at the start (`SkewEstimate`)."""
        self._wall_anchor = time.time()
        self._boot_anchor = self.elapsed()
        self.skew = SkewEstimate(first_agreeing=first_agreeing)

    def elapsed(self) -> float:
        """CLOCK_BOOTTIME in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def local(self) -> float:
        """This machine's wall time as it was at the start, advanced by CLOCK_BOOTTIME."""
        return self._wall_anchor + (self.elapsed() - self._boot_anchor)

    def now(self) -> float:
        """Seconds since the epoch, in the API server's time."""
        return self.local() + self.skew.seconds()

    def learn(self, server_date: float, sent_at: float) -> None:
        """Take in the date of an answer that came just now to a call sent then (`local`)."""
        before, known = self.skew.jumps, self.skew.seconds()
        self.skew.add(server_date, sent_at, self.local())
        if self.skew.jumps != before:
            import structlog  # here, for commands need no log and it takes long

            structlog.get_logger().warning(
                "clock",
                message="most answers of the API server agree on another time than before; check "
                "the clocks of its machines",
                moved_s=round(self.skew.seconds() - known, 1),
            )

    async def sleep(self, seconds: float) -> None:
        """Let others run for that long."""
        await asyncio.sleep(max(0.0, seconds))
