"""Objects changed on their way to the client: what is stored stays sane."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Served = Callable[[str, dict[str, Any]], dict[str, Any]]
"""The object that a client is to see, from its collection (plural) and what is stored."""


def served_list_or_object(served: Served, plural: str, body: bytes) -> bytes:
    """The body of a GET."""
    found = json.loads(body) if body.startswith(b"{") else None
    if not isinstance(found, dict) or not plural:
        return body
    if isinstance(found.get("items"), list):
        found["items"] = [served(plural, item) for item in found["items"]]
    elif "metadata" in found:
        found = served(plural, found)
    return json.dumps(found).encode()


def served_event(served: Served, plural: str, line: bytes) -> bytes:
    """One line of a watch; bookmarks and errors are the server's own."""
    event = json.loads(line)
    if event.get("type") in {"ADDED", "MODIFIED"}:
        event["object"] = served(plural, event["object"])
    return json.dumps(event).encode() + b"\n"
