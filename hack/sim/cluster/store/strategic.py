"""Strategic merge patch, the language in which kubectl patches built-in kinds.

Called by the API logic for built-ins only.  Lists that are maps merge by their key, the finalizers
are a set, every other list (taints, tolerations) is replaced whole; the `$` directives work.
"""

from __future__ import annotations

from typing import Any

from hack.sim.cluster.statuses import bad_request

MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""The lists that merge, and the field by which their items are told apart."""

MERGED_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of texts that merge as sets."""

_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVE = "$deleteFromPrimitiveList/"


def strategic_merge(target: Any, patch: Any, *, service: bool = False) -> dict[str, Any]:
    """Apply the patch; `service` selects the port key of Services."""
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a strategic merge patch is an object")
    keys = {**MERGE_KEYS, "ports": "port"} if service else MERGE_KEYS
    return _merge(target if isinstance(target, dict) else {}, patch, keys)


def _merge(target: dict[str, Any], patch: dict[str, Any], keys: dict[str, str]) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: _plain(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise bad_request(f"unknown patch type found in map: {directive}")
    result = dict(target)
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVE):
            name = key.removeprefix(_DELETE_PRIMITIVE)
            result[name] = [one for one in result.get(name) or [] if one not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = _merge(before if isinstance(before, dict) else {}, value, keys)
        elif isinstance(value, list):
            order = patch.get(_ORDER + key)
            result[key] = _list(result.get(key), value, key, keys, order)
        else:
            result[key] = value
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    return result


def _list(
    before: Any, patch: list[Any], name: str, keys: dict[str, str], order: list[Any] | None
) -> list[Any]:
    present = list(before) if isinstance(before, list) else []
    if name in MERGED_SETS:
        merged = present + [one for one in patch if one not in present]
        return _ordered(merged, order, None)
    merge_key = keys.get(name)
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
            present[index] = _merge(present[index], one, keys)
    return _ordered(present, order, merge_key)


def _ordered(items: list[Any], order: list[Any] | None, merge_key: str | None) -> list[Any]:
    if not order:
        return items
    wanted = [one.get(merge_key) if merge_key and isinstance(one, dict) else one for one in order]

    def rank(item: Any) -> int:
        value = item.get(merge_key) if merge_key else item
        return wanted.index(value) if value in wanted else len(wanted)

    return sorted(items, key=rank)


def _plain(value: Any) -> Any:
    """A new value without directives and nulls."""
    if isinstance(value, dict):
        return {
            key: _plain(inner)
            for key, inner in value.items()
            if not key.startswith("$") and inner is not None
        }
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
