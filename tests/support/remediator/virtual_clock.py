"""Time for tests of the edge: it passes only when somebody sleeps."""

import asyncio

from remediator.kube.clock import Clock


class VirtualClock(Clock):
    """Its sleepers run in order, at once."""

    def __init__(self, at: float = 1_000.0) -> None:
        self.at = at
        super().__init__()

    def now(self) -> float:
        return 1_700_000_000.0 + self.at

    def elapsed(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += max(0.0, seconds)
        await asyncio.sleep(0)
