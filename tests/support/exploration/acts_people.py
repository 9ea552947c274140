"""What people do to nodes and sessions, at any time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from rules.api.names import ANNOTATION_HOLD, TAINT_QUARANTINE
from rules.api.quarantine import ReleaseRequest
from tests.support.exploration.act_words import (
    NOW,
    Act,
    is_marked,
    near_owner,
    person_said,
    with_item,
    without,
)
from tests.support.exploration.invariants import our_taint
from tests.support.exploration.state import (
    PERSON,
    Bundle,
    State,
    open_sessions,
    session_of,
    session_view,
)

# ---------------------------------------------------------------------- people


def person_uncordons(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    node, ghost = bundle.node, bundle.ghost
    assert node is not None
    if node.cordoned:
        # Right after a boot it may be the driver manager's doing, near an owner the owner's.
        doubtful = near_owner(bundle) or not ghost.uncordoned_since_boot
        changed = state.with_node(index, cordoned=False, managers=())
        changed = changed.with_ghost(index, cordoned_by="", uncordoned_since_boot=True)
        if is_marked(bundle):
            changed = person_said(changed, index, doubtful=doubtful)
        yield "a person uncordons {}", index, changed


def person_cordons(state: State, index: int) -> Iterator[Act]:
    node = state.bundles[index].node
    assert node is not None
    if not node.cordoned:
        changed = state.with_node(index, cordoned=True, managers=((PERSON, NOW),))
        yield "a person cordons {}", index, changed.with_ghost(index, cordoned_by=PERSON)


def person_untaints(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    assert bundle.node is not None
    if our_taint(bundle.node):
        taints = without(bundle.node.taints, TAINT_QUARANTINE)
        changed = state.with_node(index, taints=taints)
        changed = person_said(changed, index, doubtful=near_owner(bundle))
        yield "a person removes the taint of {}", index, changed


def person_claims(state: State, index: int) -> Iterator[Act]:
    """``kubectl apply --server-side`` of a cordon: its managedFields entry carries no time."""
    node = state.bundles[index].node
    assert node is not None
    if not any(at is None for _, at in node.managers):
        managers = (*node.managers, (PERSON, None))
        changed = state.with_node(index, cordoned=True, managers=managers)
        changed = changed.with_ghost(index, cordoned_by=PERSON)
        yield "a person applies a cordon to {} by server-side apply", index, changed


def person_on_session(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    for session in open_sessions(bundle, index):
        others = tuple(s for s in bundle.sessions if s.name != session.name)
        changed = state
        if bundle.node is not None:
            changed = person_said(state, index, doubtful=not is_marked(bundle))
        changed = changed.with_bundle(index, sessions=others)
        if bundle.lagging is None and state.leads:
            deleted = (*bundle.memory.deleted, session)
            changed = changed.with_memory(index, deleted=deleted)
        yield "a person deletes the session of {}", index, changed
        view = session_view(session, index, "1")
        if view.spec.release is None:
            spec = msgspec.structs.replace(view.spec, release=ReleaseRequest(by="ada"))
            new = session_of(view.name, session.created, spec, view.status, index)
            changed = state.with_bundle(index, sessions=_replaced(bundle, new))
            if bundle.node is not None:
                changed = person_said(changed, index, doubtful=False)
            yield "a person releases {}", index, changed


def person_lowers(state: State, index: int) -> Iterator[Act]:
    bundle = state.bundles[index]
    for session in open_sessions(bundle, index):
        view = session_view(session, index, "1")
        if view.spec.level == "Drain":
            spec = msgspec.structs.replace(view.spec, level="Cordon")
            new = session_of(view.name, session.created, spec, view.status, index)
            changed = state.with_bundle(index, sessions=_replaced(bundle, new))
            yield "a person sets the session of {} to Cordon", index, changed


def _replaced(bundle: Bundle, new: Any) -> tuple[Any, ...]:
    return tuple(new if s.name == new.name else s for s in bundle.sessions)


def person_holds(state: State, index: int) -> Iterator[Act]:
    node = state.bundles[index].node
    assert node is not None
    held = ANNOTATION_HOLD in dict(node.annotations)
    if held:
        annotations = without(node.annotations, ANNOTATION_HOLD)
        yield "a person unholds {}", index, state.with_node(index, annotations=annotations)
    else:
        annotations = with_item(node.annotations, (ANNOTATION_HOLD, "mine"))
        yield "a person holds {}", index, state.with_node(index, annotations=annotations)
