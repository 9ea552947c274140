"""One call on a resource, from query and body to bytes.

Called by the HTTP layer after the caller was let in.  Reads options strictly: what a real server
refuses as a bad request is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from hack.sim.cluster import resource as r
from hack.sim.cluster.calls import Caller, WriteOptions
from hack.sim.cluster.http.addresses import Address
from hack.sim.cluster.http.authentication import Authenticator
from hack.sim.cluster.http.negotiation import PLAIN, Answer, read_accept
from hack.sim.cluster.http.protobuf import MEDIA, read_protobuf
from hack.sim.cluster.http.reviews import REVIEWS, Reviews
from hack.sim.cluster.statuses import (
    bad_request,
    invalid,
    method_not_allowed,
    no_such_path,
    unprocessable,
    unsupported_media,
)
from hack.sim.cluster.store.deletion import read_delete_options
from hack.sim.cluster.store.engine import Engine
from hack.sim.cluster.store.kinds import Kind
from hack.sim.cluster.store.listing import (
    ListOptions,
    Selection,
    encode_list,
    list_objects,
    read_selection,
    shown,
)
from hack.sim.cluster.store.store import Object, Stored, decode, encode
from hack.sim.cluster.store.watching import WatchOptions
from hack.sim.cluster.tables.tables import partial, table

_BODY_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_MAX_WATCH_S = 3600
_CREATE_OPTIONS = r.Resource("meta.k8s.io", "v1", "createoptions", False, "CreateOptions")


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful answer."""

    code: int
    body: bytes
    warnings: list[str] = field(default_factory=list)


