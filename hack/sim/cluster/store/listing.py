"""Lists and watches: selection, paging, resourceVersion semantics.

A page shows what is there when it is asked for: a real server would show the moment of the first.
A watch buffers; its owner drains it.
"""

import asyncio
import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from hack.sim.cluster.errors import ApiError, bad_request
from hack.sim.cluster.store.kinds import Kind
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)
from hack.sim.cluster.store.store import Change, Collection, Key, Object, Stored, decode, encode

BUFFER_LIMIT = 200_000
"""Events a watcher may lag behind before it is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a collection a list or watch is about."""

    namespace: str | None = None
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)

    def matches(self, key: Key, obj: Object) -> bool:
        """Whether the object at `key` is selected."""
        return (
            (not self.namespace or key[0] == self.namespace)
            and (not self.fields.terms or self.fields.matches(obj))
            and (
                not self.labels.requirements or self.labels.matches(obj["metadata"].get("labels"))
            )
        )


def read_selection(
    kind: Kind, namespace: str | None, label_selector: str | None, field_selector: str | None
) -> Selection:
    """The selection behind a query."""
    return Selection(
        namespace=namespace if kind.resource.namespaced else None,
        labels=parse_label_selector(label_selector),
        fields=parse_field_selector(field_selector, kind.fields),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """How a list is to be answered."""

    limit: int = 0
    continue_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One page."""

    items: list[Stored]
    metadata: Object

    def encoded(self, kind: Kind) -> bytes:
        """The page as JSON, from bytes that were encoded once; built-in items carry no type."""
        head = {"kind": kind.list_kind, "apiVersion": kind.resource.api_version}
        typed = b""
        if not kind.custom:
            typed = encode({**head, "kind": kind.resource.kind})
        start = b"" if kind.custom else b"{"
        body = b",".join([start + one.encoded[len(typed) :] for one in self.items])
        return b'%b,"items":[%b]}' % (encode({**head, "metadata": self.metadata})[:-1], body)


def list_objects(
    api: ObjectApi, kind: Kind, selection: Selection, options: ListOptions | None = None
) -> Listed:
    """Answer a LIST."""
    options = options or ListOptions()
    collection = api.collection(kind)
    after = _read_token(options.continue_token) if options.continue_token else None
    items: list[Stored] = []
    selected = _select(collection, selection, after)
    for stored in selected:
        items.append(stored)
        if options.limit and len(items) == options.limit:
            break
    metadata: Object = {"resourceVersion": str(api.store.revision)}
    if options.limit and next(selected, None) is not None:
        last = items[-1].obj["metadata"]
        metadata["continue"] = _token((last.get("namespace", ""), last["name"]))
    return Listed(items=items, metadata=metadata)


def _select(collection: Collection, selection: Selection, after: Key | None) -> Iterator[Stored]:
    keys = _candidates(collection, selection)
    start = bisect_right(keys, after) if after is not None else 0
    for key in keys[start:]:
        stored = collection.objects.get(key)
        if stored is not None and selection.matches(key, stored.obj):
            yield stored


def _candidates(collection: Collection, selection: Selection) -> list[Key]:
    for name in collection.indexers:
        wanted = selection.fields.wanted(name)
        if wanted is not None:
            return sorted(collection.indexed.get((name, wanted), ()))
    return collection.range(selection.namespace)


def _token(after: Key) -> str:
    return base64.urlsafe_b64encode(encode(after)).decode()


def _read_token(token: str) -> Key:
    try:
        namespace, name = decode(base64.urlsafe_b64decode(token))
        return str(namespace), str(name)
    except (binascii.Error, ValueError, TypeError):
        raise bad_request("continue key is not valid") from None


@dataclass(frozen=True, slots=True)
class Notice:
    """One event for one watcher: its type there, and the change or the object behind it."""

    type: str
    stored: Stored
    change: Change | None = None

    def line(self) -> bytes:
        """The event as one line of the stream."""
        if self.change is not None:
            return self.change.line(self.type)
        return b'{"type":"%b","object":%b}\n' % (self.type.encode(), self.stored.encoded)


class Subscription:
    """A running watch: from a revision, or (without one) from what is there now."""

    def __init__(
        self,
        api: ObjectApi,
        kind: Kind,
        selection: Selection,
        resource_version: str = "",
        *,
        bookmarks: bool = False,
    ) -> None:
        self.kind = kind
        self.ended = False
        self._store = api.store
        self._selection = selection
        self._bookmarks = bookmarks
        self._collection = api.collection(kind)
        self._buffer: list[Notice] = []
        self._wake = asyncio.Event()
        self._paused = False
        try:
            self._begin(api, resource_version)
        except ApiError as error:
            self.fail(error)
            return
        self._collection.subscribers.add(self._take)

    def _begin(self, api: ObjectApi, resource_version: str) -> None:
        if resource_version in {"", "0"}:
            listed = list_objects(api, self.kind, self._selection).items
            self._buffer += [Notice("ADDED", one) for one in listed]
        elif not resource_version.isdigit():
            raise bad_request(f'resourceVersion: Invalid value: "{resource_version}"')
        else:
            for change in self._collection.since(int(resource_version)):
                self._take(change)

    def _take(self, change: Change) -> None:
        selection, previous = self._selection, change.previous
        was = previous is not None and selection.matches(change.key, previous.obj)
        now = change.type != "DELETED" and selection.matches(change.key, change.stored.obj)
        if not was and not now:
            return
        type_ = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
        self._buffer.append(Notice(type_, change.shown(type_), change))
        if len(self._buffer) > BUFFER_LIMIT:
            self.close()
        self._wake.set()

    def bookmark(self) -> None:
        """Tell the watcher how far it is, if it asked to be reported."""
        if not self._bookmarks or self.ended:
            return
        revision, resource = self._store.revision, self.kind.resource
        obj = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(revision), "creationTimestamp": None},
        }
        self._buffer.append(Notice("BOOKMARK", Stored(obj, revision)))
        self._wake.set()

    def finish(self) -> None:
        """End the watch because its time is over, with a last bookmark."""
        self.bookmark()
        self.close()

    def fail(self, error: ApiError) -> None:
        """End the watch with an ERROR event."""
        self._buffer.append(Notice("ERROR", Stored(error.status(), self._store.revision)))
        self.close()

    def close(self) -> None:
        """End the watch; what is buffered can still be drained."""
        self.ended = True
        self._collection.subscribers.discard(self._take)
        self._wake.set()

    async def drain(self) -> list[Notice]:
        """The next events, waiting for the first; empty when the watch has ended."""
        while (not self._buffer or self._paused) and not self.ended:
            self._wake.clear()
            await self._wake.wait()
        buffered, self._buffer = self._buffer, []
        return buffered

    def pause(self, *, paused: bool) -> None:
        """Hold events back (a silent watch), or let them go."""
        self._paused = paused
        self._wake.set()
