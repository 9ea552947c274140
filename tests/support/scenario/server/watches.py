"""The watches of the virtual cluster: changes are sent to every watcher.

Tests and controllers change the objects in place. `show` finds what changed since it was last
shown, gives it a new version where the writer did not, and writes the events.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from remediator.kube.clock import CallQueue
from tests.support.scenario.server.apiserver import encoded
from tests.support.scenario.server.reads import Object, Reads, Selection

_BOOKMARK_S = 5.0


class _Shown:
    """A collection as it was last shown: each object as it went over the wire, and its version."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.encoded_object = b""
        """All of it: that nothing changed, as mostly, is seen at once."""
        self.wires: dict[str, tuple[bytes, str]] = {}
        self.watches: list[MemoryWatch] = []


class MemoryWatch:
    """The response to one watch, as far as `remediator.kube.watch` reads it."""

    status = 200

    def __init__(self, selection: Selection, silence_s: float, clock: Callable[[], float]) -> None:
        """`silence_s`: after so long without an event the watcher treats it as broken."""
        self.selection = selection
        self._silence_s = silence_s
        self._clock = clock
        self._sent_at = clock()
        self.sent: dict[str, Object] = {}
        """What the watcher knows, by key."""
        self.content = self
        self._chunks: list[bytes] = []
        self._more = asyncio.Event()
        self._closed = False

    def say(self, kind: str, item: bytes) -> None:
        self._sent_at = self._clock()
        self._chunks.append(b'{"type":"%s","object":%s}\n' % (kind.encode(), item))
        self._more.set()

    @property
    def due_at(self) -> float:
        """When the next bookmark is due."""
        return self._sent_at + self._silence_s / 2

    def is_due(self) -> bool:
        return self._clock() >= self.due_at

    def close(self) -> None:
        self._closed = True
        self._more.set()

    async def iter_any(self) -> AsyncIterator[bytes]:
        while True:
            chunk = b"".join(self._chunks)
            self._chunks.clear()
            self._more.clear()
            if chunk:
                yield chunk
            elif self._closed:
                return
            else:
                await self._more.wait()


class Watches(Reads):
    """Watches of any collection."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: Mapping[CallQueue, float] | None = None
        """How fast a replica's calls go out; None: as in production."""
        self.unwatched: set[str] = set()
        """Collections that may not be watched."""
        self._collections: dict[str, _Shown] = {}
        self._quiet_until = 0.0
        """No bookmark is due before then."""

    def watch(self, path: str, query: Mapping[str, str], silence_s: float) -> MemoryWatch:
        """A watch that begins with what there is: the caller has just listed it."""
        shown = self._collections.setdefault(path, _Shown(path))
        watch = MemoryWatch(Selection(path, query), silence_s, lambda: self.now)
        self._show(shown)
        has = watch.selection.has
        watch.sent = {k: o for k, o in self.collection(path).items() if has(o)}
        shown.watches.append(watch)
        self._quiet_until = min(self._quiet_until, watch.due_at)
        return watch

    def end_watch(self, path: str, watch: MemoryWatch) -> None:
        """The watcher went away."""
        watch.close()
        shown = self._collections.get(path)
        if shown is not None and watch in shown.watches:
            shown.watches.remove(watch)

    def open_watches(self, path: str) -> int:
        """How many watches of a collection are open."""
        shown = self._collections.get(path)
        return len(shown.watches) if shown is not None else 0

    def break_watches(self, path: str) -> None:
        """The watches of a collection end, and new ones are refused."""
        self.unwatched.add(path)
        for watch in list(self._collections[path].watches):
            watch.close()

    def hang_watches(self, path: str) -> None:
        """The open watches of a collection stay open and are silent."""
        self._collections[path].watches.clear()

    def undefine(self, *resources: str) -> None:
        """Their definitions are deleted: the objects go one after the other, the watches end."""
        for resource in resources:
            self._objects_of(resource).clear()
            self.show()
            self.undefined.add(resource)
            for path, shown in self._collections.items():
                if path.endswith(f"/{resource}"):
                    for watch in shown.watches:
                        watch.close()
                    shown.watches.clear()

    def _objects_of(self, resource: str) -> dict[str, Object]:
        return {
            "gpuquarantines": self.quarantines,
            "gpunodehealths": self.healths,
            "gpuwardpauses": self.pauses,
        }[resource]

    def is_undefined(self, path: str) -> bool:
        """Whether the definition of the collection is gone."""
        return path.rpartition("/")[2] in self.undefined

    def forget_watches(self) -> None:
        """The watcher is gone."""
        for shown in self._collections.values():
            for watch in shown.watches:
                watch.close()
            shown.watches.clear()

    def expire_watches(self) -> None:
        """Every watch ends with 410: its version is too old."""
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}
        for shown in self._collections.values():
            for watch in shown.watches:
                watch.say("ERROR", encoded(gone))
            shown.watches.clear()

    def show(self) -> None:
        """Show all that changed."""
        for shown in self._collections.values():
            self._show(shown)

    def say_nothing_changed(self) -> None:
        """Send a bookmark to each watcher that is due."""
        if self.now < self._quiet_until:
            return
        watches = [watch for shown in self._collections.values() for watch in shown.watches]
        if due := [watch for watch in watches if watch.is_due()]:
            bookmark = encoded({"metadata": {"resourceVersion": str(self.version)}})
            for watch in due:
                watch.say("BOOKMARK", bookmark)
        self._quiet_until = min((watch.due_at for watch in watches), default=self.now)

    async def say_now_and_then(self) -> None:
        """As an API server does, for as long as anybody watches."""
        while True:
            await asyncio.sleep(_BOOKMARK_S)
            self.say_nothing_changed()

    def _show(self, shown: _Shown) -> None:
        found = self.collection(shown.path)
        if not found and not shown.wires:
            return
        encoded_object = encoded(found)
        if encoded_object == shown.encoded_object:
            return
        changed: list[tuple[int, str, bytes, Object | None]] = []
        for key, item in found.items():
            wire = encoded(item)
            known = shown.wires.get(key)
            if known is not None and known[0] == wire:
                continue
            version = item["metadata"].get("resourceVersion", "0")
            if known is not None and known[1] == version:
                self.touch(item)
                encoded_object = b""
                item = self.collection(shown.path)[key]
                wire, version = encoded(item), item["metadata"]["resourceVersion"]
            shown.wires[key] = wire, version
            changed.append((int(version), key, wire, item))
        for key in [key for key in shown.wires if key not in found]:
            self.version += 1
            del shown.wires[key]
            changed.append((self.version, key, b"", None))
        shown.encoded_object = encoded_object
        for at, key, wire, now in sorted(changed, key=lambda one: one[0]):
            for watch in shown.watches:
                self._tell(watch, key, wire, now, at)

    def _tell(
        self, watch: MemoryWatch, key: str, wire: bytes, item: Object | None, version: int
    ) -> None:
        if item is not None and watch.selection.has(item):
            watch.sent[key] = item
            watch.say("MODIFIED", wire)
        elif key in watch.sent:
            gone = watch.sent.pop(key)
            meta = {**gone["metadata"], "resourceVersion": str(version)}
            watch.say("DELETED", encoded({**gone, "metadata": meta}))
