"""Lists: selection, paging over a consistent snapshot, resourceVersion semantics, encoding.

Called for every LIST.  A continue token names a revision and the last key; the past is rebuilt
from the change history, so a token outlives writes but not a compaction (410).
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.statuses import bad_request, forbidden_field, unprocessable, unsupported
from hack.sim.cluster.store.kinds import Kind
from hack.sim.cluster.store.objects import ObjectApi
from hack.sim.cluster.store.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)
from hack.sim.cluster.store.store import Collection, Key, Object, Stored, decode, encode
from hack.sim.cluster.validation.event_shapes import to_new

LIST_OPTIONS = Resource("meta.k8s.io", "v1", "listoptions", False, "ListOptions")
_MATCHES = ("Exact", "NotOlderThan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a collection a list, watch or deletecollection is about."""

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
        namespace=namespace,
        labels=parse_label_selector(label_selector),
        fields=parse_field_selector(field_selector, kind.fields),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """How a list is to be answered."""

    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One page."""

    items: list[Stored]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


def list_objects(api: ObjectApi, kind: Kind, selection: Selection, options: ListOptions) -> Listed:
    """Answer a LIST."""
    _check_match(options)
    collection = api.collection(kind)
    revision, after, then = api.store.revision, None, None
    if options.continue_token:
        if options.resource_version:
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = _read_token(options.continue_token)
    elif options.resource_version not in {"", "0"}:
        revision = _wanted_revision(api.store.revision, options)
    if revision != api.store.revision:
        then = _snapshot(collection, revision)
    items: list[Stored] = []
    selected = _select(collection, selection, then, after)
    for stored in selected:
        items.append(stored)
        if options.limit and len(items) == options.limit:
            break
    remaining = sum(1 for _ in selected) if options.limit else 0
    if not remaining:
        return Listed(items=items, revision=revision)
    last = items[-1].obj["metadata"]
    counted = not selection.labels.requirements and not selection.fields.terms
    return Listed(
        items=items,
        revision=revision,
        continue_token=_token(revision, (last.get("namespace", ""), last["name"])),
        remaining=remaining if counted else None,
    )


def _check_match(options: ListOptions) -> None:
    match, path = options.match, "resourceVersionMatch"
    if not match:
        return
    if match not in _MATCHES:
        problem = unsupported(path, match, (*_MATCHES, ""))
    elif not options.resource_version:
        why = f"{path} is forbidden unless resourceVersion is provided"
        problem = forbidden_field(path, why)
    elif options.continue_token:
        problem = forbidden_field(path, f"{path} is forbidden when continue is provided")
    elif match == "Exact" and options.resource_version == "0":
        why = f'{path} "exact" is forbidden for resourceVersion "0"'
        problem = forbidden_field(path, why)
    else:
        return
    raise unprocessable(LIST_OPTIONS, "", [problem])


def _select(
    collection: Collection,
    selection: Selection,
    then: dict[Key, Stored | None] | None,
    after: Key | None,
) -> Iterator[Stored]:
    keys = _candidates(collection, selection, then)
    start = bisect_right(keys, after) if after is not None else 0
    everything = not (
        selection.namespace or selection.fields.terms or selection.labels.requirements
    )
    for index in range(start, len(keys)):
        key = keys[index]
        stored = then[key] if then is not None and key in then else collection.objects.get(key)
        if stored is not None and (everything or selection.matches(key, stored.obj)):
            yield stored


def _candidates(
    collection: Collection, selection: Selection, then: dict[Key, Stored | None] | None
) -> list[Key]:
    if then is None:
        for name in collection.indexers:
            wanted = selection.fields.wanted(name)
            if wanted is not None:
                return sorted(collection.indexed.get((name, wanted), ()))
        return collection.range(selection.namespace)
    return sorted(collection.objects.keys() | then.keys())


def _wanted_revision(present: int, options: ListOptions) -> int:
    text = options.resource_version
    if not text.isdigit():
        raise bad_request(f'resourceVersion: Invalid value: "{text}"')
    wanted = int(text)
    if wanted > present:
        message = f"Too large resource version: {wanted}, current: {present}"
        raise ApiError(
            504,
            "Timeout",
            f"Timeout: {message}",
            {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": message}],
                "retryAfterSeconds": 1,
            },
        )
    return wanted if options.match == "Exact" else present


def _snapshot(collection: Collection, revision: int) -> dict[Key, Stored | None]:
    try:
        return collection.at(revision)
    except ApiError:
        raise ApiError(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You "
            "can start a new list without the continue parameter.",
        ) from None


def _token(revision: int, after: Key) -> str:
    body = encode({"v": "meta.k8s.io/v1", "rv": revision, "start": list(after)})
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, Key]:
    try:
        body = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, name = body["start"]
        return int(body["rv"]), (str(namespace), str(name))
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise bad_request("continue key is not valid") from None


def shown(kind: Kind, stored: Stored) -> Stored:
    """An object as the API of its kind shows it."""
    return Stored(to_new(stored.obj), stored.revision) if kind.respelled else stored


def encode_list(kind: Kind, listed: Listed) -> bytes:
    """The page as JSON, from bytes that were encoded once; built-in items carry no type."""
    resource = kind.resource
    metadata: Object = {"resourceVersion": str(listed.revision)}
    if listed.continue_token:
        metadata["continue"] = listed.continue_token
    if listed.remaining is not None:
        metadata["remainingItemCount"] = listed.remaining
    head = encode(
        {"kind": kind.list_kind, "apiVersion": resource.api_version, "metadata": metadata}
    )
    if kind.custom:
        body = b",".join([one.encoded for one in listed.items])
    else:
        typed = len(encode({"kind": resource.kind, "apiVersion": resource.api_version}))
        body = b",".join([b"{" + shown(kind, one).encoded[typed:] for one in listed.items])
    return b'%b,"items":[%b]}' % (head[:-1], body)
