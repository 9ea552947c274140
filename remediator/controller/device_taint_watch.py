"""Watch the ResourceSlices of DRA drivers whose device taints are triggers of the policy.

There is one watch per driver, selected by the server, and none if no policy has such a trigger.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from remediator.kube.watch import Reflector
from remediator.kube.watch_events import Resource
from remediator.world import Edge, EdgePart
from rules.api import resource_slices
from rules.api.resource_slices import ResourceSliceView
from rules.text.tolerant import Sharing

_SWEEP_S = 5.0
# A slice has up to 128 devices.
_PAGE = 100


@dataclass(slots=True, kw_only=True)
class _Driver:
    """The slices of one driver."""

    name: str
    cache: Reflector[ResourceSliceView]
    task: asyncio.Task[None]
    by_node: dict[str, dict[str, ResourceSliceView]] = field(default_factory=dict)
    """Slices by node and name."""
    unknown: bool = True
    """Whether the cache is incomplete or too old. Its taints then open and close nothing."""


class DeviceTaintWatch(EdgePart):
    """Keeps `World.device_taints` up to date."""

    def __init__(
        self, edge: Edge, *, changed: Callable[[str], None], sweep_s: float = _SWEEP_S
    ) -> None:
        """`changed` is called with the name of each node whose taints changed."""
        super().__init__(edge)
        self._sweep_s = sweep_s
        self._changed = changed
        self._drivers: dict[str, _Driver] = {}

    async def run(self) -> None:
        """Watch the drivers of the policy until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._sweep(tasks)
                    await self._clock.sleep(self._sweep_s)
        finally:
            for name in list(self._drivers):
                self._stop(name)

    def _sweep(self, tasks: asyncio.TaskGroup) -> None:
        wanted = self._policy().taint_drivers
        for name in self._drivers.keys() - wanted:
            self._stop(name)
        for name in sorted(wanted - self._drivers.keys()):
            self._drivers[name] = self._started(name, tasks)
        for driver in self._drivers.values():
            unknown = not driver.cache.synced or bool(driver.cache.too_old())
            if unknown != driver.unknown:
                driver.unknown = unknown
                self._publish(driver, *driver.by_node)
            self._metrics.watch_synced.labels(driver.cache.resource.name).set(not unknown)

    def _started(self, name: str, tasks: asyncio.TaskGroup) -> _Driver:
        cache: Reflector[ResourceSliceView] = Reflector(
            self._api,
            self._clock,
            Resource(
                name=f"resourceslices of {name}",
                path=resource_slices.PATH,
                query={"fieldSelector": resource_slices.fields_of(name)},
            ),
            ResourceSliceView,
            lambda _, *change: self._slice_changed(self._drivers[name], *change),
            isolation=self._isolation,
            sharing=Sharing(),
            page_size=_PAGE,
        )
        task = tasks.create_task(self._isolation.keep("watch", cache.run))
        return _Driver(name=name, cache=cache, task=task)

    def _stop(self, name: str) -> None:
        driver = self._drivers.pop(name)
        driver.task.cancel()
        driver.unknown = True
        self._publish(driver, *driver.by_node)
        self._metrics.watch_synced.remove(driver.cache.resource.name)

    def _slice_changed(
        self, driver: _Driver, before: ResourceSliceView | None, after: ResourceSliceView | None
    ) -> None:
        if before is not None:
            driver.by_node[before.spec.node_name].pop(before.metadata.name)
        if after is not None:
            slices = driver.by_node.setdefault(after.spec.node_name, {})
            slices[after.metadata.name] = after
        self._publish(driver, *{one.spec.node_name for one in (before, after) if one is not None})

    def _publish(self, driver: _Driver, *nodes: str) -> None:
        for node in nodes:
            slices = driver.by_node[node].values()
            if not slices:
                del driver.by_node[node]
            unknown = driver.unknown or not node
            taints = resource_slices.UNKNOWN if unknown else resource_slices.node_taints(slices)
            if self._world.note_device_taints(node, driver.name, taints):
                self._changed(node)
