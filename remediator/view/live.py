"""The state behind the pages, from this replica's own caches: no call to the API server.

Every replica serves, leading or not. A state is made at most every two seconds however many look,
and only while somebody looks.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from remediator.kube.clock import Clock
from remediator.view.lists.grouping import GroupKeys
from remediator.view.state import PageState, sessions_by_node
from remediator.view.verdict_reader import VerdictReader
from rules.api.nodes import HealthView
from rules.fleet.common import common_causes_among
from rules.fleet.remembered import FleetMemory
from rules.fleet.turns import judge_fleet
from rules.session.snapshot import FleetSnapshot

KEPT_S: Final = 2.0


class PageSource(Protocol):
    """Where the site takes what it shows."""

    async def state(self) -> PageState:
        """The fleet now; the same object while it is new enough."""
        ...

    async def verdict(self, node: str) -> HealthView | None:
        """The verdict of a node that the state has none of; None where it is not at hand."""
        ...


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
