"""Which labels of a Node were changed to move others off its GPUs: the record that stands beside
them.

Operators keep pods on GPUs by labels; only `true` is ever changed, to a value of our own. What
comes back is what the record names and nothing else: a label may have our value because somebody
copied it. Session objects keep the same record, for Nodes whose annotation went. What is read here
may be anybody's word: it is bounded, and one wrong part makes all of it nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from rules.api.names import ANNOTATION_MOVED, DEPLOYED, PAUSED_BY_US
from rules.api.nodes import NodeView
from rules.api.object_name import is_label_key

MAX_MOVED: Final = 16
"""Labels that one adapter moves at most; ours moves five."""
_MAX_BYTES: Final = 8192
"""Sixteen keys of 317 characters with their values, and some."""


def record_of(labels: Iterable[str]) -> str:
    """What goes into the annotation."""
    former = dict.fromkeys(sorted(labels), DEPLOYED)
    return msgspec.json.encode(former).decode()


def moved_labels(node: NodeView, recorded: Iterable[str] = ()) -> tuple[str, ...]:
    """Labels that have our value and were changed by us, as the Node's record says, or the one of
    a session (`label=value`).
    """
    known = set(_on_node(node))
    pairs = (each.partition("=") for each in recorded)
    known |= {key for key, _, former in pairs if former == DEPLOYED and is_label_key(key)}
    return tuple(key for key in sorted(known) if node.labels.get(key) == PAUSED_BY_US)


def unexplained_labels(node: NodeView, recorded: Iterable[str] = ()) -> tuple[str, ...]:
    """Labels that have our value, and nobody wrote down that it was us."""
    moved = moved_labels(node, recorded)
    ours = (key for key, value in node.labels.items() if value == PAUSED_BY_US)
    return tuple(sorted(key for key in ours if key not in moved))


def has_record(node: NodeView) -> bool:
    """Whether the Node carries a record that can be read."""
    return bool(_on_node(node))


def _on_node(node: NodeView) -> tuple[str, ...]:
    text = node.annotations.get(ANNOTATION_MOVED, "")
    if not text or len(text) > _MAX_BYTES:
        return ()
    try:
        former = msgspec.json.decode(text.encode(errors="replace"), type=dict[str, str])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
    right = all(is_label_key(key) and value == DEPLOYED for key, value in former.items())
    return tuple(former) if right and len(former) <= MAX_MOVED else ()