class ResourceCalls:
    """Answers calls on resources."""

    def __init__(self, engine: Engine, authenticator: Authenticator, reviews: Reviews) -> None:
        self._engine = engine
        self._authenticator = authenticator
        self._reviews = reviews

    def kind(self, address: Address) -> Kind:
        """The served kind behind an address, or 404."""
        kind = self._engine.registry.find(address.group, address.version, address.resource)
        if kind is None:
            raise no_such_path()
        if kind.resource.namespaced and address.name and not address.namespace:
            raise no_such_path()
        misplaced = address.namespace and not kind.resource.namespaced
        if misplaced and kind.resource != r.NAMESPACES:
            raise no_such_path()
        if address.subresource and address.subresource not in kind.subresources:
            raise no_such_path()
        return kind

    async def answer(
        self,
        address: Address,
        request: web.BaseRequest,
        caller: Caller,
        body: bytes,
        stale_revision: int | None,
    ) -> Reply:
        """Anything but a watch."""
        query = request.rel_url.query
        if (address.group, address.resource) in REVIEWS and address.verb == "create":
            read = read_body(request.headers.get("Content-Type"), body)
            return Reply(201, encode(self._reviews.answer(address, caller, read)))
        kind = self.kind(address)
        accept = read_accept(request.headers.get("Accept"))
        if address.verb == "list":
            return self._list(kind, address, query, accept, stale_revision)
        if address.verb == "get":
            found = self._engine.objects.get(kind, address.name, address.namespace)
            return Reply(200, self._encode(kind, found, accept, query))
        if address.verb == "create":
            return await self._create(kind, address, request, body, accept)
        if address.verb in {"update", "patch"}:
            return self._change(kind, address, request, body, accept)
        if address.verb == "delete":
            return self._delete(kind, address, query, body)
        if address.verb == "deletecollection":
            if "deletecollection" not in kind.verbs:
                raise method_not_allowed(kind.resource, "delete")
            selection = self._selection(kind, address, query)
            options = read_delete_options(_optional_body(body), dict(query))
            gone = self._engine.delete_selected(kind, selection, options)
            document = {
                "kind": kind.list_kind,
                "apiVersion": kind.resource.api_version,
                "metadata": {"resourceVersion": str(self._engine.store.revision)},
                "items": [one.obj for one in gone],
            }
            return Reply(200, encode(document))
        raise method_not_allowed(kind.resource, address.verb)

    def _selection(self, kind: Kind, address: Address, query: Mapping[str, str]) -> Selection:
        namespace = address.namespace if kind.resource.namespaced else None
        return read_selection(
            kind, namespace, query.get("labelSelector"), query.get("fieldSelector")
        )

    def watch(
        self, address: Address, request: web.BaseRequest
    ) -> tuple[Selection, WatchOptions, Answer, float]:
        """What a WATCH asks for."""
        kind, query = self.kind(address), request.rel_url.query
        initial = query.get("sendInitialEvents")
        options = WatchOptions(
            resource_version=query.get("resourceVersion", ""),
            bookmarks=query.get("allowWatchBookmarks") in {"true", "1"},
            send_initial_events=None if initial is None else initial == "true",
            match=query.get("resourceVersionMatch", ""),
        )
        timeout_s = _number(query, "timeoutSeconds") or _MAX_WATCH_S
        accept = read_accept(request.headers.get("Accept"))
        return self._selection(kind, address, query), options, accept, timeout_s

    def _list(
        self,
        kind: Kind,
        address: Address,
        query: Mapping[str, str],
        accept: Answer,
        stale_revision: int | None,
    ) -> Reply:
        match = query.get("resourceVersionMatch", "")
        version = query.get("resourceVersion", "")
        options = ListOptions(
            limit=_number(query, "limit") or 0,
            continue_token=query.get("continue", ""),
            resource_version=version,
            match=match,
        )
        if stale_revision is not None and not options.continue_token:
            options = ListOptions(
                limit=options.limit, resource_version=str(stale_revision), match="Exact"
            )
        listed = list_objects(
            self._engine.objects, kind, self._selection(kind, address, query), options
        )
        if accept.shape == "Table":
            include = query.get("includeObject", "Metadata")
            document = table(
                kind,
                listed.items,
                self._engine.clock(),
                include=include,
                listed=listed,
                version=accept.version,
            )
            return Reply(200, encode(document))
        if accept.shape == "Metadata":
            metadata: Object = {"resourceVersion": str(listed.revision)}
            if listed.continue_token:
                metadata["continue"] = listed.continue_token
            document = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{accept.version}",
                "metadata": metadata,
                "items": [partial(one.obj, accept.version) for one in listed.items],
            }
            return Reply(200, encode(document))
        return Reply(200, encode_list(kind, listed))

    async def _create(
        self,
        kind: Kind,
        address: Address,
        request: web.BaseRequest,
        body: bytes,
        accept: Answer,
    ) -> Reply:
        read = read_body(request.headers.get("Content-Type"), body)
        options = write_options(request)
        if address.subresource == "token":
            answer = self._authenticator.issue(address.namespace, address.name, read)
            return Reply(201, encode(answer))
        if address.name:
            if address.subresource not in {"eviction", "binding"}:
                raise method_not_allowed(kind.resource, "create")
            answer = await self._engine.post_subresource(
                kind, address.name, address.namespace, address.subresource, read, options
            )
            return Reply(201, encode(answer))
        if kind.resource.namespaced and not address.namespace:
            raise method_not_allowed(kind.resource, "")
        namespace = address.namespace if kind.resource.namespaced else None
        stored = self._engine.objects.create(kind, read, namespace, options)
        return Reply(
            201, self._encode(kind, stored, accept, request.rel_url.query), options.warnings
        )

    def _change(
        self,
        kind: Kind,
        address: Address,
        request: web.BaseRequest,
        body: bytes,
        accept: Answer,
    ) -> Reply:
        if not address.name:
            raise method_not_allowed(kind.resource, address.verb)
        options = write_options(request)
        content_type = request.headers.get("Content-Type")
        where = address.namespace if kind.resource.namespaced else None
        subresource = address.subresource
        code = 200
        if address.verb == "update":
            read = read_body(content_type, body)
            known = self._engine.objects.peek(kind.resource, address.name, where or "")
            code = 201 if known is None else 200  # some kinds are created by an update
            stored = self._engine.objects.update(
                kind, address.name, where, read, options, subresource
            )
        else:
            media = (content_type or "").partition(";")[0].strip()
            stored = self._engine.objects.patch(
                kind, address.name, where, _patch_body(body), media, options, subresource
            )
        return Reply(
            code, self._encode(kind, stored, accept, request.rel_url.query), options.warnings
        )

    def _delete(
        self, kind: Kind, address: Address, query: Mapping[str, str], body: bytes
    ) -> Reply:
        options = read_delete_options(_optional_body(body), dict(query))
        where = address.namespace if kind.resource.namespaced else None
        left, gone = self._engine.delete(kind, address.name, where, options)
        if not gone or kind.resource == r.PODS:
            return Reply(200, left.encoded)
        details: Object = {"name": address.name}
        if address.group:
            details["group"] = address.group
        details |= {"kind": address.resource, "uid": left.obj["metadata"]["uid"]}
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }
        return Reply(200, encode(status))

    def _encode(
        self, kind: Kind, stored: Stored, accept: Answer, query: Mapping[str, str]
    ) -> bytes:
        if accept is PLAIN or accept.shape == "Object":
            return shown(kind, stored).encoded
        if accept.shape == "Metadata":
            return encode(partial(stored.obj, accept.version))
        include = query.get("includeObject", "Metadata")
        document = table(
            kind, [stored], self._engine.clock(), include=include, version=accept.version
        )
        return encode(document)


def write_options(request: web.BaseRequest) -> WriteOptions:
    """The query of a write: dry run, field manager, field validation."""
    query = request.rel_url.query
    dry_run = query.getall("dryRun", [])
    if dry_run not in ([], ["All"], [""]):
        problem = invalid("dryRun", dry_run[0], 'supported values: "All"')
        raise unprocessable(_CREATE_OPTIONS, "", [problem])
    validation = query.get("fieldValidation") or "Warn"
    if validation not in {"Ignore", "Warn", "Strict"}:
        problem = invalid("fieldValidation", validation, "supported values: Ignore, Warn, Strict")
        raise unprocessable(_CREATE_OPTIONS, "", [problem])
    manager = query.get("fieldManager")
    if not manager:
        manager = request.headers.get("User-Agent", "unknown").partition("/")[0] or "unknown"
    return WriteOptions(
        manager=manager[:128], dry_run=dry_run == ["All"], field_validation=validation
    )


def read_body(content_type: str | None, body: bytes) -> Any:
    """The JSON of a body; 415 for another language, 400 for what is no JSON."""
    media = (content_type or "application/json").partition(";")[0].strip()
    if media == MEDIA:
        return read_protobuf(body)
    if media not in {"application/json", "*/*", ""}:
        raise unsupported_media(_BODY_TYPES)
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def _patch_body(body: bytes) -> Any:
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from None


def _optional_body(body: bytes) -> Any:
    return read_body(None, body) if body.strip() else None


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not text.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})')
    return int(text)
