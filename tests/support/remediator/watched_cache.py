"""A cache that follows a scripted server, and the calls of its listener."""

import asyncio
from contextlib import asynccontextmanager

from remediator.kube.access import Access
from remediator.kube.api import Api
from remediator.kube.clock import RateLimiter
from remediator.kube.watch import Reflector
from remediator.kube.watch_events import Resource
from rules.api.nodes import NodeView
from tests.support.remediator.edge import SteppedClock
from tests.support.remediator.scripted_server import scripted_server, write_kubeconfig

__all__ = [
    "NODES",
    "Recorder",
    "RecordingClock",
    "SkippingClock",
    "is_watch",
    "watching",
]

NODES = Resource(name="nodes", path="/api/v1/nodes", query={"labelSelector": "gpu"})


class Recorder:
    """Hears the changes of a cache and lets a test wait for a state of it."""

    def __init__(self, clock):
        self.changes = []
        self.clock = clock
        """The clock of the cache."""

    def __call__(self, key, before, after):
        kind = "added" if before is None else "removed" if after is None else "changed"
        self.changes.append((kind, key))


class RecordingClock(SteppedClock):
    """Remembers for how long somebody slept."""

    def __init__(self):
        self.slept = []
        super().__init__()

    def go_on(self, seconds):
        """Time passes."""
        self.ahead_s += seconds

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await super().sleep(seconds)


class SkippingClock(RecordingClock):
    """Who sleeps wakes at once, that much later."""

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.go_on(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def watching(
    tmp_path, handler, resource=NODES, listener=None, *, clock=RecordingClock, **options
):
    async with scripted_server(handler) as address:
        clock = clock()
        access = Access(write_kubeconfig(tmp_path / "kubeconfig", address))
        await access.load()
        api = Api(access, clock, RateLimiter({}, clock))
        await api.open()
        recorder = Recorder(clock)
        cache = Reflector(api, clock, resource, NodeView, listener or recorder, **options)
        task = asyncio.create_task(cache.run())
        try:
            yield cache, recorder
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.close()


def is_watch(request):
    return request.query.get("watch") == "true"
