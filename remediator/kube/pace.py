"""Token buckets: how fast each kind of call may go out.

Marks, evictions, reads and status writes have a bucket each, so that a storm of one kind never
holds back another. `remediator.kube.api` waits here before it sends; nothing else does.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from remediator.kube.clock import Clock


class PaceLane(enum.StrEnum):
    """A kind of call with its own rate and its own share of connections."""

    LEASE = "lease"
    MARK = "mark"
    EVICT = "evict"
    READ = "read"
    STATUS = "status"
    """Sessions: what must be stored before harm may follow."""
    RECORD = "record"
    """What only tells people; it yields to everything else in a storm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Calls per second and lane; a lane without a rate is not held back."""

    per_second: dict[PaceLane, float]


RATES: Final = Rates(
    per_second={
        PaceLane.MARK: 500,
        PaceLane.EVICT: 100,
        PaceLane.READ: 1200,
        PaceLane.STATUS: 600,
        PaceLane.RECORD: 1200,
    }
)
"""Calls per second to the API server: a storm of 1,000 nodes is tainted within two seconds. Each
taint or eviction costs up to two reads and two records, so those lanes have twice the sum."""


class Bucket:
    """A rate with a burst of a tenth of a second's worth, first come first served."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._interval_s = 1.0 / per_second
        self._burst_s = max(0.1, self._interval_s)
        self._next_at = float("-inf")

    def reserve(self) -> float:
        """Take one token; the seconds to wait before using it."""
        now = self._clock.elapsed()
        self._next_at = max(self._next_at, now - self._burst_s) + self._interval_s
        return max(0.0, self._next_at - now)

    async def acquire(self) -> None:
        """Wait for a token."""
        wait_s = self.reserve()
        if wait_s > 0:
            await self._clock.sleep(wait_s)


class Pace:
    """The buckets of all lanes."""

    def __init__(self, rates: Rates, clock: Clock) -> None:
        self._buckets = {lane: Bucket(rate, clock) for lane, rate in rates.per_second.items()}

    async def acquire(self, lane: PaceLane) -> None:
        """Wait until a call of this lane may go out."""
        bucket = self._buckets.get(lane)
        if bucket is not None:
            await bucket.acquire()
