"""Who wrote which field: `metadata.managedFields`, kept for updates.

Called by the API logic on every stored change.  What a writer changes becomes its own and stops
being anybody else's; what is removed belongs to nobody.  Pure; server-side apply is a non-goal.
"""

from __future__ import annotations

import json
from typing import Any

from hack.sim.cluster.store.patching import MERGE_KEYS, MERGED_SETS

Object = dict[str, Any]
Fields = dict[str, Any]

_IGNORED_METADATA = frozenset(
    [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "generation",
        "selfLink",
        "name",
        "namespace",
        "generateName",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ]
)
_IGNORED_ROOT = frozenset({"apiVersion", "kind"})


def update_managed_fields(
    old: Object | None,
    new: Object,
    *,
    manager: str,
    subresource: str,
    api_version: str,
    at: str,
    custom: bool,
) -> list[Object]:
    """The entries after `manager` turned `old` into `new`."""
    set_fields: Fields = {}
    gone: Fields = {}
    _compare(old or {}, new, set_fields, gone, 0, custom=custom)
    entries = []
    own: Object | None = None
    for entry in (old or {}).get("metadata", {}).get("managedFields") or []:
        fields = entry.get("fieldsV1") or {}
        mine = (
            entry.get("manager") == manager
            and entry.get("operation") == "Update"
            and (entry.get("subresource") or "") == subresource
        )
        rest = _without(fields, gone)
        if not mine:
            rest = _without(rest, set_fields)
        elif set_fields:
            rest = _union(rest, set_fields)
        if not rest:
            continue
        kept = {**entry, "fieldsV1": rest}
        if mine:
            own = kept
            if set_fields or rest != fields:
                kept["time"] = at
        entries.append(kept)
    if own is None and set_fields:
        entry = {
            "manager": manager,
            "operation": "Update",
            "apiVersion": api_version,
            "time": at,
            "fieldsType": "FieldsV1",
            "fieldsV1": set_fields,
        }
        entries.append(entry | ({"subresource": subresource} if subresource else {}))
    return entries


def _compare(
    old: Any, new: Any, set_fields: Fields, gone: Fields, depth: int, *, custom: bool
) -> None:
    """Collect what `new` sets differently (leaves) and what it no longer has."""
    for key, value in new.items():
        if depth == 0 and (key in _IGNORED_ROOT or (value == {} and key not in old)):
            continue
        before = old.get(key)
        if before is value or before == value:
            continue
        name = "f:" + key
        inner_set: Fields = {}
        inner_gone: Fields = {}
        if depth == 0 and key == "metadata":
            _compare(
                _metadata(before or {}), _metadata(value), inner_set, inner_gone, 1, custom=custom
            )
        elif isinstance(value, dict) and (value or before):
            was = before if isinstance(before, dict) else {}
            _compare(was, value, inner_set, inner_gone, depth + 1, custom=custom)
            if not was:
                inner_set = {".": {}, **inner_set}
        elif isinstance(value, list) and (keyed := _keyed(key, value, custom=custom)) is not None:
            was_keyed = _keyed(key, before if isinstance(before, list) else [], custom=custom)
            _compare_items(was_keyed or {}, keyed, inner_set, inner_gone, depth, custom=custom)
            if not was_keyed:
                inner_set = {".": {}, **inner_set}
        else:
            set_fields[name] = {}
            continue
        if inner_set:
            set_fields[name] = inner_set
        if inner_gone:
            gone[name] = inner_gone
    for key in old:
        if key not in new:
            gone["f:" + key] = None


def _compare_items(
    old: dict[str, Any],
    new: dict[str, Any],
    set_fields: Fields,
    gone: Fields,
    depth: int,
    *,
    custom: bool,
) -> None:
    for key, value in new.items():
        before = old.get(key)
        if before == value and key in old:
            continue
        if not isinstance(value, dict):
            set_fields[key] = {}
            continue
        inner_set: Fields = {}
        inner_gone: Fields = {}
        _compare(before or {}, value, inner_set, inner_gone, depth + 2, custom=custom)
        if before is None:
            inner_set = {".": {}, **inner_set}
        if inner_set:
            set_fields[key] = inner_set
        if inner_gone:
            gone[key] = inner_gone
    for key in old:
        if key not in new:
            gone[key] = None


def _metadata(metadata: Object) -> Object:
    return {key: value for key, value in metadata.items() if key not in _IGNORED_METADATA}


def _keyed(name: str, items: list[Any], *, custom: bool) -> dict[str, Any] | None:
    """A list as a map of path elements, None when it is owned as a whole."""
    if name in MERGED_SETS:
        return {"v:" + json.dumps(one): one for one in items}
    if custom and name != "ownerReferences":
        return None
    merge_key = MERGE_KEYS.get(name)
    if merge_key is None or not all(isinstance(one, dict) and merge_key in one for one in items):
        return None
    return {
        "k:" + json.dumps({merge_key: one[merge_key]}, separators=(",", ":")): one for one in items
    }


def _union(left: Fields, right: Fields) -> Fields:
    result = dict(left)
    for key, value in right.items():
        result[key] = _union(result[key], value) if key in result else value
    return result


def _without(fields: Fields, taken: Fields) -> Fields:
    """`fields` minus every leaf of `taken` (None there takes the whole branch)."""
    if not taken:
        return fields
    result: Fields = {}
    for key, value in fields.items():
        if key not in taken:
            result[key] = value
            continue
        removed = taken[key]
        if not removed or not value or key == ".":
            continue
        rest = _without(value, {name: one for name, one in removed.items() if name != "."})
        if rest:
            result[key] = rest
    return result
