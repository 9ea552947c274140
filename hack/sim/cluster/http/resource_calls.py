"""One call on a resource, from query and body to bytes; from HTTP and from the same process.

`InProcessClient` is the client without a wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hack.sim.cluster import resource as r
from hack.sim.cluster.client import JSON, Client, Object
from hack.sim.cluster.errors import (
    bad_request,
    conflict,
    method_not_allowed,
    no_such_path,
    unsupported_media,
)
from hack.sim.cluster.http.access import Authenticator
from hack.sim.cluster.resource import Address, WriteOptions, read_address
from hack.sim.cluster.store.deletion import delete, evict, read_delete_options
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.kinds import Kind
from hack.sim.cluster.store.listing import (
    ListOptions,
    Selection,
    Subscription,
    list_objects,
    read_selection,
)
from hack.sim.cluster.store.store import Stored, decode, encode
from hack.sim.cluster.store.tables import partial, table

_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request on a resource: what it is about, and what it brings along."""

    address: Address
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = ""
    accept: str = ""
    agent: str = ""

    @property
    def options(self) -> WriteOptions:
        """The query of a write: dry run, field manager, field validation."""
        manager = self.query.get("fieldManager") or self.agent.partition("/")[0] or "unknown"
        return WriteOptions(
            manager=manager[:128],
            dry_run=bool(self.query.get("dryRun")),
            strict=self.query.get("fieldValidation") == "Strict",
        )

    @property
    def read(self) -> Any:
        """The JSON of the body; 400 for what is no JSON, None for none."""
        try:
            return decode(self.body) if self.body.strip() else None
        except msgspec.DecodeError as error:
            raise bad_request(f"json parse error: {error}") from None

    @property
    def posted(self) -> Any:
        """The JSON of a body that must be JSON; 415 for another language."""
        media = self.content_type.partition(";")[0].strip()
        if media not in {"application/json", "*/*", ""}:
            raise unsupported_media(["application/json"])
        return self.read

    def number(self, name: str) -> int:
        """A number of the query, 0 without one."""
        text = self.query.get(name) or "0"
        if not text.isdigit():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})')
        return int(text)


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful answer."""

    code: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ResourceCalls:
    """Answers calls on resources, for callers who are already known and allowed."""

    engine: Engine
    authenticator: Authenticator | None = None
    """Issues tokens; without one nobody does."""

    def _kind(self, address: Address) -> Kind:
        kind = self.engine.registry.find(address.group, address.version, address.resource)
        if kind is None:
            raise no_such_path()
        needs = kind.resource.namespaced and address.name and not address.namespace
        has = address.namespace and not kind.resource.namespaced
        if needs or (has and kind.resource != r.NAMESPACES):
            raise no_such_path()
        if address.subresource and address.subresource not in kind.subresources:
            raise no_such_path()
        return kind

    def watch(self, asked: Asked) -> Subscription:
        """Begin a watch; its owner gives it back to the engine."""
        kind = self._kind(asked.address)
        bookmarks = asked.query.get("allowWatchBookmarks") in {"true", "1"}
        version = asked.query.get("resourceVersion", "")
        return self.engine.watch(kind, _selection(kind, asked), version, bookmarks=bookmarks)

    def answer(self, asked: Asked) -> Reply:
        """Anything but a watch."""
        address = asked.address
        kind = self._kind(address)
        match address.verb:
            case "list":
                return self._list(kind, asked)
            case "get":
                found = self.engine.objects.get(kind, address.name, address.namespace)
                return Reply(200, self._encode(kind, found, asked))
            case "create":
                return self._create(kind, asked)
            case "update" | "patch" if address.name:
                return self._change(kind, asked)
            case "delete":
                return self._delete(kind, asked)
        raise method_not_allowed()

    def _list(self, kind: Kind, asked: Asked) -> Reply:
        query = asked.query
        options = ListOptions(
            limit=asked.number("limit"),
            continue_token=query.get("continue", ""),
        )
        listed = list_objects(self.engine.objects, kind, _selection(kind, asked), options)
        shape = _shape(asked.accept)
        if not shape:
            return Reply(200, listed.encoded(kind))
        objects = [one.obj for one in listed.items]
        if shape == "Table":
            shown = table(kind.columns, objects, self.engine.clock(), listed.metadata)
            return Reply(200, encode(shown))
        document = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": listed.metadata,
            "items": [partial(one) for one in objects],
        }
        return Reply(200, encode(document))

    def _create(self, kind: Kind, asked: Asked) -> Reply:
        address, options, body = asked.address, asked.options, asked.posted
        if address.subresource == "token" and self.authenticator is not None:
            answer = self.authenticator.issue(address.namespace, address.name, body)
            return Reply(201, encode(answer))
        if address.subresource in {"eviction", "binding"}:
            if address.subresource == "eviction":
                dry_run = options.dry_run
                evict(self.engine.objects, address.namespace, address.name, body, dry_run=dry_run)
            else:
                self._bind(kind, asked, body)
            return Reply(201, encode({**_SUCCESS, "code": 201}))
        if address.name or (kind.resource.namespaced and not address.namespace):
            raise method_not_allowed()
        stored = self.engine.objects.create(kind, body, _place(kind, address), options)
        return Reply(201, self._encode(kind, stored, asked))

    def _bind(self, kind: Kind, asked: Asked, body: Object) -> None:
        """Give a pod its node; cordon and taints are the scheduler's business."""
        objects = self.engine.objects
        pod = objects.get(kind, asked.address.name, asked.address.namespace).obj
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            why = "the pod is already assigned to a node, or is being deleted"
            raise conflict(kind.resource, asked.address.name, why)
        condition = {"type": "PodScheduled", "status": "True"}
        kept = [
            one for one in pod["status"].get("conditions") or () if one["type"] != "PodScheduled"
        ]
        bound = {
            **pod,
            "metadata": dict(pod["metadata"]),
            "spec": {**pod["spec"], "nodeName": body["target"]["name"]},
            "status": {**pod["status"], "conditions": [*kept, condition]},
        }
        objects.put(kind, bound)

    def _change(self, kind: Kind, asked: Asked) -> Reply:
        address, options, objects = asked.address, asked.options, self.engine.objects
        where = _place(kind, address)
        if address.verb == "update":
            known = objects.peek(kind.resource, address.name, where or "")
            code = 201 if known is None else 200  # some kinds are created by an update
            stored = objects.update(
                kind, address.name, where, asked.posted, options, address.subresource
            )
            return Reply(code, self._encode(kind, stored, asked))
        media = asked.content_type.partition(";")[0].strip()
        stored = objects.patch(
            kind, address.name, where, asked.read, media, options, address.subresource
        )
        return Reply(200, self._encode(kind, stored, asked))

    def _delete(self, kind: Kind, asked: Asked) -> Reply:
        address = asked.address
        options = read_delete_options(asked.read, dict(asked.query))
        left, gone = delete(
            self.engine.objects, kind, address.name, _place(kind, address), options
        )
        if not gone or kind.resource == r.PODS:
            return Reply(200, left.encoded)
        details = {"name": address.name, "group": address.group, "kind": address.resource}
        details["uid"] = left.obj["metadata"]["uid"]
        return Reply(200, encode({**_SUCCESS, "details": details}))

    def _encode(self, kind: Kind, stored: Stored, asked: Asked) -> bytes:
        shape = _shape(asked.accept)
        if not shape:
            return stored.encoded
        if shape == "Table":
            metadata = {"resourceVersion": str(stored.revision)}
            return encode(table(kind.columns, [stored.obj], self.engine.clock(), metadata))
        return encode(partial(stored.obj))


