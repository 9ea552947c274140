"""A JSON merge patch (RFC 7396) applied to an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A new object: null takes a key away, an object goes into an object, all else replaces."""
    found = dict(target)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            inner = found.get(key)
            found[key] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            found[key] = value
    return found
