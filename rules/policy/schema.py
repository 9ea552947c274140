"""The policy as a document: its JSON Schema, and what differs between two policies.

The schema is for editors and pipelines that check `policy.yaml` before it is applied. Made from
the types of `rules.policy.policy`, so it cannot lag behind them. `policy check` says more: it
also knows what has the right type and makes no sense. Pure.
"""

from __future__ import annotations

import re
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from rules.policy.external import Match
from rules.policy.policy import Policy, effective_view
from rules.policy.section import Seconds

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|d|h|m|s))+$"
"""What `parse_duration` reads: 10m, 24h, 1h30m, 7d."""
MATCH: Final = r"^(condition|annotation|label|taint) .+$"
"""What `parse_match` reads."""
_SCALARS: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}

Schema = dict[str, Any]


def policy_schema() -> Schema:
    """A fresh schema of the whole policy, every default stated where it stands."""
    title = "gpuward QuarantinePolicy"
    defaults = msgspec.json.decode(msgspec.json.encode(effective_view(Policy())))
    return {"$schema": DIALECT, "title": title, **_section(Policy, defaults)}


def words_at(schema: Schema, path: str) -> tuple[str, ...]:
    """The keys or words that may stand at a path such as `pods[0].strategy`; () for any."""
    for step in re.findall(r"[^.\[\]]+|\[[^]]*\]", path):
        part = _part(schema)
        inside = part.get("items") or part.get("additionalProperties") or {}
        schema = inside if step.startswith("[") else part.get("properties", {}).get(step, {})
    part = _part(schema)
    named = part.get("propertyNames", {}).get("enum")
    return tuple(map(str, part.get("properties") or part.get("enum") or named or ()))


def _part(schema: Schema) -> Schema:
    """What may stand there beside null."""
    return next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)


def _section(kind: type[msgspec.Struct], defaults: Any) -> Schema:
    properties, required = {}, []
    for field in msgspec.structs.fields(kind):
        known = defaults.get(field.encode_name) if isinstance(defaults, dict) else None
        properties[field.encode_name] = _of(field.type, known)
        if field.required and known is None:
            required.append(field.encode_name)
    schema: Schema = {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": properties,
        "additionalProperties": False,
    }
    return schema | ({"required": required} if required else {})


def _of(kind: Any, default: Any = None) -> Schema:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _section(kind, default)
    schema = _plain(kind)
    return schema if default is None else {**schema, "default": default}


def _plain(kind: Any) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return {"anyOf": [_of(each) for each in arguments]}
    if kind is Any:
        return {}
    if kind is type(None):
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0])}
    if origin is dict:
        names = {} if arguments[0] is str else {"propertyNames": _plain(arguments[0])}
        return {"type": "object", **names, "additionalProperties": _of(arguments[1])}
    if origin is Annotated:
        return {**_plain(arguments[0]), **_bounds(arguments[1])}
    if kind is Match:
        return {"type": "string", "pattern": MATCH}
    if issubclass(kind, Seconds):
        return {"type": "string", "pattern": DURATION}
    if issubclass(kind, StrEnum):
        return {"enum": [str(each) for each in kind]}
    return {"type": _SCALARS[kind]}


def _bounds(meta: msgspec.Meta) -> Schema:
    """The range of a number in the terms of JSON Schema."""
    terms = {"minimum": meta.ge, "exclusiveMinimum": meta.gt, "maximum": meta.le}
    return {name: value for name, value in terms.items() if value is not None}
