"""The state behind the pages, from this replica's own caches, and single reads of verdicts.

Every replica serves, leading or not. A state is made at most every two seconds however many look,
and only while somebody looks.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.clock import Clock
from remediator.kube.resources import HEALTHS
from remediator.view.grouping import GroupKeys
from remediator.view.state import PageState, sessions_by_node
from rules.api.nodes import HealthView
from rules.api.object_name import api_path
from rules.fleet.common import common_causes_among
from rules.fleet.remembered import FleetMemory
from rules.fleet.turns import judge_fleet
from rules.session.snapshot import FleetSnapshot

KEPT_S: Final = 2.0
VERDICT_KEPT_S: Final = 20.0
_MOST_KEPT: Final = 64
_PER_SECOND: Final = 2.0
_BURST: Final = 10.0

Read = Callable[[str], Awaitable[HealthView | None]]
"""The verdict of a node from the API server; None where there is none or it cannot be read."""


class PageSource(Protocol):
    """Where the site takes what it shows."""

    async def state(self) -> PageState:
        """The fleet now; the same object while it is new enough."""
        ...

    async def verdict(self, node: str) -> HealthView | None:
        """The verdict of a node that the state has none of; None where it is not at hand."""
        ...


def reading(api: Api) -> Read:
    """Reads through the remediator's one transport."""

    async def read(node: str) -> HealthView | None:
        try:
            return await api.get(api_path(HEALTHS, node), HealthView)
        except ApiError:
            return None

    return read


class VerdictReader:
    """A small cache before `read`, with a limit on how often it asks.

    The remediator watches the verdicts of sick nodes only: 5,000 healthy ones cost nothing.
    Opening the page of a healthy node causes one read; so few are allowed in a second that no
    visitor can put load on the API server.
    """

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
        if now - at < VERDICT_KEPT_S or not self._may_read(now):
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


class LiveSource:
    """The pages' source in a running remediator."""

    def __init__(
        self,
        snapshot: Callable[[], FleetSnapshot],
        clock: Clock,
        verdicts: VerdictReader,
        *,
        identity: str,
        leading: Callable[[], bool],
        problem: Callable[[], str],
        leader_problem: Callable[[], str] = str,
        policy_problem: Callable[[], str],
        keys: GroupKeys,
    ) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._verdicts = verdicts
        self._identity = identity
        self._leading = leading
        self._problem = problem
        self._leader_problem = leader_problem
        self._policy_problem = policy_problem
        self._keys = keys
        self._memory = FleetMemory()
        self._made: PageState | None = None
        self._made_at = float("-inf")
        self._making = asyncio.Lock()

    async def state(self) -> PageState:
        """The fleet now, at most two seconds old."""
        async with self._making:
            if self._made is None or self._clock.elapsed() - self._made_at >= KEPT_S:
                # Copied before the first await: the caches go on, the page is of one moment.
                snapshot = _copied(self._snapshot())
                made = partial(
                    PageState,
                    leading=self._leading(),
                    problem=self._problem(),
                    leader_problem=self._leader_problem(),
                    policy_problem=self._policy_problem(),
                )
                self._made = await asyncio.to_thread(self._judged, snapshot, made)
                self._made_at = self._clock.elapsed()
            return self._made

    async def verdict(self, node: str) -> HealthView | None:
        """The verdict of a healthy node, read when somebody looks at it."""
        return await self._verdicts.verdict(node)

    def _judged(self, snapshot: FleetSnapshot, made: Callable[..., PageState]) -> PageState:
        # The leader judges for its own decisions; a standby replica shows the same because it
        # judges the same objects. One that stumbles leaves nothing half remembered behind.
        memory, self._memory = self._memory, FleetMemory()
        verdict = judge_fleet(snapshot, memory)
        self._memory = memory
        return made(
            snapshot=snapshot,
            verdict=verdict,
            common=common_causes_among(memory.census.labels, snapshot.healths),
            identity=self._identity,
            keys=self._keys,
            by_node=sessions_by_node(snapshot.quarantines),
        )


def _copied(snapshot: FleetSnapshot) -> FleetSnapshot:
    """With maps of its own; the views in them never change."""
    return dataclasses.replace(
        snapshot,
        nodes=dict(snapshot.nodes),
        healths=dict(snapshot.healths),
        quarantines=dict(snapshot.quarantines),
        counting=dict(snapshot.counted),
        records=dict(snapshot.records),
        pauses=dict(snapshot.pauses),
        agents=dict(snapshot.agents),
        maintenance_leases=dict(snapshot.maintenance_leases),
        gangs=dict(snapshot.gangs),
    )
