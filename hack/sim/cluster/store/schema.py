"""Enforce structural schemas of CustomResourceDefinitions.

Made from a version's `openAPIV3Schema`. Prunes unknown fields, applies defaults and reports
broken rules of the kinds that gpuward's definitions use. CEL rules are never evaluated.
"""

import copy
import functools
import re
from typing import Any

from hack.sim.cluster.errors import FieldProblem, invalid, required
from hack.sim.cluster.store.kinds import Object, Schema
from hack.sim.cluster.store.tables import epoch

_BASES = frozenset({"kind", "apiVersion", "metadata"})
_TYPES: dict[str, Any] = {
    "number": int | float,
    "integer": int,
    "string": str,
    "array": list,
    "object": dict,
}


class StructuralSchema(Schema):
    """The schema of one version of a custom kind."""

    def __init__(self, schema: Object) -> None:
        text = {"type": "string"}
        bases = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}}
        self.source = {**schema, "properties": {**bases, **(schema.get("properties") or {})}}
        """The schema as clients may read it: with the fields that every object has."""
        self._schema = {
            **schema,
            "required": [one for one in schema.get("required", []) if one not in _BASES],
        }

    def complete(self, obj: Object) -> tuple[Object, list[str]]:
        """Prune, then fill in defaults; and the paths that were pruned."""
        unknown: list[str] = []
        bases, _ = super().complete({key: obj[key] for key in _BASES if key in obj})
        pruned = prune(_without_bases(obj), self._schema, "", unknown)
        apply_defaults(pruned, self._schema)
        return {**bases, **_without_bases(pruned)}, unknown

    def problems(self, obj: Object, old: Object | None = None) -> list[FieldProblem]:
        """Every rule of the schema that the object breaks, but for what stood in `old` already:
        since 1.30 (ratcheting) a value that is left as it was is not held against an update.
        """
        return check(_without_bases(obj), self._schema, "", old)


def _without_bases(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in _BASES}


def prune(value: Any, schema: Object, path: str, unknown: list[str]) -> Any:
    """The value without fields that the schema does not know; their paths go to `unknown`."""
    if isinstance(value, list):
        items = schema.get("items") or {"x-kubernetes-preserve-unknown-fields": True}
        return [prune(one, items, f"{path}[{index}]", unknown) for index, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    preserve = schema.get("x-kubernetes-preserve-unknown-fields")
    result: Object = {}
    for key, inner in value.items():
        where = f"{path}.{key}" if path else key
        if key in properties:
            if inner is None:
                continue  # as if it were not there; a default may follow
            result[key] = prune(inner, properties[key], where, unknown)
        elif isinstance(additional, dict):
            result[key] = prune(inner, additional, where, unknown)
        elif preserve or additional is True:
            result[key] = inner
        else:
            unknown.append(where)
    return result


def apply_defaults(value: Any, schema: Object) -> None:
    """Fill in the defaults of missing fields, in place."""
    if isinstance(value, list):
        for one in value:
            apply_defaults(one, schema.get("items") or {})
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    for key, inner in properties.items():
        if "default" in inner and key not in value:
            value[key] = copy.deepcopy(inner["default"])
        if key in value:
            apply_defaults(value[key], inner)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        for key, one in value.items():
            if key not in properties:
                apply_defaults(one, additional)


def check(value: Any, schema: Object, path: str, old: Any = None) -> list[FieldProblem]:
    """Every rule of `schema` that `value` breaks, where it is not what it was (`old`)."""
    if old is not None and value == old:
        return []
    type_ = schema.get("type")
    if type_ and (
        isinstance(value, bool) is not (type_ == "boolean")
        or not isinstance(value, _TYPES.get(type_, object))
    ):
        return [_wrong_type(path, schema, value)]
    problems = []
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(f'"{one}"' for one in schema["enum"])
        text = f'Unsupported value: "{value}": supported values: {allowed}'
        problems.append(FieldProblem(path, "FieldValueNotSupported", text))
    if isinstance(value, str):
        problems += _check_text(value, schema, path)
    elif isinstance(value, list):
        problems += _check_list(value, schema, path, old)
    elif isinstance(value, dict):
        problems += _check_object(value, schema, path, old)
    return problems


def _check_text(value: str, schema: Object, path: str) -> list[FieldProblem]:
    problems = []
    maximum, pattern = schema.get("maxLength"), schema.get("pattern")
    if maximum is not None and len(value) > maximum:
        text = f"Too long: may not be more than {maximum} bytes"
        problems.append(FieldProblem(path, "FieldValueTooLong", text))
    if pattern is not None and not _go_pattern(pattern).search(value):
        problems.append(invalid(path, value, f"{path} in body should match '{pattern}'"))
    if schema.get("format") == "date-time" and epoch(value) is None:
        why = f'{path} in body must be of type date-time: "{value}"'
        problems.append(invalid(path, value, why))
    return problems


@functools.cache
def _go_pattern(pattern: str) -> re.Pattern[str]:
    """As the API server reads it: `$` is the end alone, not also the place before a last newline,
    and classes such as `\\s` are those of ASCII.
    """
    ends = pattern.endswith("$") and not pattern.endswith("\\$")
    return re.compile(f"{pattern[:-1]}\\Z" if ends else pattern, re.ASCII)


def _check_list(value: list[Any], schema: Object, path: str, old: Any) -> list[FieldProblem]:
    problems = _check_size(len(value), schema, path)
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    # Which item was which is known by the keys alone: another list is judged as a new one.
    known = {_identity(one, keys): one for one in old} if kind == "map" and old else {}
    seen: set[str] = set()
    for index, one in enumerate(value):
        where, key = f"{path}[{index}]", _identity(one, keys)
        problems += check(one, schema.get("items") or {}, where, known.get(key))
        if kind in {"set", "map"} and key in seen:
            problems.append(FieldProblem(where, "FieldValueDuplicate", f"Duplicate value: {key}"))
        seen.add(key)
    return problems


def _identity(item: Any, keys: list[str]) -> str:
    return repr([item.get(key) for key in keys]) if keys and isinstance(item, dict) else repr(item)


def _check_object(value: Object, schema: Object, path: str, old: Any) -> list[FieldProblem]:
    prefix = f"{path}." if path else ""
    problems = [
        required(prefix + name) for name in schema.get("required") or [] if name not in value
    ]
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for key, inner in value.items():
        found = properties.get(key, additional)
        if isinstance(found, dict):
            problems += check(inner, found, prefix + key, before.get(key))
    return problems


def _check_size(size: int, schema: Object, path: str) -> list[FieldProblem]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and size > most:
        text = f"Too many: {size}: must have at most {most} items"
        return [FieldProblem(path, "FieldValueTooMany", text)]
    if least is not None and size < least:
        return [invalid(path, size, f"{path} in body should have at least {least} items")]
    return []


def _wrong_type(path: str, schema: Object, value: Any) -> FieldProblem:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    actual = "null" if value is None else names.get(type(value), "object")
    wanted = schema.get("type") or "object"
    text = f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"'
    return FieldProblem(path or "<nil>", "FieldValueTypeInvalid", text)
