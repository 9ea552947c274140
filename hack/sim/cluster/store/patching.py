"""The patch languages of the API: JSON merge patch (RFC 7396) and strategic merge patch.

Pure: they return a new object that shares every untouched part with the old one. In a strategic
patch lists that are maps merge by their key, the finalizers are a set, and every other list
(taints, tolerations) is replaced as a whole.
"""

from __future__ import annotations

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
"""The lists that merge, and the field by which their items are told apart."""
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
