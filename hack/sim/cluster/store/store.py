"""What etcd and the watch cache are to a real API server: revisions, history, fan-out.

Used by the API logic only.  Objects handed in belong to the store from then on and must never be
changed by anybody; every change is a new object.  Encodes each revision once.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from hack.sim.cluster.errors import ApiError

Key = tuple[str, str]
Object = dict[str, Any]

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode

HISTORY_LIMIT = 50_000
"""Changes kept per collection before the oldest are forgotten (a watch older than that is 410)."""


class Stored:
    """One revision of one object, with its bytes."""

    __slots__ = ("_bytes", "obj", "revision")

    def __init__(self, obj: Object, revision: int) -> None:
        self.obj = obj
        self.revision = revision
        self._bytes: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The object as JSON."""
        if self._bytes is None:
            self._bytes = encode(self.obj)
        return self._bytes


class Change:
    """One event of a collection: ADDED, MODIFIED or DELETED, and what was there before."""

    __slots__ = ("_lines", "key", "previous", "stored", "type")

    def __init__(self, type_: str, key: Key, stored: Stored, previous: Stored | None) -> None:
        self.type = type_
        self.key = key
        self.stored = stored
        self.previous = previous
        self._lines: dict[str, bytes] = {}

    def line(self, type_: str) -> bytes:
        """The event as one line of a watch stream, encoded once for all watchers."""
        line = self._lines.get(type_)
        if line is None:
            line = b'{"type":"%b","object":%b}\n' % (type_.encode(), self.shown(type_).encoded)
            self._lines[type_] = line
        return line

    def shown(self, type_: str) -> Stored:
        """The object a watcher sees: its last matching state when it leaves the selection."""
        if type_ != "DELETED" or self.type == "DELETED" or self.previous is None:
            return self.stored
        metadata = {
            **self.previous.obj["metadata"],
            "resourceVersion": str(self.stored.revision),
        }
        return Stored({**self.previous.obj, "metadata": metadata}, self.stored.revision)


Indexer = Callable[[Object], str]


class Collection:
    """All objects of one resource, their history and their subscribers."""

    def __init__(self, indexers: dict[str, Indexer]) -> None:
        self.objects: dict[Key, Stored] = {}
        self.keys: list[Key] = []
        self.history: deque[Change] = deque()
        self.compacted = 0
        self.last_revision = 0
        self.subscribers: set[Callable[[Change], None]] = set()
        self.indexers = indexers
        self.indexed: dict[tuple[str, str], set[Key]] = {}

    def index_terms(self, obj: Object) -> Iterator[tuple[str, str]]:
        """The (field, value) pairs under which the object can be found."""
        for field, read in self.indexers.items():
            yield field, read(obj)

    def range(self, namespace: str | None) -> list[Key]:
        """The keys of one namespace (or all), sorted as etcd sorts them."""
        if not namespace:
            return self.keys
        start = bisect_left(self.keys, (namespace, ""))
        return self.keys[start : bisect_left(self.keys, (namespace + "\0", ""))]

    def apply(self, change: Change) -> None:
        """Take a change into the state, the history and every subscriber it concerns."""
        key, previous = change.key, change.previous
        if previous is not None:
            for term in self.index_terms(previous.obj):
                self.indexed.get(term, set()).discard(key)
        if change.type == "DELETED":
            del self.objects[key]
            del self.keys[bisect_left(self.keys, key)]
        else:
            if previous is None:
                insort(self.keys, key)
            self.objects[key] = change.stored
            for term in self.index_terms(change.stored.obj):
                self.indexed.setdefault(term, set()).add(key)
        self.last_revision = change.stored.revision
        self.history.append(change)
        if len(self.history) > HISTORY_LIMIT:
            self.compacted = self.history.popleft().stored.revision
        for notify in list(self.subscribers):
            notify(change)

    def since(self, revision: int) -> list[Change]:
        """The changes after `revision`, oldest first; 410 when they are no longer known."""
        if revision < self.compacted:
            raise ApiError(
                410,
                "Expired",
                f"too old resource version: {revision} ({self.compacted})",
            )
        found: list[Change] = []
        for change in reversed(self.history):
            if change.stored.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found


class Store:
    """All collections under one revision counter."""

    def __init__(self) -> None:
        self.revision = 1
        self.collections: dict[str, Collection] = {}

    def collection(self, name: str, indexers: dict[str, Indexer] | None = None) -> Collection:
        """The collection of that name, made when it does not exist yet."""
        found = self.collections.get(name)
        if found is None:
            found = self.collections[name] = Collection(indexers or {})
        return found

    def put(self, collection: Collection, key: Key, obj: Object) -> Stored:
        """Store a new revision of an object and tell the watchers."""
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        stored = Stored(obj, self.revision)
        previous = collection.objects.get(key)
        collection.apply(Change("MODIFIED" if previous else "ADDED", key, stored, previous))
        return stored

    def remove(self, collection: Collection, key: Key) -> Stored:
        """Remove an object; the event carries its last state under the new revision."""
        self.revision += 1
        previous = collection.objects[key]
        metadata = {**previous.obj["metadata"], "resourceVersion": str(self.revision)}
        stored = Stored({**previous.obj, "metadata": metadata}, self.revision)
        collection.apply(Change("DELETED", key, stored, previous))
        return stored

    def compact(self) -> None:
        """Forget all history: older watches and continue tokens are answered 410 from now on."""
        for collection in self.collections.values():
            collection.compacted = self.revision
            collection.history.clear()
