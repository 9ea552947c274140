"""The controller's heart: wakes nodes up, looks at them in parallel, follows what a check asks
for.

`run` starts it once. Everything is level-triggered: a wake-up only names a node, the check reads
what there is. Only the leader looks; every replica keeps its caches, so that a take-over is a
matter of seconds.
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
_CLEAR = "what is known is fresh again: taints and cordons, evictions and releases go on"

# Looks at a time. Most of a check is waiting for the API server, whose own limits are in `pace`; a
# look that waits to record must not keep another node from being quarantined.
_LOOKS = 1_024
# Every replica asks for the lease every 2 s, so a silence this long is an outage.
_OUTAGE_S = 15.0
# Sessions that are being opened at a time: so many keep the API server busy.
_ENOUGH = 2 * api.IN_FLIGHT[CallQueue.STATUS]
# A check that fails in a way nobody foresaw is tried again after this long.
_AFTER_SURPRISE_S = 5.0
# Of most nodes nothing is known that asks for a check; when all are checked, those come after the
# sick ones, whose taints and cordons they would hold up.
_QUIET_S = 3.0


class ControlLoop(EdgePart):
    """Wake-ups, and the dispatcher that follows them."""

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
        """CLOCK_BOOTTIME of the dispatcher's last sign of life."""
        self._cycle = cycle
        self._steer = steer
        self._hand_over = hand_over
        self._fleet_changed = fleet_changed
        self._outage = False
        self._doubt = ""
        self._acting = False

    async def run(self) -> None:
        """Dispatch until cancelled."""
        slots = asyncio.Semaphore(_LOOKS)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tick())
                while True:
                    await slots.acquire()
                    name = await self._queue.take(self._crowded)
                    task = group.create_task(self._work(name))
                    # Also of a check that was cancelled before it began.
                    task.add_done_callback(partial(self._ended, slots, name))
                    # Many decisions in a row would leave the API server without work: answers
                    # that came meanwhile are read in between.
                    await asyncio.sleep(0)
        finally:
            _LOG.info("loop ended")

    def wake(self, name: str, *, urgent: bool = False) -> None:
        """Something about this node may have changed."""
        self._queue.add(name, urgent=urgent)

    def took_over(self) -> None:
        """This replica leads from now on: everything is checked, once."""
        self._note_doubt()
        self._acting = self._may_act()
        self.wake_all()

    def wake_all(self) -> None:
        """Look at everything: after a take-over, a new policy, a pause."""
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
        """Look at every node with an open session, and every sick one."""
        for name in {*self._world.nodes_with_open_sessions(), *self._world.caches.healths.items}:
            self.wake(name)

    def node_changed(self, name: str, before: NodeView | None, after: NodeView | None) -> None:
        """A node came, went or changed."""
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
        # A quarantined node that vanishes may only have lost our label beside the selection.
        if changed and self._concerned(name, after or before):
            self.wake(name)

    def _concerned(self, name: str, node: NodeView | None) -> bool:
        """Whether something that is known asks for a check."""
        return (
            name in self._world.healths
            or name in self._world.external_seen
            or name in self._world.sessions
            or (node is not None and quarantine_taint.quarantined(node))
        )

    def health_changed(self, name: str, health: HealthView | None) -> None:
        """A sick health status came, changed or went."""
        self._world.health_changed(name, health)
        self._fleet_changed()
        self.wake(name, urgent=health is not None and health.status.health == "Unhealthy")

    def session_changed(self, before: QuarantineView | None, after: QuarantineView | None) -> None:
        """A session came, went or changed, by us or by an operator."""
        concerned = self._world.session_changed(before, after)
        if before is not None and after is not None and _same_version(before, after):
            # The echo of an own write: its answer said all of it to the check that sent it.
            return
        for name in concerned:
            self.wake(name)
        self._fleet_changed()

    def pauses_changed(self, before: PauseView | None, after: PauseView | None) -> None:
        """A pause came, went or changed."""
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
        """Whether more sessions wait to be opened than the API server answers soon: deciding about
        further nodes now would only keep its answers from being read.
        """
        return self._api.under_way(CallQueue.STATUS) > _ENOUGH

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
        """What nobody could see during an outage proves nothing afterwards."""
        answered_at = self._api.last_answer_at
        if answered_at is not None and self.ticked_at - answered_at > _OUTAGE_S:
            self._outage = True
        elif self._outage:
            self._outage = False
            self._world.observing_since = self._clock.now()
            _LOG.info("the API server answers again")
            self.wake_all()

    def _note_acting(self) -> None:
        """Looks that fell due while this replica might not act were dropped: make up for them."""
        acting = self._may_act()
        if acting and not self._acting:
            self.wake_all()
        self._acting = acting

    def _note_doubt(self) -> None:
        """While what is known is too old to act on, sessions report it; afterwards they go on."""
        doubt, before = self._world.doubt(), self._doubt
        if doubt == before:
            return
        self._doubt = doubt
        _LOG.warning("doubt", message=f"no disruption is done: {doubt}" if doubt else _CLEAR)
        if not doubt:
            # What an old view did not show proves nothing: not an agent's silence either.
            self._world.observing_since = self._clock.now()
        if bool(doubt) != bool(before):
            self.wake_open()
            self._fleet_changed()

    async def _work(self, name: str) -> None:
        try:
            if not self._may_act():
                return
            looked = await self._cycle.look(name)
            if looked.evicting is not None:
                self._steer(name, looked.evicting)
            if looked.hand_over:
                self._hand_over()
            if looked.again_in_s is not None:
                self._queue.add_at(name, self._clock.elapsed() + looked.again_in_s)
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
    """What decisions read of a node; the rest (heartbeats, images) changes all the time."""
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
"""Between two names that are not urgent: none waits for ever behind an API server that hangs."""


class WorkQueue:
    """Names of nodes to work on now, and at a time (CLOCK_BOOTTIME).

    One worker at a time works on a name. It waits in the queue once however often it is added, and
    a name added during its own work is worked on again afterwards.
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
        """Look at this soon; urgent names go first. A session may name no node ("")."""
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
        """Look at this at that time; only the earliest time asked for counts."""
        known = self._due.get(name)
        if known is not None and known <= at:
            return
        self._due[name] = at
        heapq.heappush(self._later, (at, name))
        self._changed.set()

    async def take(self, crowded: Callable[[], bool] = lambda: False) -> str:
        """The next name; `done` must follow. While it is `crowded`, names that are not urgent come
        one by one.
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
        """The work on this name ended."""
        self._busy.discard(name)
        urgent = self._again.pop(name, None)
        if urgent is not None:
            self.add(name, urgent=urgent)

    def _promote(self) -> float | None:
        """Move what is due to the ready names; seconds until the next is due."""
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
