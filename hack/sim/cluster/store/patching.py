"""The patch languages of the API: JSON merge patch (RFC 7396) and strategic merge patch.

Pure: they return a new object that shares every untouched part with the old one. In a strategic
patch lists that are maps merge by their key, the finalizers are a set, and every other list
(taints, tolerations) is replaced as a unit. `update_managed_fields` records who wrote which field.
"""

import json
from typing import Any

from hack.sim.cluster.errors import bad_request

MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""The lists that merge, and the field by which their items are distinguished."""
MERGED_SETS = frozenset({"finalizers"})
"""Lists of texts that merge as sets."""
_DELETE_PRIMITIVE = "$deleteFromPrimitiveList/"


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(target: Any, patch: dict[str, Any]) -> dict[str, Any]:
    """Apply a strategic merge patch with its `$` directives."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: _plain(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVE):
            name = key.removeprefix(_DELETE_PRIMITIVE)
            result[name] = [one for one in result.get(name) or [] if one not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic_merge(result.get(key), value)
        elif isinstance(value, list):
            result[key] = _merged_list(result.get(key), value, key)
        else:
            result[key] = value
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    return result


def _merged_list(before: Any, patch: list[Any], name: str) -> list[Any]:
    present = list(before) if isinstance(before, list) else []
    if name in MERGED_SETS:
        return present + [one for one in patch if one not in present]
    merge_key = MERGE_KEYS.get(name)
    if merge_key is None or not all(isinstance(one, dict) for one in patch):
        return [_plain(one) for one in patch]
    if any(one.get("$patch") == "replace" for one in patch):
        return [_plain(one) for one in patch if "$patch" not in one]
    for one in patch:
        if merge_key not in one:
            raise bad_request(f"map: {one} does not contain declared merge key: {merge_key}")
        index = next(
            (i for i, old in enumerate(present) if old.get(merge_key) == one[merge_key]), None
        )
        if one.get("$patch") == "delete":
            if index is not None:
                del present[index]
        elif index is None:
            present.append(_plain(one))
        else:
            present[index] = strategic_merge(present[index], one)
    return present


def _plain(value: Any) -> Any:
    """A new value without directives and nulls."""
    if isinstance(value, dict):
        return {
            key: _plain(inner)
            for key, inner in value.items()
            if not key.startswith("$") and inner is not None
        }
    return [_plain(one) for one in value] if isinstance(value, list) else value


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
    """The parts that are owned one by one, by path element; None where the entire is owned."""
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
    """`fields` minus every leaf of `taken` (None there takes the entire branch)."""
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
