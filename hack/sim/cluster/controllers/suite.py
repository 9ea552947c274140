"""Runs the controllers, the scheduler and the fake kubelets of one cluster together.

The control plane, tests, demo and benchmarks start it. On a real control plane whose own
controller manager or scheduler runs, `Parts` leaves ours out; kubelets are always ours.
"""

import asyncio
import sys
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from hack.sim.cluster.client import Client, Object
from hack.sim.cluster.controllers import disruption, job
from hack.sim.cluster.controllers.caches import Caches
from hack.sim.cluster.controllers.garbage_collector import GarbageCollector
from hack.sim.cluster.controllers.kubelet import Kubelets, KubeletSettings
from hack.sim.cluster.controllers.nodes import (
    orphan_controller,
    taint_controller,
)
from hack.sim.cluster.controllers.running import Clock, Controller, Runner
from hack.sim.cluster.controllers.scheduler import Scheduler
from hack.sim.cluster.controllers.workloads import (
    DAEMON_SET_CONTROLLER,
    DEPLOYMENT_CONTROLLER,
    REPLICA_SET_CONTROLLER,
)
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Which parts run and how fast they are."""

    controllers: bool = True
    scheduler: bool = True
    kubelets: bool = True
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)


class ClusterControllers:
    """The living part of a cluster: `async with ClusterControllers(client) as controllers:`."""

    def __init__(
        self, client: Client, parts: Parts | None = None, *, clock: Clock = utc_now
    ) -> None:
        self.client = client
        self.parts = parts or Parts()
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything and wait until all caches are filled."""
        parts, client, clock = self.parts, self.client, self._clock
        self.caches = Caches(client)
        self.kubelets = Kubelets(
            client,
            self.caches,
            clock,
            parts.kubelet,
        )
        if parts.kubelets:
            self.kubelets.subscribe()
            self._spawn(self.kubelets.run(), "kubelets")
        if parts.scheduler:
            scheduler = Scheduler(client, self.caches, clock)
            scheduler.subscribe()
            self._spawn(scheduler.run(), "scheduler")
        if parts.controllers:
            self._start_controllers()
        await self.caches.synced()

    async def stop(self) -> None:
        """Stop everything; a part that had failed raises its error here."""
        finished = [task for task in self._tasks if task.done() and not task.cancelled()]
        failures = [error for task in finished if (error := task.exception()) is not None]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.caches.close()
        if failures:
            raise BaseExceptionGroup("parts of the simulated cluster failed", failures)

    def _start_controllers(self) -> None:
        collector = GarbageCollector()
        several = [
            DEPLOYMENT_CONTROLLER,
            REPLICA_SET_CONTROLLER,
            DAEMON_SET_CONTROLLER,
            job.CONTROLLER,
            disruption.CONTROLLER,
            taint_controller(),
            orphan_controller(),
        ]
        for controller in several:
            runner = self._runner(controller)
            runner.subscribe()
            self._spawn(runner.run(), controller.name)
        garbage = self._runner(collector.controller())
        garbage.subscribe()

        def definition_changed(old: Object | None, new: Object | None) -> None:
            resource = collector.learn(new) if new is not None else None
            if resource is not None:
                garbage.follow(resource, collector.route(resource))

        self.caches[CUSTOM_RESOURCE_DEFINITIONS].subscribe(definition_changed)
        self._spawn(garbage.run(), "garbage-collector")

    def _runner(self, controller: Controller) -> Runner:
        return Runner(controller, self.client, self.caches, self._clock)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_report_failure)
        self._tasks.append(task)


def _report_failure(task: asyncio.Task[None]) -> None:
    """A part that dies takes the meaning out of every test: report it at once."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        print(f"simulated cluster: {task.get_name()} failed", file=sys.stderr)
        traceback.print_exception(error)
