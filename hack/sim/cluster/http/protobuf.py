"""The few protobuf bodies that kubectl sends although it reads JSON back.

Called by the HTTP layer for `application/vnd.kubernetes.protobuf` requests: `kubectl create`
of simple kinds, `auth can-i` and `create token`.  Everything else in protobuf is refused (415).
Field numbers come from the generated `.proto` files of the Kubernetes API.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from hack.sim.cluster.statuses import bad_request, unsupported_media

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

# Message -> field number -> (name, shape, inner message). "*" repeats, "map" is string to string.
_Field = tuple[str, str, str]
_MESSAGES: dict[str, dict[int, _Field]] = {
    "Unknown": {1: ("typeMeta", "message", "TypeMeta"), 2: ("raw", "bytes", "")},
    "TypeMeta": {1: ("apiVersion", "text", ""), 2: ("kind", "text", "")},
    "ObjectMeta": {
        1: ("name", "text", ""),
        2: ("generateName", "text", ""),
        3: ("namespace", "text", ""),
        5: ("uid", "text", ""),
        6: ("resourceVersion", "text", ""),
        11: ("labels", "map", ""),
        12: ("annotations", "map", ""),
    },
    "Namespace": {1: ("metadata", "message", "ObjectMeta")},
    "ServiceAccount": {1: ("metadata", "message", "ObjectMeta")},
    "ConfigMap": {1: ("metadata", "message", "ObjectMeta"), 2: ("data", "map", "")},
    "Secret": {
        1: ("metadata", "message", "ObjectMeta"),
        2: ("data", "bytesmap", ""),
        3: ("type", "text", ""),
    },
    "SelfSubjectReview": {1: ("metadata", "message", "ObjectMeta")},
    "SelfSubjectAccessReview": {
        1: ("metadata", "message", "ObjectMeta"),
        2: ("spec", "message", "AccessSpec"),
    },
    "AccessSpec": {
        1: ("resourceAttributes", "message", "ResourceAttributes"),
        2: ("nonResourceAttributes", "message", "NonResourceAttributes"),
    },
    "ResourceAttributes": {
        1: ("namespace", "text", ""),
        2: ("verb", "text", ""),
        3: ("group", "text", ""),
        4: ("version", "text", ""),
        5: ("resource", "text", ""),
        6: ("subresource", "text", ""),
        7: ("name", "text", ""),
    },
    "NonResourceAttributes": {1: ("path", "text", ""), 2: ("verb", "text", "")},
    "SelfSubjectRulesReview": {
        1: ("metadata", "message", "ObjectMeta"),
        2: ("spec", "message", "RulesSpec"),
    },
    "RulesSpec": {1: ("namespace", "text", "")},
    "TokenRequest": {
        1: ("metadata", "message", "ObjectMeta"),
        2: ("spec", "message", "TokenSpec"),
    },
    "TokenSpec": {
        1: ("audiences", "*text", ""),
        3: ("boundObjectRef", "message", "BoundObject"),
        4: ("expirationSeconds", "number", ""),
    },
    "BoundObject": {
        1: ("kind", "text", ""),
        2: ("apiVersion", "text", ""),
        3: ("name", "text", ""),
        4: ("uid", "text", ""),
    },
}
_READABLE = frozenset(_MESSAGES) & {
    "Namespace",
    "ServiceAccount",
    "ConfigMap",
    "Secret",
    "SelfSubjectReview",
    "SelfSubjectAccessReview",
    "SelfSubjectRulesReview",
    "TokenRequest",
}


def read_protobuf(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body, as its JSON would be; 415 for kinds not listed here."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body does not begin with the protobuf magic number")
    try:
        envelope = _message(body[len(_MAGIC) :], "Unknown")
        type_meta = envelope.get("typeMeta") or {}
        kind = type_meta.get("kind", "")
        if kind not in _READABLE:
            raise unsupported_media(["application/json", "application/yaml"])
        return {**type_meta, **_message(envelope.get("raw", b""), kind)}
    except (IndexError, UnicodeDecodeError):
        raise bad_request("the protobuf body is damaged") from None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    position = 0

    def varint() -> int:
        nonlocal position
        result = shift = 0
        while True:
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    while position < len(data):
        tag = varint()
        wire = tag & 7
        value: Any
        if wire == 0:
            value = varint()
        elif wire == 2:
            size = varint()
            value = data[position : position + size]
            position += size
        elif wire in {1, 5}:
            size = 8 if wire == 1 else 4
            value = data[position : position + size]
            position += size
        else:
            raise IndexError
        yield tag >> 3, value


def _message(data: bytes, name: str) -> dict[str, Any]:
    known = _MESSAGES[name]
    result: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in known:
            continue
        field, shape, inner = known[number]
        if shape == "message":
            result[field] = _message(value, inner)
        elif shape == "map":
            key, text = _entry(value)
            result.setdefault(field, {})[key] = text.decode()
        elif shape == "bytesmap":
            key, text = _entry(value)
            result.setdefault(field, {})[key] = base64.b64encode(text).decode()
        elif shape == "*text":
            result.setdefault(field, []).append(value.decode())
        elif shape == "text":
            if value:
                result[field] = value.decode()
        else:
            result[field] = value
    return result


def _entry(data: bytes) -> tuple[str, bytes]:
    found = dict(_fields(data))
    return found.get(1, b"").decode(), found.get(2, b"")
