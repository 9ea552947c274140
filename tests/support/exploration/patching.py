"""A merge patch of ours applied to the node of a state, as the API server does it."""

from __future__ import annotations

import json
from typing import Any

from rules.api.names import ANNOTATION_SESSION, COMPONENT_REMEDIATOR
from tests.support.exploration.packing import pack
from tests.support.exploration.state import NOW_MOMENT, NodeState


def patched(node: NodeState, body: dict[str, Any], index: int) -> NodeState:
    """The node after a merge patch of ours."""
    metadata, spec = body["metadata"], body.get("spec", {})
    annotations = {
        key: pack(json.loads(value), index)
        if key == ANNOTATION_SESSION and value is not None
        else value
        for key, value in metadata.get("annotations", {}).items()
    }
    managers = node.managers
    cordoned = node.cordoned
    if "unschedulable" in spec:
        cordoned = bool(spec["unschedulable"])
        if cordoned != node.cordoned:
            managers = ((COMPONENT_REMEDIATOR, NOW_MOMENT),) if cordoned else ()
    taints = node.taints
    if "taints" in spec:
        taints = tuple((t["key"], t.get("value", "")) for t in spec["taints"] or ())
    return node._replace(
        labels=_merged(node.labels, metadata.get("labels", {})),
        annotations=_merged(node.annotations, annotations),
        cordoned=cordoned,
        managers=managers,
        taints=taints,
    )


def _merged(
    old: tuple[tuple[str, Any], ...], patch: dict[str, Any]
) -> tuple[tuple[str, Any], ...]:
    merged = {**dict(old), **patch}
    return tuple(sorted((key, value) for key, value in merged.items() if value is not None))
