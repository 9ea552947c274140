"""What a controller wants changed, as values, and the loop around its reconcile function.

Level-triggered: a wake-up only names an object; the reconcile function looks at the present state
and returns an `Outcome`. A key is never worked on twice at the same time, and wake-ups in between
become one. A write never retries by itself: a refused one makes the loop look again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers.caches import CONNECTION_TROUBLE, Caches, Handler, Key, key_of
from hack.sim.cluster.controllers.pods import controller_of
from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import PODS, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """POST of a new object."""

    resource: Resource
    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStatus:
    """PUT of the status of `body`, refused (409) where its resourceVersion is no longer
    current.
    """

    resource: Resource
    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A merge patch of `target`, guarded by its UID and, unless `unconditional`, its
    resourceVersion.
    """

    resource: Resource
    target: Object
    patch: dict[str, Any]
    subresource: str | None = None
    no_data: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DELETE of `target` under its UID; `grace_s` None leaves the object's own grace period."""

    resource: Resource
    target: Object
    grace_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """The binding subresource: puts `pod` on the node."""

    pod: Object
    node: str


Write = Create | UpdateStatus | Patch | Delete | Bind


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one check at one object leads to: writes in order, and when to look again."""

    writes: tuple[Write, ...] = ()
    again_in_s: float | None = None


NOTHING = Outcome()


def with_status(obj: Object, status: Object) -> Object:
    """A copy of the object that differs in its status only."""
    return {**obj, "status": status}


async def send(client: Client, write: Write) -> Object | None:
    """Send one write; the object as it is stored then, where the API answers with one."""
    match write:
        case Create():
            return await client.create(write.resource, write.body)
        case UpdateStatus():
            return await client.update_status(write.resource, write.body)
        case Patch():
            return await _send_patch(client, write)
        case Delete():
            meta = write.target["metadata"]
            await client.delete(
                write.resource,
                meta["name"],
                meta.get("namespace"),
                uid=meta["uid"],
                grace=write.grace_s,
            )
        case Bind():
            meta = write.pod["metadata"]
            await client.bind(meta["namespace"], meta["name"], write.node)
    return None


async def _send_patch(client: Client, write: Patch) -> Object:
    meta = write.target["metadata"]
    guards = {"uid": meta["uid"]}
    if not write.no_data:
        guards["resourceVersion"] = meta["resourceVersion"]
    patch = {**write.patch, "metadata": {**write.patch.get("metadata", {}), **guards}}
    return await client.patch(
        write.resource,
        meta["name"],
        patch,
        meta.get("namespace"),
        subresource=write.subresource,
    )


Clock = Callable[[], datetime]
Route = Callable[[Object | None, Object | None, Caches], Iterable[Key]]
Reconcile = Callable[[Key, Caches, datetime], Outcome]
_CONFLICT_RETRY_S = 0.05
_TROUBLE_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A reconcile function and, per watched collection, which keys a change wakes.

    `settle_s` is how long a wake-up by a change in that collection waits for more of its kind.
    """

    name: str
    routes: Mapping[Resource, Route]
    reconcile: Reconcile
    settle_s: Callable[[Resource], float] = lambda _collection: 0.0
    workers: int = 4


class WorkQueue:
    """Keys to look at, each at most once in the queue and once in work."""

    def __init__(self) -> None:
        self._ready: dict[Key, None] = {}
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._waiters: list[asyncio.Future[None]] = []

    def add(self, key: Key) -> None:
        """Queue the key for a check as soon as a worker is free."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._working:
            self._again.add(key)
            return
        self._ready[key] = None
        while self._waiters:
            waiter = self._waiters.pop()
            if not waiter.done():
                waiter.set_result(None)
                return

    def add_after(self, key: Key, delay_s: float) -> None:
        """Queue the key after a delay; an earlier timer of the same key stays."""
        if key in self._ready:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay_s:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay_s, self.add, key)

    async def take(self) -> Key:
        """The next key; it counts as in work until `done`."""
        while not self._ready:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        key = next(iter(self._ready))
        del self._ready[key]
        self._working.add(key)
        return key

    def done(self, key: Key) -> None:
        """The check at the key is over; if it was woken meanwhile it comes again."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Cancel the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class Runner:
    """Runs one controller until it is cancelled."""

    def __init__(
        self, controller: Controller, client: Client, caches: Caches, clock: Clock
    ) -> None:
        self.controller = controller
        self.queue = WorkQueue()
        self._client = client
        self._caches = caches
        self._clock = clock

    def subscribe(self) -> None:
        """Let changes of the watched collections wake the queue."""
        for resource, route in self.controller.routes.items():
            self.follow(resource, route)

    def follow(self, resource: Resource, route: Route) -> None:
        """Let changes of one more collection wake the queue."""
        settle_s = self.controller.settle_s(resource)
        self._caches[resource].subscribe(self._waker(route, settle_s))

    async def run(self) -> None:
        """Work for ever with `workers` looks at a time."""
        for resource in self.controller.routes:
            await self._caches[resource].synced.wait()
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.controller.workers):
                    workers.create_task(self._work())
        finally:
            self.queue.close()

    def _waker(self, route: Route, settle_s: float) -> Handler:
        def wake(old: Object | None, new: Object | None) -> None:
            for key in route(old, new, self._caches):
                if settle_s:
                    self.queue.add_after(key, settle_s)
                else:
                    self.queue.add(key)

        return wake

    async def _work(self) -> None:
        while True:
            key = await self.queue.take()
            try:
                again_in_s = await self._look(key)
            finally:
                self.queue.done(key)
            await asyncio.sleep(0)  # an in-process client may never have yielded
            if again_in_s is not None:
                self.queue.add_after(key, again_in_s)

    async def _look(self, key: Key) -> float | None:
        outcome = self.controller.reconcile(key, self._caches, self._clock())
        try:
            for write in outcome.writes:
                await send_and_remember(self._client, self._caches, write, self._clock)
        except ApiError as error:
            return _CONFLICT_RETRY_S if error.code in (404, 409) else _TROUBLE_RETRY_S
        except CONNECTION_TROUBLE:
            return _TROUBLE_RETRY_S
        return outcome.again_in_s


async def send_and_remember(client: Client, caches: Caches, write: Write, clock: Clock) -> None:
    """Send a write and put its result into the cache of its collection, where one is followed."""
    stored = await send(client, write)
    resource = PODS if isinstance(write, Bind) else write.resource
    if resource not in caches:
        return
    if stored is not None:
        caches[resource].store(stored)
    elif isinstance(write, Delete):
        caches[resource].expect_deletion(write.target, clock())


def owner_key(kind: str, old: Object | None, new: Object | None) -> Iterable[Key]:
    """The key of the controller of that kind: what a change of an owned object wakes."""
    obj = new or old
    owner = controller_of(obj) if obj else None
    if obj and owner and owner["kind"] == kind:
        yield obj["metadata"].get("namespace") or "", owner["name"]


def own_key(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """The key of the changed object itself."""
    obj = new or old
    if obj:
        yield key_of(obj)
