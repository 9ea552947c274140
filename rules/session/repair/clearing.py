"""Who is moved off the GPUs of a drained node before a reset, and back again however that ends.

Operators keep pods on GPUs by labels of the Node; only `true` is ever changed, to a value of our
own, and back only where Node or session have it on record. Our own agent lets go of the driver for
an annotation. All stands on the Node, so a restart, another leader, an aborted session and an
uninstall find it. Called by the other modules of this room and by the cleaning of a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rules.api.names import (
    ANNOTATION_MOVED,
    ANNOTATION_RELEASE_GPU,
    COMPONENT_REMEDIATOR,
    DEPLOYED,
    PAUSED_BY_US,
)
from rules.api.nodes import NodeView, QuarantineView
from rules.api.quarantine import RepairAttempt
from rules.api.repair.moved import has_record, moved_labels, record_of
from rules.api.repair.writes import WriteRepairObject
from rules.repair.adapter import NewObject
from rules.session.case import Case
from rules.session.repair.node_patch import node_patch

_OURS: Final = f"{COMPONENT_REMEDIATOR}: "
"""How the value of our annotation begins; a person's word is another."""


def priors(node: NodeView, action: NewObject) -> tuple[str, ...]:
    """What goes on record before anybody is moved."""
    found = (key for key in action.clears if node.labels.get(key) == DEPLOYED)
    return tuple(f"{key}={DEPLOYED}" for key in found)


def clearing(case: Case, attempt: RepairAttempt, action: NewObject) -> WriteRepairObject | None:
    """The write that moves them off; None where the action moves nobody, or it has landed.

    Whoever sets a label back meanwhile is not fought with: the reset itself looks who is there.
    """
    node = case.node
    if not action.clears or is_cleared(node, cleared_in((case.session,))):
        return None
    keys = [each.partition("=")[0] for each in priors(node, action)]
    notes: dict[str, str] = {}
    if ANNOTATION_RELEASE_GPU not in node.annotations:
        notes[ANNOTATION_RELEASE_GPU] = f"{_OURS}{attempt.object}"
    if not keys and not notes:
        return None
    if keys:
        notes[ANNOTATION_MOVED] = record_of(keys)
    meta = {
        "uid": node.uid,
        "resourceVersion": node.metadata.resource_version,
        "labels": dict.fromkeys(keys, PAUSED_BY_US),
        "annotations": notes,
    }
    body = {"metadata": meta}
    return node_patch(node, case.session.name, body, step=attempt.step, asks=True)


def cleared_in(sessions: Iterable[QuarantineView]) -> tuple[str, ...]:
    """What sessions of the node have on record of labels that were changed."""
    return tuple(
        each for one in sessions for attempt in one.status.repair for each in attempt.cleared
    )


def is_cleared(node: NodeView, recorded: Iterable[str] = ()) -> bool:
    """Whether anybody was moved off by us and is not back."""
    return bool(moved_labels(node, recorded)) or _lets_go(node)


def _lets_go(node: NodeView) -> bool:
    return node.annotations.get(ANNOTATION_RELEASE_GPU, "").startswith(_OURS)


def restoring(
    node: NodeView | None, session: str, recorded: Iterable[str] = ()
) -> tuple[WriteRepairObject, ...]:
    """The write that lets everybody back; () where nobody was moved."""
    back = restored_patch(node, recorded) if node is not None else {}
    if node is None or not back:
        return ()
    # Of exactly the Node that was seen: what an operator says meanwhile is not overwritten.
    back["metadata"] |= {"uid": node.uid, "resourceVersion": node.metadata.resource_version}
    return (node_patch(node, session, back),)


def letting_back(case: Case) -> tuple[WriteRepairObject, ...]:
    """The same for the node of a session, which has on record whom it moved."""
    return restoring(case.seen.node, case.session.name, cleared_in((case.session,)))


def restored_patch(node: NodeView, recorded: Iterable[str] = ()) -> dict[str, Any]:
    """The merge patch that undoes all that is known to be ours; {} for nothing."""
    labels = dict.fromkeys(moved_labels(node, recorded), DEPLOYED)
    notes = [ANNOTATION_MOVED] if has_record(node) else []
    notes += [ANNOTATION_RELEASE_GPU] if _lets_go(node) else []
    meta: dict[str, Any] = {"labels": labels} if labels else {}
    if notes:
        meta["annotations"] = dict.fromkeys(notes)
    return {"metadata": meta} if meta else {}
