"""The two spellings of an Event: core/v1 and events.k8s.io/v1 name the same fields differently.

Called where bodies are read and objects are shown.  Events are stored in the core spelling, so
both APIs list the same events.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_NEW_TO_CORE = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_TO_NEW = {core: new for new, core in _NEW_TO_CORE.items()}


def to_core(event: Object) -> Object:
    """An events.k8s.io/v1 Event as it is stored."""
    stored = {_NEW_TO_CORE.get(key, key): value for key, value in event.items()}
    if "apiVersion" in stored:
        stored["apiVersion"] = "v1"
    return stored


def to_new(event: Object) -> Object:
    """A stored Event as events.k8s.io/v1 shows it."""
    shown = {_CORE_TO_NEW.get(key, key): value for key, value in event.items()}
    shown["apiVersion"] = "events.k8s.io/v1"
    return shown
