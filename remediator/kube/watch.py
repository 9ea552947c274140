"""List and watch one resource into a cache.

A `Reflector` lists page by page and follows the watch from there. It lists again when the server
no longer has the resource version (410), when a stream breaks, and after an outage. An object that
cannot be decoded does not stop the watch.
"""

import random
from collections.abc import Callable
from typing import Generic, TypeVar

import aiohttp
import msgspec
import structlog

from remediator.kube import watch_events
from remediator.kube.answer import EXCHANGE_ERRORS, ApiError, key_of, name_of
from remediator.kube.api import Api
from remediator.kube.clock import CallQueue, Clock
from remediator.kube.isolation import Isolation
from remediator.kube.watch_events import Named, ObjectVersion, RelistError, Resource, WatchEvent
from rules.api import timestamps
from rules.session.observation import too_old
from rules.text import tolerant
from rules.text.tolerant import Sharing

_LOG = structlog.get_logger()

PAGE_SIZE = 500
# After a silence, a list may take this long before the cache counts as too old.
_LISTING_S = 10.0
# The server ends the watch after this time; random, so that watches do not end together.
_WATCH_S = (300, 600)
# As client-go's reflector: 0.8 s after the first failure, doubled up to 30 s.
_BACKOFF_S = (0.8, 30.0)
# A watch that was open this long worked, and failures are counted from zero again. Lists and short
# watches do not count: a server that forgets every version at once lets both of them succeed.
# Shorter than the shortest silence after which a list follows (`PAUSES_LISTED_S`).
_LIVED_S = 15.0
# Upper limit of Retry-After, because an old cache stops all disruptions.
_LONGEST_ASKED_S = 60.0
# Older states are ignored this often, for a lagging server; then it is a restored backup.
_OLDER_ANSWERS_DOUBTED = 3
# Refusals of a watch that have another cause than its resource version.
_NOT_OUR_VERSION = frozenset({401, 403, 404, 408, 429})

T = TypeVar("T", bound=Named)


