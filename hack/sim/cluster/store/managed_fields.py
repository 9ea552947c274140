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
    set_fields, gone = _differences(_owned(old or {}), _owned(new), "", custom=custom)
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


def _owned(obj: Object) -> Object:
    """The object without what the server itself writes."""
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k not in _IGNORED_METADATA}
    parts = {key: value for key, value in obj.items() if key not in _IGNORED_ROOT and value != {}}
    return {**parts, "metadata": metadata}


def _differences(old: Any, new: Any, name: str, *, custom: bool) -> tuple[Fields, Fields]:
    """What `new` sets differently (leaves), and what it no longer has."""
    set_fields: Fields = {}
    before, after = (_parts(name, one, custom=custom) or {} for one in (old, new))
    gone: Fields = dict.fromkeys(before.keys() - after.keys())
    for element, value in after.items():
        was = before.get(element)
        if element in before and (was is value or was == value):
            continue
        inner_name = element.removeprefix("f:")
        if not _parts(inner_name, value, custom=custom):
            set_fields[element] = {}
            continue
        inner_set, inner_gone = _differences(was, value, inner_name, custom=custom)
        if inner_set:
            set_fields[element] = inner_set
        if inner_gone:
            gone[element] = inner_gone
    return set_fields, gone


def _parts(name: str, value: Any, *, custom: bool) -> Fields | None:
    """The parts that are owned one by one, by path element; None where the whole is owned."""
    if isinstance(value, dict):
        return {f"f:{key}": part for key, part in value.items()}
    if not isinstance(value, list):
        return None
    if name in MERGED_SETS:
        return {"v:" + json.dumps(one): one for one in value}
    merge_key = MERGE_KEYS.get(name)
    if merge_key is None or (custom and name != "ownerReferences"):
        return None
    if not all(isinstance(one, dict) and merge_key in one for one in value):
        return None
    return {
        "k:" + json.dumps({merge_key: one[merge_key]}, separators=(",", ":")): one for one in value
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
        if removed and value and (rest := _without(value, removed)):
            result[key] = rest
    return result
