"""Time at the edge: one monotonic clock that a suspended process cannot stop, and API server time.

Everything that acts asks a ``Clock``; nothing else in the remediator reads a clock of the machine.
Wall time is anchored once and then advanced by CLOCK_BOOTTIME, so a step of this machine's clock
moves no deadline; it is corrected by the ``Date`` header of API answers, because the times that
deadlines start from were written by other machines through that server.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

# The Date header counts whole seconds: the server's true time lies within one second after it.
_DATE_RESOLUTION_S = 1.0
# Below this the two clocks agree as far as anything here can tell.
_NEGLIGIBLE_SKEW_S = 1.0


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


@dataclass(slots=True)
class SkewEstimate:
    """Interval in which (server time - local time) lies, narrowed by every answer."""

    low_s: float = float("-inf")
    high_s: float = float("inf")

    def add(self, server_date: float, sent_at: float, received_at: float) -> None:
        """Fold in one answer: its Date header was written between sending and receiving."""
        low = server_date - received_at
        high = server_date + _DATE_RESOLUTION_S - sent_at
        if low > self.high_s or high < self.low_s:
            self.low_s, self.high_s = low, high
            return
        self.low_s, self.high_s = max(self.low_s, low), min(self.high_s, high)

    def seconds(self) -> float:
        """The smallest correction that agrees with what was seen; 0 when the clocks agree."""
        if self.low_s <= _NEGLIGIBLE_SKEW_S and self.high_s >= -_NEGLIGIBLE_SKEW_S:
            return 0.0
        return self.low_s if self.low_s > 0 else self.high_s


class SystemClock:
    """The machine's clocks, corrected to the API server's."""

    def __init__(self) -> None:
        self._wall_anchor = time.time()
        self._boot_anchor = self.elapsed()
        self.skew = SkewEstimate()

    def elapsed(self) -> float:
        """CLOCK_BOOTTIME in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def local(self) -> float:
        """This machine's wall time as it was at the start, advanced by CLOCK_BOOTTIME."""
        return self._wall_anchor + (self.elapsed() - self._boot_anchor)

    def now(self) -> float:
        """Seconds since the epoch, in the API server's time."""
        return self.local() + self.skew.seconds()

    async def sleep(self, seconds: float) -> None:
        """Let others run for that long."""
        await asyncio.sleep(max(0.0, seconds))
