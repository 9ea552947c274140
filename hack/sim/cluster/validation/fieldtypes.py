"""The typed decoding of built-in kinds: unknown fields, wrong types, zero values.

A real server decodes into typed structures, so a misspelt field vanishes with a warning, a text
in a number's place is a 400, and a zero value of an optional field is not stored
(`unschedulable: false` leaves no trace).  The types are data, written by `generate_types`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.statuses import bad_request
from hack.sim.cluster.store.kinds import Object, Schema

# Optional booleans that are plain values (not pointers) in the API types: false is not stored.
_PLAIN_BOOLEANS = frozenset(
    [
        "unschedulable",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
        "paused",
        "publishNotReadyAddresses",
        "globalDefault",
        "chapAuthDiscovery",
        "chapAuthSession",
        "sslEnabled",
    ]
)
_QUANTITIES = frozenset(
    ["capacity", "allocatable", "limits", "requests", "hard", "overhead", "used"]
)

_MICRO = frozenset(["renewTime", "acquireTime", "eventTime", "lastObservedTime"])
_SECOND, _ZONE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", r"(Z|[+-]\d\d:\d\d)"
_TIME = re.compile(rf"{_SECOND}([.,]\d+)?{_ZONE}")
_MICRO_TIME = re.compile(rf"{_SECOND}\.\d{{6}}{_ZONE}")
_LAYOUT, _MICRO_LAYOUT = "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.000000Z07:00"


@dataclass(frozen=True, slots=True)
class _Type:
    """One field's type: a shape and, for lists, maps and structures, what is inside."""

    shape: str
    inner: _Type | None = None
    struct: str = ""
    optional: bool = False


def _parse(text: str) -> _Type:
    optional = text.endswith("?")
    text = text.removesuffix("?")
    if text.startswith("List["):
        return _Type("list", _parse(text[5:-1]), optional=optional)
    if text.startswith("Dict["):
        return _Type("map", _parse(text[10:-1]), optional=optional)
    if text in {"str", "int", "bool", "float", "object", "bytes", "datetime"}:
        return _Type(text, optional=optional)
    return _Type("struct", struct=text, optional=optional)


@cache
def _structs() -> dict[str, dict[str, _Type]]:
    path = Path(__file__).parents[1] / "data" / "field_types.json"
    raw: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: {field: _parse(type_) for field, type_ in fields.items()}
        for name, fields in raw.items()
    }


class BuiltinSchema(Schema):
    """The types of one built-in kind."""

    def __init__(self, kind: str, group: str) -> None:
        names = {
            "Event": "EventsV1Event" if group else "CoreV1Event",
            "ResourceClaim": "ResourceV1ResourceClaim",
        }
        self._kind = kind
        self._root = names.get(kind, f"V1{kind}")
        if group == "apiextensions.k8s.io":
            self._root = ""

    def complete(self, obj: Object, known: Object | None = None) -> tuple[Object, list[str]]:
        """Decode: without unknown fields and zero values; subtrees shared with `known` pass."""
        if not self._root:
            return obj, []
        decoder = _Decoding(self._kind)
        struct = self._root
        # Both event APIs share one storage: an event reads the same through either.
        if self._kind == "Event":
            fields = {**_structs()["EventsV1Event"], **_structs()["CoreV1Event"]}
        else:
            fields = _structs()[struct]
        decoded = decoder.struct(obj, fields, "", known, struct)
        for part in ("spec", "status"):
            # These are plain structures in the API types: they are there even when empty.
            if part in fields and fields[part].shape == "struct":
                decoded.setdefault(part, {})
        return decoded, decoder.unknown


