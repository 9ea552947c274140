"""Watch the pods of one draining node, so that its drain needs few lists.

The watch starts from a list of the API server's watch cache. When it breaks it starts again from
there. Until then the drain lists the pods. Each watch is a connection of about 0.4 MiB, most of it
a TLS buffer of asyncio, so only `MOST` nodes are watched at once.
"""

import asyncio
import random
from collections.abc import Callable, Iterable

import msgspec
import structlog

from remediator.kube import watch_events
from remediator.kube.answer import EXCHANGE_ERRORS, ApiError, key_of, name_of
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue
from remediator.kube.watch_events import RelistError, Resource, WatchEvent
from remediator.world import Edge
from rules.api import object_name, timestamps
from rules.api.pods import PodView, unreadable_pod
from rules.text import tolerant

_LOG = structlog.get_logger()

PODS = Resource(name="pods", path="/api/v1/pods")
# The API server ends the watch after this time.
_WATCH_S = (300, 600)
_BACKOFF_S = (0.8, 30.0)
MOST = 32
# A drain beyond that number tries again after this time, in which most drains end.
_FULL_S = 30.0
# A watch that was open this long worked and starts again at once.
_LIVED_S = 15.0


class PodWatch:
    """All pods of one node while `run` runs."""

    def __init__(
        self, edge: Edge, node: str, changed: Callable[[], None], slots: asyncio.Semaphore
    ) -> None:
        """`changed` is called when the pods changed and when the watch cannot be opened. `slots`
        limits the open watches.
        """
        self._api: Api = edge.api
        self._clock = edge.clock
        self._isolation = edge.isolation
        self._node = node
        self._changed = changed
        self._slots = slots
        self._query = {"fieldSelector": object_name.field_selector("spec.nodeName", node)}
        self._pods: dict[str, PodView] = {}
        self._heard_at: float | None = None
        """CLOCK_BOOTTIME of the last event of the open watch; None while none is open."""
        self.contradicted = False
        """The last uncached list had other pods. The watch is not used until a list agrees."""

    def pods(self, within_s: float = float("inf")) -> tuple[PodView, ...] | None:
        """Return the pods; None if the watch is not open, the last list contradicts it, or its
        last event is older than `within_s`.
        """
        heard_at = self._heard_at
        if heard_at is None or self.contradicted or self._clock.elapsed() - heard_at > within_s:
            return None
        return tuple(self._pods.values())

    def shows(self, listed: Iterable[PodView]) -> bool:
        """Return whether the open watch has exactly the listed pods."""
        uids = {pod.uid for pod in self._pods.values()}
        return self._heard_at is not None and uids == {pod.uid for pod in listed}

    def compare(self, listed: Iterable[PodView]) -> None:
        """Compare the watch with an uncached list."""
        self.contradicted = not self.shows(listed)

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        failures = 0
        while True:
            if self._slots.locked():
                self._changed()
                await self._clock.sleep(_FULL_S * random.uniform(0.75, 1.25))
                continue
            began = self._clock.elapsed()
            try:
                async with self._slots:
                    await self._follow()
            except (ApiError, RelistError, *EXCHANGE_ERRORS) as error:
                _LOG.info("pod watch", node=self._node, why=str(error) or type(error).__name__)
            except Exception as error:  # noqa: BLE001 - one node must not stop the others
                self._isolation.note("watch", f"pods of node {self._node}", error)
            if self._clock.elapsed() - began >= _LIVED_S:
                failures = 0
                continue
            self._changed()
            failures += 1
            wait_s = timestamps.backoff_s(failures, *_BACKOFF_S)
            await self._clock.sleep(wait_s * random.uniform(0.75, 1.25))

    async def _follow(self) -> None:
        """List the pods from the API server's cache and apply events until the watch ends."""
        cached = {**self._query, "resourceVersion": "0"}
        answer = await self._api.call(CallQueue.READ, "GET", PODS.path, query=cached)
        version, listed = answer.envelope().metadata.resource_version, answer.items(PodView)
        unread = {key: unreadable_pod(key, self._node) for key in listed.unread}
        self._pods = {key_of(pod.metadata): pod for pod in listed.found} | unread
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(*_WATCH_S)),
        }
        async with self._api.stream(PODS.path, query, timestamps.WATCH_SILENCE_S) as response:
            if response.status != 200:
                raise ApiError(await self._api.read_answer(response))
            self._heard_at, self.contradicted = self._clock.elapsed(), False
            self._changed()
            try:
                async for line in watch_events.lines(response.content):
                    self._apply(line)
            finally:
                self._heard_at = None

    def _apply(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line, type=WatchEvent)
        except tolerant.UNREADABLE as error:
            raise RelistError(f"a line of the watch is not an event: {error}") from error
        if event.type == "ERROR":
            status = watch_events.decode_loosely(event.object)
            raise RelistError(f"the watch ended with {status.code} {status.message}"[:200])
        self._heard_at = self._clock.elapsed()
        if event.type == "BOOKMARK":
            return
        key = name_of(event.object)
        if event.type == "DELETED":
            self._pods.pop(key, None)
        else:
            pod = watch_events.understood(event.object, PodView, PODS).value
            self._pods[key] = pod or unreadable_pod(key, self._node)
        self._changed()
