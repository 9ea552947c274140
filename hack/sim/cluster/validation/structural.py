"""Structural schemas: what a CustomResourceDefinition says about its objects, enforced.

Made from a version's `openAPIV3Schema`.  Prunes unknown fields, applies defaults, reports broken
rules in the server's words.  CEL rules are kept in the definition but never evaluated.
"""

from __future__ import annotations

import copy
import functools
import re
from typing import Any

from hack.sim.cluster.statuses import (
    FieldProblem,
    duplicate,
    invalid,
    required,
    too_long,
    unsupported,
)
from hack.sim.cluster.store.kinds import Object, Schema
from hack.sim.cluster.store.timestamps import epoch
from hack.sim.cluster.validation.fieldtypes import decode_metadata

_BASES = frozenset({"kind", "apiVersion", "metadata"})


class StructuralSchema(Schema):
    """The schema of one version of a custom kind."""

    def __init__(self, kind: str, schema: Object) -> None:
        self._kind = kind
        self._schema = schema
        self.source = _published(schema)

    def complete(self, obj: Object, known: Object | None = None) -> tuple[Object, list[str]]:
        """Prune, then fill in defaults; and the paths that were pruned."""
        before = (known or {}).get("metadata")
        metadata, unknown = decode_metadata(self._kind, obj.get("metadata") or {}, before)
        rest = {key: value for key, value in obj.items() if key not in _BASES}
        pruned = prune(rest, self._schema, "", unknown)
        apply_defaults(pruned, self._schema)
        bases = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": metadata}
        return {**bases, **{k: v for k, v in pruned.items() if k not in _BASES}}, unknown

    def problems(self, obj: Object, old: Object | None = None) -> list[FieldProblem]:
        """Every rule of the schema that the object breaks, but for what stood in `old` already:
        since 1.30 (ratcheting) a value that is left as it was is not held against an update.
        """
        rest = {key: value for key, value in obj.items() if key not in _BASES}
        without_bases = {
            **self._schema,
            "required": [one for one in self._schema.get("required", []) if one not in _BASES],
        }
        return check(rest, without_bases, "", old)


def _published(schema: Object) -> Object:
    """The schema as clients may read it: with the fields that every object has."""
    text = {"type": "string"}
    properties = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}}
    return {**schema, "properties": {**properties, **(schema.get("properties") or {})}}


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
    embedded = schema.get("x-kubernetes-embedded-resource")
    result: Object = {}
    for key, inner in value.items():
        where = f"{path}.{key}" if path else key
        if key in properties:
            if inner is None and not properties[key].get("nullable"):
                continue  # as if it were not there; a default may follow
            result[key] = prune(inner, properties[key], where, unknown)
        elif isinstance(additional, dict):
            result[key] = prune(inner, additional, where, unknown)
        elif preserve or additional is True or (embedded and key in _BASES):
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
    for key, inner in (schema.get("properties") or {}).items():
        if "default" in inner and (
            key not in value or (value[key] is None and not inner.get("nullable"))
        ):
            value[key] = copy.deepcopy(inner["default"])
        if key in value:
            apply_defaults(value[key], inner)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        for key, one in value.items():
            if key not in (schema.get("properties") or {}):
                apply_defaults(one, additional)


def check(value: Any, schema: Object, path: str, old: Any = None) -> list[FieldProblem]:
    """Every rule of `schema` that `value` breaks, where it is not what it was (`old`)."""
    if old is not None and value == old:
        return []
    if value is None:
        return [] if schema.get("nullable") else [_wrong_type(path, schema, "null")]
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            return [_wrong_type(path, {"type": "integer,string"}, _type_name(value))]
    elif not _has_type(value, schema.get("type")):
        return [_wrong_type(path, schema, _type_name(value))]
    problems = []
    if "enum" in schema and value not in schema["enum"]:
        problems.append(unsupported(path, value, schema["enum"]))
    if isinstance(value, str):
        problems += _check_text(value, schema, path)
    elif isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        problems += _check_number(value, schema, path)
    elif isinstance(value, list):
        problems += _check_list(value, schema, path, old)
    elif isinstance(value, dict):
        problems += _check_object(value, schema, path, old)
    return problems + _check_combined(value, schema, path)


def _check_combined(value: Any, schema: Object, path: str) -> list[FieldProblem]:
    problems = []
    for one in schema.get("allOf") or []:
        problems += check(value, one, path)
    for name, wanted in (("anyOf", None), ("oneOf", 1)):
        options = schema.get(name)
        if not options:
            continue
        fitting = sum(not check(value, one, path) for one in options)
        if fitting == 0 or (wanted and fitting != wanted):
            article = "one and only one" if wanted else "at least one"
            problems.append(
                invalid(path, _short(value), f"{path} in body must validate {article} schema")
            )
    if schema.get("not") and not check(value, schema["not"], path):
        problems.append(
            invalid(path, _short(value), f"{path} in body must not validate the schema (not)")
        )
    return problems