class _Decoding:
    """One pass over one object."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.unknown: list[str] = []

    def struct(
        self, value: Object, fields: dict[str, _Type], path: str, known: Any, name: str
    ) -> Object:
        """A structure: its known fields, decoded."""
        before = known if isinstance(known, dict) else {}
        result: Object = {}
        for key, item in value.items():
            type_ = fields.get(key)
            where = f"{path}.{key}" if path else key
            if type_ is None:
                self.unknown.append(where)
                continue
            if item is None:
                continue
            if item is before.get(key) and item is not True and item is not False:
                result[key] = item
                continue
            decoded = self._value(item, type_, where, before.get(key), name, key)
            if not (type_.optional and _is_zero(decoded, type_, key)):
                result[key] = decoded
        return result

    def _value(self, value: Any, type_: _Type, path: str, known: Any, owner: str, key: str) -> Any:
        shape = type_.shape
        if shape == "struct":
            if not isinstance(value, dict):
                raise self._mismatch(value, owner, path, type_.struct)
            return self.struct(value, _structs()[type_.struct], path, known, type_.struct)
        if shape == "list":
            if not isinstance(value, list):
                raise self._mismatch(value, owner, path, "[]" + _go_name(type_.inner))
            inner = type_.inner or _Type("object")
            return [
                self._value(one, inner, f"{path}[{index}]", None, owner, key)
                for index, one in enumerate(value)
            ]
        if shape == "map":
            if not isinstance(value, dict):
                raise self._mismatch(value, owner, path, "map[string]" + _go_name(type_.inner))
            inner = type_.inner or _Type("object")
            return {
                name: self._value(one, inner, f"{path}.{name}", None, owner, key)
                for name, one in value.items()
                if one is not None
            }
        return self._scalar(value, shape, path, owner, key)

    def _scalar(self, value: Any, shape: str, path: str, owner: str, key: str) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if shape == "str":
            if number and (key in _QUANTITIES or key == "sizeLimit"):
                return str(value)
            if not isinstance(value, str):
                raise self._mismatch(value, owner, path, "string")
        elif shape == "int":
            if not number or value != int(value):
                raise self._mismatch(value, owner, path, "int32")
        elif shape == "bool" and not isinstance(value, bool):
            raise self._mismatch(value, owner, path, "bool")
        elif shape in {"datetime", "bytes"} and not isinstance(value, str):
            raise self._mismatch(value, owner, path, "string")
        elif shape == "datetime" and value:
            self._check_time(value, key)
        return value

    def _check_time(self, value: str, key: str) -> None:
        """RFC 3339; of some fields with exactly six digits after the second."""
        pattern, layout = (_MICRO_TIME, _MICRO_LAYOUT) if key in _MICRO else (_TIME, _LAYOUT)
        if not pattern.fullmatch(value):
            raise bad_request(
                f'{self._kind} in version "v1" cannot be handled as a {self._kind}: parsing time '
                f'"{value}" as "{layout}": cannot parse it'
            )

    def _mismatch(self, value: Any, owner: str, path: str, wanted: str) -> ApiError:
        actual = {bool: "bool", str: "string", dict: "object", list: "array"}.get(
            type(value), "number"
        )
        return bad_request(
            f'{self._kind} in version "v1" cannot be handled as a {self._kind}: json: cannot '
            f"unmarshal {actual} into Go struct field {owner.removeprefix('V1')}.{path} "
            f"of type {wanted}"
        )


def _go_name(type_: _Type | None) -> str:
    if type_ is None:
        return "interface {}"
    if type_.struct:
        return "v1." + type_.struct.removeprefix("V1")
    return {"str": "string", "int": "int32"}.get(type_.shape, type_.shape)


def _is_zero(value: Any, type_: _Type, key: str) -> bool:
    if type_.shape in {"list", "map"}:
        return not value
    if type_.shape == "str":
        return value == "" and key != "storageClassName"
    return value is False and key in _PLAIN_BOOLEANS


def decode_metadata(kind: str, metadata: Object, known: Any) -> tuple[Object, list[str]]:
    """The metadata of a custom object, decoded like any other; and its unknown fields."""
    decoder = _Decoding(kind)
    decoded = decoder.struct(
        metadata, _structs()["V1ObjectMeta"], "metadata", known, "V1ObjectMeta"
    )
    return decoded, decoder.unknown
