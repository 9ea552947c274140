"""The policy's JSON Schema, for editors and pipelines that check `policy.yaml` before it is
applied.

Made from the types of `rules.policy.policy`, so it cannot lag behind them. `policy check` says
more: it also knows what has the right type and makes no sense. Called by `policy schema` and by
tests.
"""

from __future__ import annotations

from enum import StrEnum
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec

from rules.policy.bounds import BOUNDS
from rules.policy.durations import Seconds
from rules.policy.policy import Policy, effective_view

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|d|h|m|s))+$"
"""What `parse_duration` reads: 10m, 24h, 1h30m, 7d."""
_SCALARS: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}

Schema = dict[str, Any]


def policy_schema() -> Schema:
    """A fresh schema of the whole policy, every default stated where it stands."""
    title = "gpuward QuarantinePolicy"
    defaults = msgspec.json.decode(msgspec.json.encode(effective_view(Policy())))
    schema = _section(Policy, defaults)
    for path, bound in BOUNDS.items():
        _number(schema, path.split(".")).update(bound.schema)
    return {"$schema": DIALECT, "title": title, **schema}


def _number(schema: Schema, path: list[str]) -> Schema:
    """The schema of the number at a path; a section that may be left out stands in an `anyOf`."""
    for key in path:
        kinds = schema.get("anyOf", [schema])
        schema = next(kind["properties"][key] for kind in kinds if "properties" in kind)
    return schema


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
        return {"type": "object", "additionalProperties": _of(arguments[1])}
    if kind is Seconds:
        return {"type": "string", "pattern": DURATION}
    if issubclass(kind, StrEnum):
        return {"enum": [str(each) for each in kind]}
    return {"type": _SCALARS[kind]}
