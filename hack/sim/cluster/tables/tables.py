"""Tables: what kubectl prints, made by the server as real servers do.

Called for lists, gets and watch events when the client accepts `as=Table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hack.sim.cluster.store.kinds import Kind, Object
from hack.sim.cluster.store.listing import Listed
from hack.sim.cluster.store.store import Stored


def table(
    kind: Kind,
    items: Sequence[Stored],
    now: float,
    *,
    include: str = "Metadata",
    headers: bool = True,
    listed: Listed | None = None,
    version: str = "v1",
) -> Object:
    """The objects as rows; `include` says how much of each object rides along."""
    metadata: Object = {}
    if listed is not None:
        metadata["resourceVersion"] = str(listed.revision)
        if listed.continue_token:
            metadata["continue"] = listed.continue_token
        if listed.remaining is not None:
            metadata["remainingItemCount"] = listed.remaining
    elif len(items) == 1:
        metadata["resourceVersion"] = str(items[0].revision)
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": _headers(kind) if headers else None,
        "rows": [_row(kind, one.obj, now, include, version) for one in items],
    }


def _headers(kind: Kind) -> list[Object]:
    return [
        {
            "name": column.name,
            "type": "string" if column.type == "date" else column.type,
            "format": column.format,
            "description": column.description,
            "priority": 1 if column.wide else 0,
        }
        for column in kind.columns
    ]


def _row(kind: Kind, obj: Object, now: float, include: str, version: str) -> Object:
    row: dict[str, Any] = {"cells": [column.cell(obj, now) for column in kind.columns]}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = partial(obj, version)
    return row


def partial(obj: Object, version: str = "v1") -> Object:
    """Only the metadata, in the type that says so."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }
