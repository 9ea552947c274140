"""When each GPU's tiers are due: everything once at start, then spread evenly over each period.

Pure: the caller brings the time and the jitter. Spreading keeps every wake-up short.
"""

from __future__ import annotations

import heapq

from agent.nvml.messages import Tier
from agent.nvml.table import PERIODS_S

HURRY_APART_S = 1.0
"""A storm of events must not become a storm of polls."""


class Schedule:
    """Due times of (GPU index, tier). `jitter` is a fraction of a period, 0 to 1.

    `fast_s` is the period of the fastest tier; the others keep their ratio to it.
    """

    def __init__(
        self, count: int, now: float, jitter: float, fast_s: float = PERIODS_S[Tier.FAST]
    ) -> None:
        stretch = fast_s / PERIODS_S[Tier.FAST]
        self._periods_s = {tier: period * stretch for tier, period in PERIODS_S.items()}
        self._heap: list[tuple[float, int, Tier]] = [
            (now, index, tier) for tier in Tier for index in range(count)
        ]
        # One GPU after another, and all shifted by the jitter: nodes booted together poll apart.
        self._slots = {
            (index, tier): now + self._periods_s[tier] * ((index + jitter) / count)
            for tier in Tier
            for index in range(count)
        }
        heapq.heapify(self._heap)
        self._taken: dict[tuple[int, Tier], float] = {}

    def next_due(self) -> float | None:
        """When the next poll is due; None without GPUs."""
        return self._heap[0][0] if self._heap else None

    def hurry(self, index: int, tier: Tier, at: float) -> None:
        """Bring one poll forward to `at`, but not closer than a second to the one before."""
        at = max(at, self._taken.get((index, tier), at - HURRY_APART_S) + HURRY_APART_S)
        self._heap = [
            (min(due, at), i, t) if (i, t) == (index, tier) else (due, i, t)
            for due, i, t in self._heap
        ]
        heapq.heapify(self._heap)

    def take(self, now: float) -> tuple[int, Tier] | None:
        """The most overdue poll, which is then due again a period later; None if none is due."""
        if not self._heap or self._heap[0][0] > now:
            return None
        _, index, tier = self._heap[0]
        self._taken[index, tier] = now
        period = self._periods_s[tier]
        due = self._slots[index, tier]
        if due <= now:
            # Missed periods (a hang, a suspended machine) are skipped, not made up for.
            due += period * (int((now - due) / period) + 1)
        self._slots[index, tier] = due
        heapq.heapreplace(self._heap, (due, index, tier))
        return index, tier