class Reflector(Generic[T]):
    """A cache of one resource; `items` by name (namespace/name where it has one)."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        resource: Resource,
        kind: type[T],
        on_change: Callable[[str, T | None, T | None], None],
        *,
        isolation: Isolation | None = None,
        sharing: Sharing | None = None,
        silence_s: float = timestamps.WATCH_SILENCE_S,
        page_size: int = PAGE_SIZE,
    ) -> None:
        """`on_change(key, before, after)` is called for every change, also those of a list.
        `sharing` is that of all caches of the process.
        """
        self.resource = resource
        self.items: dict[str, T] = {}
        self.synced = False
        self.problem = ""
        """Why the cache may be outdated, one sentence; "" while the watch works."""
        self.heard_at: float | None = None
        """CLOCK_BOOTTIME of the last list or watch event."""
        self.unfollowed_since: float | None = clock.elapsed()
        """CLOCK_BOOTTIME since when no watch is open; None while one is."""
        self.broken_objects = 0
        self._missing = (float("-inf"), float("-inf"))
        """CLOCK_BOOTTIME from when until when the server last did not serve the resource."""
        self._api = api
        self._clock = clock
        self._kind = kind
        self._on_change = on_change
        self._isolation = isolation or Isolation(clock)
        self._sharing = sharing or Sharing()
        self._silence_s = silence_s
        self._page_size = page_size
        self._version = ""
        self._newest = ""
        self._older_answers = 0
        self._failures = 0
        """Lists and watches in a row that failed, since a watch was last open for long enough."""
        self._watched_s = 0.0
        """How long the last watch was open."""
        self.rewound_at = float("-inf")
        """CLOCK_BOOTTIME when the server last showed an older state than before (a restored
        backup): what is missing since then was not deleted by anybody."""
        self._owed: tuple[int, float] | None = None
        """Version of an own write that the watch has not shown yet, and when it was answered."""
        self._response: aiohttp.ClientResponse | None = None
        self._event_at = float("-inf")

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            resource, asked_s, ended = self.resource, 0.0, False
            self._watched_s = 0.0
            try:
                if not self._version or self._quiet_s() >= self._silence_s:
                    # Only a list shows events that a broken connection lost.
                    await self._list()
                elif self._failures:
                    await self._ask_version()
                await self._watch()
                ended = True
            except RelistError as reason:
                _LOG.info("list again", resource=self.resource.name, why=str(reason))
                self._version = ""
            except ApiError as error:
                self._note(watch_events.explained(self.resource, error.answer))
                if error.answer.code == 404:
                    self._note_missing()
                asked_s = min(error.answer.retry_after_s or 0.0, _LONGEST_ASKED_S)
            except EXCHANGE_ERRORS as error:
                # A watch that ends is normal: continue from the last version.
                ended = isinstance(error, TimeoutError)
                if self._failures > 1 or not self.synced:
                    self._note(f"The watch of {self.resource.name} broke: {type(error).__name__}.")
            lived = self._watched_s >= min(_LIVED_S, self._silence_s)
            if lived:
                self._failures = 0
            if (ended and lived) or resource is not self.resource:
                # The server ended the watch, it was silent, or another selection is wanted.
                continue
            self._failures += 1
            wait_s = timestamps.backoff_s(self._failures, *_BACKOFF_S) * random.uniform(0.75, 1.25)
            await self._clock.sleep(max(asked_s, wait_s))

    def use(self, resource: Resource) -> None:
        """Watch with another selector from now on."""
        self.resource, self.synced = resource, False
        self.relist("another selection is wanted")

    def relist(self, why: str) -> None:
        """List again: the selector changed, or the server contradicts the cache."""
        _LOG.warning("list again", resource=self.resource.name, why=why)
        self._version = ""
        if self._response is not None:
            self._response.close()

    def contradicted_by(self, read: T) -> bool:
        """Whether an object just read is older than the cached one; lists again then."""
        known = self.items.get(key_of(read.metadata))
        if known is None or not watch_events.newer(known, read):
            return False
        self.relist(f"{key_of(read.metadata)} was read at an older version than it is held")
        return True

    def too_old(self) -> str:
        """Why the cache is too old to allow a disruption, a clause; "" if it is fresh."""
        now, heard_at = self._clock.elapsed(), self.heard_at
        followed = self.unfollowed_since is None and self._owed is None
        if followed and heard_at is not None and now - heard_at <= self._silence_s:
            return ""
        moments = [self.unfollowed_since, self._owed[1] if self._owed else None]
        return too_old(
            self.resource.name,
            quiet_s=self._quiet_s(),
            unfollowed_s=max((now - at for at in moments if at is not None), default=0.0),
            problem=self.problem,
            longest_quiet_s=self._silence_s + _LISTING_S,
        )

    def shown(self, key: str, *, heard_s: float, owed_s: float) -> T | None:
        """The object, if the open watch had an event within `heard_s` seconds and has delivered
        every own write that was answered more than `owed_s` seconds ago; else None.
        """
        now, owed = self._clock.elapsed(), self._owed
        is_open = self.unfollowed_since is None and bool(self._version)
        delivered = owed is None or now - owed[1] <= owed_s
        up_to_date = is_open and now - self._event_at <= heard_s and delivered
        return self.items.get(key) if up_to_date else None

    def _quiet_s(self) -> float:
        heard_at = self.heard_at
        return float("inf") if heard_at is None else self._clock.elapsed() - heard_at

    def learn(self, item: T) -> T | None:
        """Store an object that a write returned; return the stored object, None if a newer one is
        known.
        """
        taken = None
        key = key_of(item.metadata)
        before = self.items.get(key)
        version = item.metadata.resource_version
        ahead = watch_events.is_number(version) and watch_events.is_number(self._version)
        if before is None and ahead and int(version) <= int(self._version):
            # The watch has passed this version: the object was deleted meanwhile.
            return None
        if before is None or not watch_events.newer(before, item):
            taken = self.items[key] = self._sharing.share(item)
        if ahead and self._owed is None and int(version) > int(self._version):
            # A watch that does not deliver this write hangs.
            self._owed = (int(version), self._clock.elapsed())
        return taken

    def _note_missing(self) -> None:
        since, until = self._missing
        now = self._clock.elapsed()
        served_since = self.heard_at is not None and self.heard_at > until
        self._missing = (now if served_since else since, now)

    def went_with_definition(self, at: float, within_s: float) -> bool:
        """Whether the server did not serve the resource within that many seconds of `at`
        (CLOCK_BOOTTIME): objects that vanished then were deleted with their CRD.
        """
        since, until = self._missing
        return since - within_s <= at <= until + within_s

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            _LOG.warning("watch", resource=self.resource.name, problem=problem)
        self.problem = problem

    async def _list(self) -> None:
        """Read all pages, then make the cache equal to them."""
        found: dict[str, T] = {}
        resource, query = self.resource, {"limit": str(self._page_size), **self.resource.query}
        while True:
            answer = await self._api.call(
                CallQueue.READ, "GET", resource.path, query=query, accept=resource.accept("List")
            )
            if answer.code == 410 and "continue" in query:
                raise RelistError("the list took longer than the server keeps its pages")
            page = answer.envelope()
            for raw in page.items or ():
                key = name_of(raw)
                item = self._known(*watch_events.version_of(raw)) or self._decode(raw)
                # Unreadable now: keep the cached object, so that a decoding error changes nothing.
                if item is not None or (item := self.items.get(key)) is not None:
                    found[key_of(item.metadata)] = item
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        if resource is not self.resource:
            raise RelistError("the selection changed")
        version = page.metadata.resource_version
        if self._is_older(version):
            self._older_answers += 1
            if self._older_answers <= _OLDER_ANSWERS_DOUBTED:
                raise RelistError("the server answered with an older state than shown before")
            self._rewound()
        else:
            self._older_answers = 0
            self._keep_newer(found, version)
        self._replace(found)
        self._version = self._newest = version
        self.heard_at, self.problem = self._clock.elapsed(), ""
        self._owed = None
        if not self.synced:
            _LOG.info("cache ready", resource=self.resource.name, objects=len(found))
        self.synced = True

    def _is_older(self, version: str) -> bool:
        known = self._newest
        return (
            watch_events.is_number(known)
            and watch_events.is_number(version)
            and int(version) < int(known)
        )

    def _keep_newer(self, found: dict[str, T], version: str) -> None:
        """Keep objects that own writes returned while the list was read. If the list shows an
        older version than its own, a backup was restored.
        """
        for key, known in self.items.items():
            if key not in found or not watch_events.newer(known, found[key]):
                continue
            held = known.metadata.resource_version
            if watch_events.is_number(version) and int(held) <= int(version):
                self._rewound()
            else:
                found[key] = known

    def _rewound(self) -> None:
        if self.rewound_at < (now := self._clock.elapsed()):
            _LOG.warning("older state", resource=self.resource.name, why="the server went back")
        self.rewound_at = now

    async def _ask_version(self) -> None:
        """Check the version of the server after a failure. A restored server accepts a watch at a
        version that it has not reached, and sends no events until then.
        """
        query = {**self.resource.query, "limit": "1"}
        accept, path = self.resource.accept("List"), self.resource.path
        answer = await self._api.call(CallQueue.READ, "GET", path, query=query, accept=accept)
        if self._is_older(answer.envelope().metadata.resource_version):
            raise RelistError("the server is at an older version than it was")

    def _replace(self, found: dict[str, T]) -> None:
        before = self.items
        self.items = found
        for key in [k for k in before if k not in found]:
            self._tell(key, before[key], None)
        for key, item in found.items():
            old = before.get(key)
            if old is None or old.metadata.resource_version != item.metadata.resource_version:
                self._tell(key, old, item)

    async def _watch(self) -> None:
        resource = self.resource
        query = {
            **resource.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*_WATCH_S)),
        }
        async with self._api.stream(
            resource.path, query, self._silence_s, resource.accept()
        ) as response:
            if resource is not self.resource:
                # The answer is for the old selector.
                raise RelistError("the selection changed")
            if response.status != 200:
                answer = await self._api.read_answer(response)
                if answer.code == 410:
                    raise RelistError("the server no longer keeps our version")
                if 400 <= answer.code < 500 and answer.code not in _NOT_OUR_VERSION:
                    # The same request would always get the same answer.
                    self._version = ""
                raise ApiError(answer)
            self._response = response
            self._event_at, opened_at = float("-inf"), self._clock.elapsed()
            self.unfollowed_since = None
            try:
                async for line in watch_events.lines(response.content):
                    if resource is not self.resource:
                        raise RelistError("the selection changed")
                    self._apply(line)
            finally:
                self.unfollowed_since = self._clock.elapsed()
                self._watched_s = self.unfollowed_since - opened_at

    def _apply(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line, type=WatchEvent)
        except tolerant.UNREADABLE as error:
            raise RelistError(f"a line of the watch is not an event: {error}") from error
        self.heard_at = self._event_at = self._clock.elapsed()
        self.problem = ""
        if event.type == "ERROR":
            status = watch_events.decode_loosely(event.object)
            raise RelistError(f"the watch ended with {status.code} {status.message}"[:200])
        known_as, metadata = watch_events.version_of(event.object)
        version = metadata.resource_version
        version = version or watch_events.decode_loosely(event.object).metadata.resource_version
        if event.type == "DELETED":
            # A deleted object is removed even if it cannot be decoded.
            key = name_of(event.object)
            if (before := self.items.pop(key, None)) is not None:
                self._tell(key, before, None)
        elif event.type != "BOOKMARK":
            item = self._known(known_as, metadata) or self._decode(event.object)
            if item is not None:
                key = key_of(item.metadata)
                before = self.items.get(key)
                if before is not item and (before is None or not watch_events.newer(before, item)):
                    self.items[key] = item
                    self._tell(key, before, item)
        self._advance(version)

    def _tell(self, key: str, before: T | None, after: T | None) -> None:
        """Call the listener; an error in it does not stop the watch."""
        with self._isolation.guard("watch", f"{self.resource.name} {key}"):
            self._on_change(key, before, after)

    def _advance(self, version: str) -> None:
        if 0 < len(version) < watch_events.MAX_VERSION_CHARS:
            if self._is_older(version):
                raise RelistError("the watch went back to an older version")
            self._version = self._newest = version
            if self._owed and watch_events.is_number(version) and int(version) >= self._owed[0]:
                self._owed = None

    def _known(self, key: str, metadata: ObjectVersion) -> T | None:
        """The cached object of exactly this version, or None: every own write comes back by a
        watch.
        """
        known = self.items.get(key)
        same = known is not None and watch_events.same_version(known.metadata, metadata)
        return known if same else None

    def _decode(self, raw: msgspec.Raw) -> T | None:
        """Decode an object as far as possible; decoding problems are counted and logged."""
        found = watch_events.understood(raw, self._kind, self.resource)
        self.broken_objects += bool(found.doubts)
        return None if found.value is None else self._sharing.share(found.value)
