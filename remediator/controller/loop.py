"""The control loop: queue nodes that changed, check them in parallel, follow each result.

The loop is level-triggered: the queue holds node names only, and each check reads the current
state. Only the leader checks nodes. Every replica keeps its caches, so that a takeover takes
seconds.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from remediator import world
from remediator.controller.node_cycle import NodeCycle
from remediator.kube import api
from remediator.kube.clock import CallQueue, Clock, heard
from remediator.world import Edge, EdgePart
from rules.api import quarantine_taint
from rules.api import writes as d
from rules.api.nodes import HealthView, NodeView, PauseView, QuarantineView

_LOG = structlog.get_logger()
_CLEAR = "data is fresh again: quarantines, evictions and releases continue"

# Checks in parallel. Most of a check is waiting for the API server, whose limits are in `clock`. A
# check that waits to write a record must not delay the quarantine of another node.
_CHECKS = 1_024
# Every replica reads the lease every 2 s, so no answer for this long is an outage.
_OUTAGE_S = 15.0
# With this many sessions being opened, the API server is busy.
_ENOUGH = 2 * api.IN_FLIGHT[CallQueue.OPEN]
# Delay before a check is retried after an unexpected error.
_AFTER_SURPRISE_S = 5.0
# When all nodes are checked, healthy ones wait this long, so that they do not delay sick ones.
_QUIET_S = 3.0


class ControlLoop(EdgePart):
    """The queue's listeners and its dispatcher."""

    def __init__(
        self,
        edge: Edge,
        cycle: NodeCycle,
        queue: WorkQueue,
        *,
        steer: Callable[[str, d.Evicting], None],
        hand_over: Callable[[], None],
        fleet_changed: Callable[[], None],
    ) -> None:
        super().__init__(edge)
        self._queue = queue
        self.ticked_at = edge.clock.elapsed()
        """CLOCK_BOOTTIME of the last tick."""
        self._cycle = cycle
        self._steer = steer
        self._hand_over = hand_over
        self._fleet_changed = fleet_changed
        self._outage = False
        self._doubt = ""
        self._acting = False

    async def run(self) -> None:
        """Dispatch until cancelled."""
        slots = asyncio.Semaphore(_CHECKS)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tick())
                while True:
                    await slots.acquire()
                    name = await self._queue.take(self._crowded)
                    task = group.create_task(self._work(name))
                    # Also of a check that was cancelled before it began.
                    task.add_done_callback(partial(self._ended, slots, name))
                    # Read answers between decisions, so that the API server stays busy.
                    await asyncio.sleep(0)
        finally:
            _LOG.info("loop ended")

    def wake(self, name: str, *, urgent: bool = False) -> None:
        """Queue the node: it may have changed."""
        self._queue.add(name, urgent=urgent)

    def took_over(self) -> None:
        """Check all nodes after this replica became the leader."""
        self._note_doubt()
        self._acting = self._may_act()
        self.wake_all()

    def wake_all(self) -> None:
        """Queue all nodes: after a takeover, an outage or a new policy."""
        nodes = {**self._world.unselected, **self._world.caches.nodes.items}
        names = {*self._world.healths, *self._world.sessions, *self._world.deleted}
        quiet_at = self._clock.elapsed() + _QUIET_S
        for name in sorted({*nodes, *names}):
            self._world.note_external(name, nodes.get(name))
            if name in names or self._concerned(name, nodes.get(name)):
                self.wake(name)
            else:
                self._queue.add_at(name, quiet_at)
        self._fleet_changed()

    def wake_open(self) -> None:
        """Queue every node with an open session and every sick node."""
        for name in {*self._world.nodes_with_open_sessions(), *self._world.caches.healths.items}:
            self.wake(name)

    def node_changed(self, name: str, before: NodeView | None, after: NodeView | None) -> None:
        """Handle a node that was added, changed or deleted."""
        if (
            after is not None
            and name in self._world.reserved
            and quarantine_taint.quarantined(after)
        ):
            self._world.reserved.discard(name)
        if (
            before is None
            or after is None
            or world.availability(before) != world.availability(after)
        ):
            self._fleet_changed()
        if self._world.note_external(name, after):
            self.wake(name)
        changed = before is None or after is None or _of_note(before) != _of_note(after)
        # A quarantined node that vanishes may only have lost its label outside the selection.
        if changed and self._concerned(name, after or before):
            self.wake(name)

    def device_taints_changed(self, name: str) -> None:
        """Handle changed taints of devices on a node."""
        node = self._world.caches.nodes.items.get(name) or self._world.unselected.get(name)
        if self._world.note_external(name, node) or self._concerned(name, node):
            self.wake(name)

    def _concerned(self, name: str, node: NodeView | None) -> bool:
        """Whether the node has faults, sessions or a quarantine."""
        return (
            name in self._world.healths
            or name in self._world.external_seen
            or name in self._world.sessions
            or (node is not None and quarantine_taint.quarantined(node))
        )

    def health_changed(self, name: str, health: HealthView | None) -> None:
        """Handle a GPUNodeHealth that is not Healthy: added, changed or gone."""
        self._world.health_changed(name, health)
        self._fleet_changed()
        self.wake(name, urgent=health is not None and health.status.health == "Unhealthy")

    def session_changed(self, before: QuarantineView | None, after: QuarantineView | None) -> None:
        """Handle a session that was added, changed or deleted."""
        concerned = self._world.session_changed(before, after)
        if before is not None and after is not None and _same_version(before, after):
            # The echo of an own write, whose answer is stored already.
            return
        for name in concerned:
            self.wake(name)
        self._fleet_changed()

    def pauses_changed(self, before: PauseView | None, after: PauseView | None) -> None:
        """Handle a pause that was added, changed or deleted."""
        self._world.pause_changed(before, after)
        self.wake_open()
        self._fleet_changed()

    def _settle_pauses(self) -> None:
        lost = self._world.settle_pauses()
        if lost is None:
            return
        if lost:
            self._metrics.objects_lost.labels("GPUWardPause").inc(lost)
            names = ", ".join(sorted(self._world.lost_pauses))
            _LOG.warning("pauses lost", pauses=names[:200], message="they stay in force")
        self.wake_open()
        self._fleet_changed()

    def _crowded(self) -> bool:
        """Whether so many sessions wait to be opened that more decisions would only delay reading
        the answers.
        """
        return self._api.under_way(CallQueue.OPEN) > _ENOUGH

    async def _tick(self) -> None:
        while True:
            self.ticked_at = self._clock.elapsed()
            with self._isolation.guard("loop", "the tick"):
                self._note_outage()
                self._note_doubt()
                self._note_acting()
                self._settle_pauses()
            await self._clock.sleep(1.0)

    def _note_outage(self) -> None:
        """Restart observation after an outage: missing data during it proves nothing."""
        answered_at = self._api.last_answer_at
        if answered_at is not None and self.ticked_at - answered_at > _OUTAGE_S:
            self._outage = True
        elif self._outage:
            self._outage = False
            self._world.observing_since = self._clock.now()
            _LOG.info("the API server answers again")
            self.wake_all()

    def _note_acting(self) -> None:
        """Repeat checks that were dropped while this replica could not act."""
        acting = self._may_act()
        if acting and not self._acting:
            self.wake_all()
        self._acting = acting

    def _note_doubt(self) -> None:
        """Queue sessions when the data becomes too old to act on, and when it is fresh again."""
        doubt, before = self._world.doubt(), self._doubt
        if doubt == before:
            return
        self._doubt = doubt
        _LOG.warning("doubt", message=f"no disruption is done: {doubt}" if doubt else _CLEAR)
        if not doubt:
            # Outdated data proves nothing, not even that an agent is silent.
            self._world.observing_since = self._clock.now()
        if bool(doubt) != bool(before):
            self.wake_open()
            self._fleet_changed()

    async def _work(self, name: str) -> None:
        try:
            if not self._may_act():
                return
            result = await self._cycle.check(name)
            if result.evicting is not None:
                self._steer(name, result.evicting)
            if result.hand_over:
                self._hand_over()
            if result.again_in_s is not None:
                self._queue.add_at(name, self._clock.elapsed() + result.again_in_s)
        except Exception as error:  # noqa: BLE001 - one node must not stop the others
            self._isolation.note("loop", f"node {name}", error)
            self._queue.add_at(name, self._clock.elapsed() + _AFTER_SURPRISE_S)

    def _ended(self, slots: asyncio.Semaphore, name: str, _: asyncio.Task[None]) -> None:
        slots.release()
        self._queue.done(name)