def _place(kind: Kind, address: Address) -> str | None:
    return address.namespace if kind.resource.namespaced else None


def _selection(kind: Kind, asked: Asked) -> Selection:
    query = asked.query
    return read_selection(
        kind, asked.address.namespace, query.get("labelSelector"), query.get("fieldSelector")
    )


def _shape(accept: str) -> str:
    """Table, Metadata, or nothing for the object itself."""
    first = accept.partition(",")[0]
    if "as=Table" in first:
        return "Table"
    return "Metadata" if "as=PartialObjectMetadata" in first else ""


class InProcessClient(Client):
    """Hands requests to the server's logic; `agent` is its name in managedFields."""

    def __init__(self, engine: Engine, agent: str = "in-process") -> None:
        self._engine = engine
        self._calls = ResourceCalls(engine)
        self._agent = agent

    def named(self, agent: str) -> InProcessClient:
        """The same client under another name."""
        return InProcessClient(self._engine, agent)

    async def close(self) -> None:
        """There are no connections."""

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        """Send one request; the object in its answer, or ApiError."""
        asked = Asked(
            address=read_address(method, path, watch=False),
            query=query or {},
            body=b"" if body is None else encode(body),
            content_type=content_type,
            agent=self._agent,
        )
        answer: Object = decode(self._calls.answer(asked).body)
        return answer

    async def events(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Object]:
        """The events of a watch; they end only with the server's watches."""
        asked = Asked(address=read_address("GET", path, watch=True), query=query)
        subscription = self._calls.watch(asked)
        try:
            while notices := await subscription.drain():
                for notice in notices:
                    yield decode(notice.line())
        finally:
            self._engine.forget(subscription)
