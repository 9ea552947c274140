"""Tables: what `kubectl get` prints, made by the server as real servers do.

Custom kinds have the printer columns of their definition; of built-in kinds nodes, pods, events
and budgets say more than their name and age.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import Resource

Object = dict[str, Any]
_STEP = re.compile(r"""\.((?:\\.|[^.\[\\])+)|\[\?\(@\.(\w+)==["'](.*?)["']\)\]|\[(\d+)\]""")


def rfc3339(at: float) -> str:
    """Seconds since the epoch as the API writes a `Time`."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(text: str | None) -> float | None:
    """The time behind a wire timestamp, None for none or an unreadable one."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, TypeError):
        return None


def find(obj: Any, path: str) -> Any:
    """The value at a JSONPath of names, `[0]` and `[?(@.type=="Ready")]`; None for nothing."""
    if _STEP.sub("", path):
        raise ValueError(f"{path!r} is not a JSONPath that is supported here")
    for name, key, value, index in _STEP.findall(path):
        if name:
            obj = obj.get(name.replace("\\", "")) if isinstance(obj, dict) else None
        elif index:
            obj = next(iter((obj or [])[int(index) :]), None)
        else:
            obj = next((one for one in obj or () if one.get(key) == value), None)
    return obj


def age(since: str | None, now: float) -> str:
    """How long ago, in the largest unit that leaves a number above one."""
    began = epoch(since)
    if began is None:
        return "<unknown>"
    seconds = max(0, int(now - began))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its header, type, cell, and whether only `-o wide` shows it."""

    name: str
    type: str
    cell: Callable[[Object, float], Any]
    wide: bool = False


def column(name: str, type_: str, path: str, *, wide: bool = False) -> Column:
    """A column of what is at a JSONPath."""

    def cell(obj: Object, now: float) -> Any:
        found = find(obj, path)
        if found is None:
            return None
        if type_ == "date":
            return age(str(found), now)
        if type_ != "string" or isinstance(found, str):
            return found
        return ",".join(map(str, found)) if isinstance(found, list) else str(found)

    return Column(name, "string" if type_ == "date" else type_, cell, wide)


_NAME = column("Name", "string", ".metadata.name")
_AGE = column("Age", "date", ".metadata.creationTimestamp")
NAME_AND_AGE = (_NAME, _AGE)


def custom_columns(version: Object) -> tuple[Column, ...]:
    """The columns that one version of a CustomResourceDefinition asks for."""
    stated = version.get("additionalPrinterColumns")
    if not stated:
        return NAME_AND_AGE
    return (
        _NAME,
        *(
            column(one["name"], one["type"], one["jsonPath"], wide=bool(one.get("priority")))
            for one in stated
        ),
    )


def _node_status(node: Object, _: float) -> str:
    ready = find(node, '.status.conditions[?(@.type=="Ready")].status')
    text = {"True": "Ready", None: "Unknown"}.get(ready, "NotReady")
    return text + (",SchedulingDisabled" if find(node, ".spec.unschedulable") else "")


def _pod_status(pod: Object, _: float) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for one in find(pod, ".status.containerStatuses") or ():
        if reason := find(one, ".state.waiting.reason"):
            return str(reason)
    return str(find(pod, ".status.phase") or "")


def _event_object(event: Object, _: float) -> str:
    target = event.get("involvedObject") or {}
    return f"{str(target.get('kind', '')).lower()}/{target.get('name', '')}"


COLUMNS: dict[Resource, tuple[Column, ...]] = {
    r.NODES: (_NAME, Column("Status", "string", _node_status), _AGE),
    r.PODS: (
        _NAME,
        Column("Status", "string", _pod_status),
        _AGE,
        column("Node", "string", ".spec.nodeName", wide=True),
    ),
    r.EVENTS: (
        column("Last Seen", "date", ".lastTimestamp"),
        column("Type", "string", ".type"),
        column("Reason", "string", ".reason"),
        Column("Object", "string", _event_object),
        column("Message", "string", ".message"),
    ),
    r.POD_DISRUPTION_BUDGETS: (
        _NAME,
        column("Min Available", "string", ".spec.minAvailable"),
        column("Max Unavailable", "string", ".spec.maxUnavailable"),
        column("Allowed Disruptions", "integer", ".status.disruptionsAllowed"),
        _AGE,
    ),
}


def table(
    columns: Sequence[Column], objects: Sequence[Object], now: float, metadata: Object
) -> Object:
    """The objects as rows, each with its metadata."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": one.name,
                "type": one.type,
                "format": "name" if one is _NAME else "",
                "description": "",
                "priority": 1 if one.wide else 0,
            }
            for one in columns
        ],
        "rows": [
            {"cells": [one.cell(obj, now) for one in columns], "object": partial(obj)}
            for obj in objects
        ],
    }


def partial(obj: Object) -> Object:
    """Only the metadata, in the type that reports it."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
