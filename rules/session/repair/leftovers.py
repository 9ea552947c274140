"""What is on a node of sessions that nobody knows any more: taken off where it is certainly ours.

A session's object and its mark may both vanish while nobody of ours looks: deleted by a person, or
gone with a restored backup. What stands on the Node says itself whose it is; docs/repair.md has
the table. Called by `rules.session.repair.ends` for a node without an open session.
"""

from __future__ import annotations

from typing import Final

from rules.api.mark import stray_label, stray_label_patch, stray_marks
from rules.api.names import (
    ANNOTATION_MOVED,
    ANNOTATION_RELEASE_GPU,
    ANNOTATION_REPAIR,
    LABEL_QUARANTINE,
)
from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.repair.moved import moved_labels, unexplained_labels
from rules.api.repair.writes import SetRepairCondition, WriteRepairObject
from rules.api.sentences import bounded
from rules.api.timestamps import parse_time
from rules.api.writes import EmitEvent
from rules.session.repair.clearing import cleared_in
from rules.session.repair.node_patch import node_patch
from rules.session.repair.requests import node_request_off, orphaned

_MOST_NAMED: Final = 8
NodeWrites = tuple[SetRepairCondition | WriteRepairObject, ...]


def leftover_writes(node: NodeView, now: float, known: tuple[QuarantineView, ...]) -> NodeWrites:
    """What takes off all that is ours; the mark's label last, alone, since each write makes the
    node another version.
    """
    asked = orphaned(node, now, known)
    if asked or not stray_label(node):
        return asked
    return (node_patch(node, "", stray_label_patch(node)),)


def _strays(node: NodeView, known: tuple[QuarantineView, ...]) -> tuple[str, ...]:
    lives = [
        (session.metadata.created_at, parse_time(session.status.phase_since) or float("inf"))
        for session in known
    ]
    return stray_marks(node, lives) if isinstance(node, FreshNode) else ()


def told(
    node: NodeView,
    now: float,
    known: tuple[QuarantineView, ...],
    writes: NodeWrites,
) -> tuple[EmitEvent, ...]:
    """What becomes of it, for people: what goes with `writes`, and what stays."""
    events = []
    if writes and (gone := _going(node, known, writes)):
        said = f"A session that is over or gone left {_named(gone)} on this node; it is taken off."
        events.append(_event(node, "Normal", "QuarantineLeftover", said, now))
    if stays := (*_strays(node, known), *_staying(node, known)):
        said = f"{_named(stays)} may be gpuward's and nothing proves it; a person takes it off."
        events.append(_event(node, "Warning", "QuarantineNeedsHuman", said, now))
    return tuple(events)


def _named(parts: tuple[str, ...]) -> str:
    more = len(parts) - _MOST_NAMED
    return ", ".join(parts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _going(
    node: NodeView, known: tuple[QuarantineView, ...], writes: NodeWrites
) -> tuple[str, ...]:
    recorded = cleared_in(known)
    found = [f"condition {each.kind}" for each in writes if isinstance(each, SetRepairCondition)]
    if len(found) == len(writes):
        return tuple(found)
    found += [f"label {key}" for key in moved_labels(node, recorded)]
    for key in (ANNOTATION_RELEASE_GPU, ANNOTATION_MOVED):
        found += [f"annotation {key}"] if _unset(writes, key) else []
    found += [f"annotation {ANNOTATION_REPAIR}"] if _unset(writes, ANNOTATION_REPAIR) else []
    return tuple(found) or (f"label {LABEL_QUARANTINE}",)


def _unset(writes: NodeWrites, key: str) -> bool:
    bodies = (each.body for each in writes if isinstance(each, WriteRepairObject))
    notes = (body.get("metadata", {}).get("annotations") or {} for body in bodies)
    return any(key in each and each[key] is None for each in notes)


def _staying(node: NodeView, known: tuple[QuarantineView, ...]) -> tuple[str, ...]:
    found = [f"label {key}" for key in unexplained_labels(node, cleared_in(known))]
    if ANNOTATION_REPAIR in node.annotations and not node_request_off(node, known):
        found.append(f"annotation {ANNOTATION_REPAIR}")
    return tuple(found)


def _event(node: NodeView, kind: str, reason: str, said: str, now: float) -> EmitEvent:
    return EmitEvent(
        node=node.name,
        node_uid=node.uid,
        kind=kind,
        reason=reason,
        message=bounded(said)[:1024],
        at=now,
        key=f"{node.uid}/{reason}/{said}"[:300],
    )