def _same_version(one: QuarantineView, other: QuarantineView) -> bool:
    mine, theirs = one.metadata, other.metadata
    return (mine.uid, mine.resource_version) == (theirs.uid, theirs.resource_version)


def _of_note(node: NodeView) -> tuple[object, ...]:
    """The parts of a node that decisions read, without heartbeats and images."""
    meta = node.metadata
    return (
        meta.uid,
        meta.deletion_timestamp,
        meta.labels,
        meta.annotations,
        node.spec,
        node.boot_id,
        node.ready,
    )


_CROWDED_S: Final = 0.005
"""Longest wait between two names that are not urgent while the API server hangs."""


class WorkQueue:
    """Names of nodes to check now, or at a time (CLOCK_BOOTTIME).

    A name is in the queue at most once, and one task at a time works on it. A name that is added
    during its own work is queued again afterwards.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._urgent: OrderedDict[str, None] = OrderedDict()
        self._busy: set[str] = set()
        self._again: dict[str, bool] = {}
        """Names added during their own work, and whether that is urgent."""
        self._later: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + len(self._urgent)

    def add(self, name: str, *, urgent: bool = False) -> None:
        """Queue the name; urgent names go first. A session may name no node ("")."""
        if not name:
            return
        if name in self._busy:
            self._again[name] = urgent or self._again.get(name, False)
            return
        if urgent:
            self._ready.pop(name, None)
            self._urgent[name] = None
        elif name not in self._urgent:
            self._ready[name] = None
        self._changed.set()

    def add_at(self, name: str, at: float) -> None:
        """Queue the name at that time; the earliest time counts."""
        known = self._due.get(name)
        if known is not None and known <= at:
            return
        self._due[name] = at
        heapq.heappush(self._later, (at, name))
        self._changed.set()

    async def take(self, crowded: Callable[[], bool] = lambda: False) -> str:
        """Wait for the next name; call `done` after the work on it. While it is `crowded`, names
        that are not urgent are delayed.
        """
        while True:
            wait_s = self._promote()
            if self._ready and not self._urgent and crowded():
                await self._until_urgent()
            for waiting in (self._urgent, self._ready):
                if waiting:
                    name, _ = waiting.popitem(last=False)
                    self._busy.add(name)
                    return name
            self._changed.clear()
            await heard(self._changed, wait_s)

    async def _until_urgent(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CROWDED_S):
                while not self._urgent:
                    self._changed.clear()
                    await self._changed.wait()

    def done(self, name: str) -> None:
        """End the work on this name, and queue it again if it was added meanwhile."""
        self._busy.discard(name)
        urgent = self._again.pop(name, None)
        if urgent is not None:
            self.add(name, urgent=urgent)

    def _promote(self) -> float | None:
        """Queue the names that are due; return the seconds until the next one is due."""
        now = self._clock.elapsed()
        while self._later:
            at, name = self._later[0]
            if self._due.get(name) != at:
                heapq.heappop(self._later)
                continue
            if at > now:
                return at - now
            heapq.heappop(self._later)
            del self._due[name]
            self.add(name)
        return None
