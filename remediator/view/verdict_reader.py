"""Verdicts of healthy nodes, read one by one when somebody looks at such a node.

The remediator watches the verdicts of sick nodes only, so that 5,000 healthy ones cost nothing. A
person who opens a healthy node's page causes one read; it is kept for a while, and reads are so
few in a second that no visitor can put load on the API server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.kube.resources import HEALTHS
from rules.api.nodes import HealthView
from rules.api.object_name import api_path

KEPT_S: Final = 20.0
_MOST_KEPT: Final = 64
_PER_SECOND: Final = 2.0
_BURST: Final = 10.0

Read = Callable[[str], Awaitable[HealthView | None]]
"""The verdict of a node from the API server; None where there is none or it cannot be read."""


def reading(api: Api) -> Read:
    """Reads through the remediator's one transport."""

    async def read(node: str) -> HealthView | None:
        try:
            return await api.get(api_path(HEALTHS, node), HealthView)
        except ApiError:
            return None

    return read


class VerdictReader:
    """A small cache before `read`, with a limit on how often it asks."""

    def __init__(self, read: Read, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, HealthView | None]] = OrderedDict()
        self._tokens = _BURST
        self._filled_at = clock.elapsed()

    async def verdict(self, node: str) -> HealthView | None:
        """The node's verdict, at most 20 s old; the last known one when reads are too many."""
        now = self._clock.elapsed()
        at, known = self._kept.get(node, (float("-inf"), None))
        if now - at < KEPT_S or not self._may_read(now):
            return known
        # Kept before the answer comes, so that a second visitor does not ask again.
        self._keep(node, now, known)
        found = await self._read(node)
        self._keep(node, now, found)
        return found

    def _may_read(self, now: float) -> bool:
        self._tokens = min(_BURST, self._tokens + (now - self._filled_at) * _PER_SECOND)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _keep(self, node: str, at: float, verdict: HealthView | None) -> None:
        self._kept[node] = (at, verdict)
        self._kept.move_to_end(node)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