def _check_text(value: str, schema: Object, path: str) -> list[FieldProblem]:
    problems = []
    maximum, minimum, pattern = (schema.get(k) for k in ("maxLength", "minLength", "pattern"))
    if maximum is not None and len(value) > maximum:
        problems.append(too_long(path, maximum))
    if minimum is not None and len(value) < minimum:
        problems.append(
            invalid(path, value, f"{path} in body should be at least {minimum} chars long")
        )
    if pattern is not None and not _go_pattern(pattern).search(value):
        problems.append(invalid(path, value, f"{path} in body should match '{pattern}'"))
    if schema.get("format") == "date-time" and epoch(value) is None:
        problems.append(
            invalid(path, value, f'{path} in body must be of type date-time: "{value}"')
        )
    return problems


@functools.cache
def _go_pattern(pattern: str) -> re.Pattern[str]:
    """As the API server reads it: `$` is the end alone, not also the place before a last newline,
    and classes such as `\\s` are those of ASCII.
    """
    ends = pattern.endswith("$") and not pattern.endswith("\\$")
    return re.compile(f"{pattern[:-1]}\\Z" if ends else pattern, re.ASCII)


def _check_number(value: float, schema: Object, path: str) -> list[FieldProblem]:
    problems = []
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (
        value < least or (schema.get("exclusiveMinimum") and value == least)
    ):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        problems.append(invalid(path, value, f"{path} in body should be {word} {least}"))
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        problems.append(invalid(path, value, f"{path} in body should be {word} {most}"))
    step = schema.get("multipleOf")
    if step and value % step:
        problems.append(invalid(path, value, f"{path} in body should be a multiple of {step}"))
    return problems


def _check_list(value: list[Any], schema: Object, path: str, old: Any) -> list[FieldProblem]:
    problems = []
    least, most = schema.get("minItems"), schema.get("maxItems")
    if most is not None and len(value) > most:
        problems.append(
            FieldProblem(
                path,
                "FieldValueTooMany",
                f"Too many: {len(value)}: must have at most {most} items",
            )
        )
    if least is not None and len(value) < least:
        problems.append(
            invalid(path, len(value), f"{path} in body should have at least {least} items")
        )
    items = schema.get("items") or {}
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    # Which item was which is known by the keys alone: another list is judged as a new one.
    known = {_mark(one, keys): one for one in old} if kind == "map" and old else {}
    for index, one in enumerate(value):
        was = known.get(_mark(one, keys)) if known else None
        problems += check(one, items, f"{path}[{index}]", was)
    seen: list[Any] = []
    for index, one in enumerate(value):
        if kind not in {"set", "map"}:
            break
        mark = {k: one.get(k) for k in keys} if kind == "map" and isinstance(one, dict) else one
        if mark in seen:
            problems.append(duplicate(f"{path}[{index}]", mark))
        seen.append(mark)
    return problems


def _mark(item: Any, keys: list[str]) -> str:
    return repr([item.get(key) for key in keys]) if isinstance(item, dict) else ""


def _check_object(value: Object, schema: Object, path: str, old: Any) -> list[FieldProblem]:
    prefix = f"{path}." if path else ""
    problems = [
        required(prefix + name) for name in schema.get("required") or [] if name not in value
    ]
    properties = schema.get("properties") or {}
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        problems.append(
            FieldProblem(
                path,
                "FieldValueTooMany",
                f"Too many: {len(value)}: must have at most {most} items",
            )
        )
    if least is not None and len(value) < least:
        problems.append(
            invalid(path, len(value), f"{path} in body should have at least {least} properties")
        )
    additional = schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for key, inner in value.items():
        if key in properties:
            problems += check(inner, properties[key], prefix + key, before.get(key))
        elif isinstance(additional, dict):
            problems += check(inner, additional, prefix + key, before.get(key))
    return problems


def _has_type(value: Any, type_: str | None) -> bool:
    if type_ in {None, ""}:
        return True
    if type_ == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if type_ == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    wanted: dict[str | None, Any] = {
        "number": int | float,
        "string": str,
        "array": list,
        "object": dict,
    }
    return isinstance(value, wanted.get(type_, object))


def _type_name(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _wrong_type(path: str, schema: Object, actual: str) -> FieldProblem:
    wanted = schema.get("type") or "object"
    where = path or "<nil>"
    return FieldProblem(
        where,
        "FieldValueTypeInvalid",
        f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"',
    )


def _short(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else _type_name(value)
