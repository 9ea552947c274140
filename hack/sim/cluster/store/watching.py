"""Watches: one subscriber's view of a collection's changes.

Made for every WATCH by the HTTP layer and by the in-process client.  The subscription buffers;
its owner drains it.  It never scans the fleet: selective watches are indexed by field value.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.statuses import FieldProblem, bad_request, forbidden_field, unprocessable
from hack.sim.cluster.store.kinds import Kind
from hack.sim.cluster.store.listing import LIST_OPTIONS, ListOptions, Selection, list_objects
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.store import Change, Object, Stored

BUFFER_LIMIT = 200_000
"""Events a watcher may lag behind before it is cut off."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """How a watch is to start and what it may contain."""

    resource_version: str = ""
    bookmarks: bool = False
    send_initial_events: bool | None = None
    match: str = ""


class Subscription:
    """A running watch."""

    def __init__(
        self, api: ObjectApi, kind: Kind, selection: Selection, options: WatchOptions
    ) -> None:
        _check(options)
        self._api = api
        self.kind = kind
        self._selection = selection
        self._collection = api.collection(kind)
        self._buffer: list[Notice] = []
        self._wake = asyncio.Event()
        self._index: tuple[str, str] | None = None
        self.bookmarks = options.bookmarks
        self.seen = api.store.revision
        self.ended = False
        self.paused = False
        self._begin(options)

    def _begin(self, options: WatchOptions) -> None:
        text = options.resource_version
        initial = options.send_initial_events
        if initial is None:
            initial = text in {"", "0"}
        if initial:
            listed = list_objects(self._api, self.kind, self._selection, ListOptions())
            self._buffer += [Notice("ADDED", one) for one in listed.items]
            if options.send_initial_events:
                self._buffer.append(self._bookmark(initial_end=True))
        elif text:
            if not text.isdigit():
                raise bad_request(f'resourceVersion: Invalid value: "{text}"')
            try:
                for change in self._collection.since(int(text)):
                    self._take(change)
            except ApiError as error:
                self.fail(error)
                return
        for field in self._collection.indexers:
            wanted = self._selection.fields.wanted(field)
            if wanted is not None:
                self._index = (field, wanted)
                break
        if self._index is None:
            self._collection.subscribers.add(self._take)
        else:
            self._collection.by_field.setdefault(self._index, set()).add(self._take)
        if self._buffer:
            self._wake.set()

    def _take(self, change: Change) -> None:
        selection = self._selection
        if change.type == "ADDED":
            if not selection.matches(change.key, change.stored.obj):
                return
            type_ = "ADDED"
        else:
            previous = change.previous
            was = previous is not None and selection.matches(change.key, previous.obj)
            now = change.type != "DELETED" and selection.matches(change.key, change.stored.obj)
            if not was and not now:
                return
            type_ = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
        self._buffer.append(Notice(type_, change.shown(type_), change))
        if len(self._buffer) > BUFFER_LIMIT:
            self.close()
        self._wake.set()

    def _bookmark(self, *, initial_end: bool = False) -> Notice:
        revision = self._api.store.revision
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        resource = self.kind.resource
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return Notice("BOOKMARK", Stored(obj, revision))

    def bookmark(self) -> None:
        """Tell the watcher how far it is, if it asked to be told."""
        if self.bookmarks and not self.ended:
            self._buffer.append(self._bookmark())
            self._wake.set()

    def finish(self) -> None:
        """End the watch because its time is over, with a last bookmark."""
        self.bookmark()
        self.close()

    def fail(self, error: ApiError) -> None:
        """End the watch with an ERROR event."""
        self._buffer.append(Notice("ERROR", Stored(error.status(), self._api.store.revision)))
        self.close()

    def close(self) -> None:
        """End the watch; what is buffered can still be drained."""
        self.ended = True
        self._collection.subscribers.discard(self._take)
        if self._index is not None:
            takers = self._collection.by_field.get(self._index)
            if takers is not None:
                takers.discard(self._take)
                if not takers:
                    del self._collection.by_field[self._index]
        self._wake.set()

    async def drain(self) -> list[Notice]:
        """The next events, waiting for the first; empty when the watch has ended."""
        while (not self._buffer or self.paused) and not self.ended:
            self._wake.clear()
            await self._wake.wait()
        buffered, self._buffer = self._buffer, []
        return buffered

    def pause(self, *, paused: bool) -> None:
        """Hold events back (a silent watch), or let them go."""
        self.paused = paused
        self._wake.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(options: WatchOptions) -> None:
    problems: list[FieldProblem] = []
    if options.send_initial_events is not None and options.match != "NotOlderThan":
        problems.append(
            forbidden_field(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        )
    elif options.match and options.send_initial_events is None:
        problems.append(
            forbidden_field(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    if problems:
        raise unprocessable(LIST_OPTIONS, "", problems)
