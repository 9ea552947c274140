"""Token buckets: how fast each kind of call may go out.

Marks, evictions, reads and status writes have a bucket each, so that a storm of one kind never
holds back another. `remediator.kube.api` waits here before it sends; nothing else does.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
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


RATES: Final = {
    PaceLane.MARK: 500.0,
    PaceLane.EVICT: 100.0,
    PaceLane.READ: 1200.0,
    PaceLane.STATUS: 600.0,
    PaceLane.RECORD: 1200.0,
}
"""Calls per second to the API server: a storm of 1,000 nodes is tainted within two seconds. Each
taint or eviction costs up to two reads and two records, so those lanes have twice the sum. A lane
without a rate is not held back."""


class Pace:
    """A token bucket for each lane, with a burst of a tenth of a second's worth."""

    def __init__(self, per_second: Mapping[PaceLane, float], clock: Clock) -> None:
        self._clock = clock
        self._interval_s = {lane: 1.0 / rate for lane, rate in per_second.items()}
        self._next_at = dict.fromkeys(per_second, float("-inf"))

    def reserve(self, lane: PaceLane) -> float:
        """Take one token; the seconds to wait before using it."""
        interval_s, now = self._interval_s[lane], self._clock.elapsed()
        earliest = now - max(0.1, interval_s)
        self._next_at[lane] = max(self._next_at[lane], earliest) + interval_s
        return max(0.0, self._next_at[lane] - now)

    async def acquire(self, lane: PaceLane) -> None:
        """Wait until a call of this lane may go out."""
        if lane in self._interval_s and (wait_s := self.reserve(lane)) > 0:
            await self._clock.sleep(wait_s)
