"""What every act of others is made of: labels, moments, small changes of a node, a person's
word.
"""

from __future__ import annotations

from typing import Any

from rules.api.names import ANNOTATION_SESSION
from tests.support.exploration.invariants import our_taint, owner_at_work
from tests.support.exploration.packing import INCIDENTS, NODES, Moment
from tests.support.exploration.state import (
    Bundle,
    State,
    open_sessions,
    session_view,
)

Act = tuple[str, int | None, State]
"""A label, the node it is about, the state after."""

NOW = Moment(0, False)
OWNER_GONE_S = 95
"""So long after an owner's work a person's uncordon may be taken for the owner's: 60 s, and 90 s
where no leader looked meanwhile."""
BOOT_S = 140
"""So long after a boot the driver manager may still uncordon."""
NEW_LEADER_S = 60
"""Longer than a new leader waits for anything it has to find out."""
KARPENTER_TAINT = ("karpenter.sh/disrupted", "")
AUTOSCALER_TAINT = ("ToBeDeletedByClusterAutoscaler", "")
KURED_ANNOTATION = ("weave.works/kured-reboot-in-progress", "now")
BOOTS = 3


def without(items: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    return tuple(item for item in items if item[0] != key)


def with_item(items: tuple[Any, ...], item: tuple[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((*without(items, item[0]), item)))


def is_marked(bundle: Bundle) -> bool:
    node = bundle.node
    return node is not None and (our_taint(node) or ANNOTATION_SESSION in dict(node.annotations))


def near_owner(bundle: Bundle) -> bool:
    assert bundle.node is not None
    left = bundle.ghost.owner_left
    return owner_at_work(bundle.node) or (left is not None and left.at >= -OWNER_GONE_S)


def person_said(state: State, index: int, *, doubtful: bool) -> State:
    """A person said that the node is to be in service."""
    bundle = state.bundles[index]
    state = state.with_ghost(index, excused=bundle.health.active, taken=False)
    known = {
        cause.incident
        for session in open_sessions(bundle, index)
        for cause in session_view(session, index, "1").spec.causes
    }
    about = tuple(n for n in range(INCIDENTS) if f"inc-{NODES[index]}-{n}" in known)
    return state if doubtful else state.with_ghost(index, word=NOW, about=about)
