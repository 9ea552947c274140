"""The taint and cordon: what a session puts on its node, in one patch, and how it comes off again.

The taint and cordon describes itself: the session annotation carries the prior state, so crash
safety, cancel, uninstall and orphan clean-up are one rule: reverse to the recorded state, touch
nothing foreign. Called by `rules.session.decide` (through `rules.session.phases`) and by
`uninstall`. Every patch carries `metadata.resourceVersion`, because a taint list is replaced as a
unit.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from rules.api import evidence, names, node_managers, timestamps
from rules.api.evidence import QuarantineNote
from rules.api.node_managers import ManagerKind
from rules.api.nodes import FreshNode, NodeView, Taint
from rules.catalog.reason import is_reason_code

AUTOSCALER_ANNOTATIONS: Final = (
    names.ANNOTATION_SCALE_DOWN_DISABLED,
    names.ANNOTATION_DO_NOT_DISRUPT,
)
EFFECT: Final = "NoSchedule"
CORDONED: Final = "its cordon"
_ENDS_WITHIN_S: Final = 120.0
"""How long after the end of a session its last writes on the node may come."""
_AUTOSCALER_VALUE: Final = "true"


class QuarantineState(StrEnum):
    """How the node looks against the session that should have quarantined it."""

    ABSENT = "Absent"
    """Neither annotation nor taint."""
    INTACT = "Intact"
    """Every part is there."""
    UNCORDONED = "Uncordoned"
    UNTAINTED = "Untainted"
    FOREIGN = "Foreign"
    """The annotation names another session."""
    UNRECORDED = "Unrecorded"
    """Our taint without a readable annotation: the prior state is not known any more."""

    @property
    def undone(self) -> bool:
        """Whether somebody took a part of the taint and cordon off."""
        return self in {QuarantineState.UNCORDONED, QuarantineState.UNTAINTED}


def read_note(node: NodeView) -> QuarantineNote | None:
    """The node's session annotation; None where there is none or nobody can read it."""
    return evidence.note_of(node.annotations)


def own_taint(node: NodeView) -> Taint | None:
    """Our taint on the node, if it is there."""
    return next((taint for taint in node.spec.taints if taint.key == names.TAINT_QUARANTINE), None)


def quarantined(node: NodeView) -> bool:
    """Whether anything of a taint and cordon is on the node."""
    return names.ANNOTATION_SESSION in node.annotations or own_taint(node) is not None


def quarantine_state(node: NodeView, session: str) -> QuarantineState:
    """Compare what is on the node with what `session` should have put there."""
    note = read_note(node)
    tainted = own_taint(node) is not None
    if note is None:
        return QuarantineState.UNRECORDED if tainted else QuarantineState.ABSENT
    if note.session != session:
        return QuarantineState.FOREIGN
    if "Taint" in note.parts and not tainted:
        return QuarantineState.UNTAINTED
    if "Cordon" in note.parts and not node.spec.unschedulable:
        return QuarantineState.UNCORDONED
    return QuarantineState.INTACT


def quarantine_patch(
    node: NodeView,
    *,
    session: str,
    reason: str,
    phase: str,
    parts: str,
    now: float,
    restored_boot: str = "",
    restored: bool = False,
) -> dict[str, Any]:
    """Everything the session puts on the node. Applied again, it restores what was taken off;
    of the recorded prior state stays what nobody has changed since. `restored_boot` and `restored`
    record why it is restored: after the uncordon of a boot, or of another controller.

    Who cordoned the node before is recorded where `node` is a `FreshNode`.
    """
    note = read_note(node)
    if note is None or note.session != session:
        note = QuarantineNote(
            session=session,
            boot_id=node.boot_id,
            prior_unschedulable=node.spec.unschedulable,
            prior_by=node_managers.claimed_by_another(node, node_managers.CORDON, 0.0),
            at=timestamps.format_time(now),
            parts=parts,
            prior_annotations={
                name: node.annotations.get(name) for name in AUTOSCALER_ANNOTATIONS
            },
        )
    else:
        note = _still_prior(note, node)
    if restored_boot:
        note = msgspec.structs.replace(note, restored_boot=restored_boot)
    if restored:
        note = msgspec.structs.replace(note, restored_at=timestamps.format_time(now))
    spec: dict[str, Any] = {}
    if "Cordon" in note.parts:
        spec["unschedulable"] = True
    if "Taint" in note.parts:
        # The value is the reason at open and never changes: a taint's identity is key and effect.
        present = own_taint(node)
        value = present.value if present else reason
        ours = Taint(
            key=names.TAINT_QUARANTINE, effect=EFFECT, value=value if is_reason_code(value) else ""
        )
        spec["taints"] = [*_foreign_taints(node), msgspec.to_builtins(ours)]
    return {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {names.LABEL_QUARANTINE: phase.lower()},
            "annotations": {
                names.ANNOTATION_SESSION: msgspec.json.encode(_recorded(note)).decode(),
                **dict.fromkeys(AUTOSCALER_ANNOTATIONS, _AUTOSCALER_VALUE),
            },
        },
        "spec": spec,
    }


def _still_prior(note: QuarantineNote, node: NodeView) -> QuarantineNote:
    """The note without what others changed of the prior state since it was recorded.

    A cordon that is off now was taken back by its owner. An operator's cordon is the exception: a
    operator's own uncordon ends the session, so another program took it off, and the cordon stays.
    An autoscaler annotation that has lost our value was changed by its owner.
    """
    by_person = node_managers.kind_of(note.prior_by) is ManagerKind.INTERACTIVE
    values = {name: node.annotations.get(name) for name in note.prior_annotations}
    return msgspec.structs.replace(
        note,
        prior_unschedulable=note.prior_unschedulable and (node.spec.unschedulable or by_person),
        prior_annotations={
            name: prior if values[name] == _AUTOSCALER_VALUE else values[name]
            for name, prior in note.prior_annotations.items()
        },
    )


_SELDOM: Final = ("priorBy", "restoredBoot", "restoredAt")


def _recorded(note: QuarantineNote) -> dict[str, Any]:
    """The note as it is written: what is seldom known is left out where it is empty."""
    recorded: dict[str, Any] = msgspec.to_builtins(note)
    return {name: value for name, value in recorded.items() if value or name not in _SELDOM}


def relabel_patch(node: NodeView, phase: str) -> dict[str, Any]:
    """Only the label: where the session stands, for `kubectl get nodes -L`."""
    return {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {names.LABEL_QUARANTINE: phase.lower()},
        }
    }


def release_patch(node: NodeView) -> dict[str, Any]:
    """The reverse: our parts off, the recorded prior state back, nothing foreign touched."""
    note = read_note(node)
    claimed = _annotations_of_others(node)
    annotations: dict[str, str | None] = {
        names.ANNOTATION_SESSION: None,
        **{
            name: prior
            for name, prior in (note.prior_annotations if note else {}).items()
            if name in AUTOSCALER_ANNOTATIONS
            and node.annotations.get(name) == _AUTOSCALER_VALUE
            and name not in claimed
        },
    }
    spec: dict[str, Any] = {}
    if own_taint(node) is not None:
        spec["taints"] = _foreign_taints(node) or None
    if node.spec.unschedulable and not cordon_stays(node):
        spec["unschedulable"] = None
    patch: dict[str, Any] = {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {names.LABEL_QUARANTINE: None},
            "annotations": annotations,
        }
    }
    if spec:
        patch["spec"] = spec
    return patch


def stray_taints(node: FreshNode, lives: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    """What we alone set on a node whose taint and record are gone, for people; () for nothing.

    It stays: an operator who took the taint and cordon off may have left the cordon on purpose,
    and a second `kubectl cordon` leaves no trace. `lives` says from when to when each ended
    session lived that is still known: what was last written in one of them is that session's.
    """
    if quarantined(node):
        return ()
    found = [
        f"annotation {name}"
        for name in AUTOSCALER_ANNOTATIONS
        if node.annotations.get(name) == _AUTOSCALER_VALUE
        and _is_forgotten(node, ("f:metadata", "f:annotations", f"f:{name}"), lives)
    ]
    if node.spec.unschedulable and _is_forgotten(node, node_managers.CORDON, lives):
        found.append(CORDONED)
    return tuple(found)


def stray_label(node: NodeView) -> bool:
    """Whether our label says that the node is in quarantine, and nothing else does."""
    return names.LABEL_QUARANTINE in node.labels and not quarantined(node)


def stray_label_patch(node: NodeView) -> dict[str, Any]:
    """The merge patch that takes it off."""
    return {
        "metadata": {
            "uid": node.uid,
            "resourceVersion": node.metadata.resource_version,
            "labels": {names.LABEL_QUARANTINE: None},
        }
    }


def may_have_strays(node: NodeView) -> bool:
    """Whether the node is to be read, managers included, before it is known what is whose."""
    return not quarantined(node) and (
        node.spec.unschedulable
        or stray_label(node)
        or any(node.annotations.get(name) == _AUTOSCALER_VALUE for name in AUTOSCALER_ANNOTATIONS)
    )


def _is_forgotten(
    node: FreshNode, path: Sequence[str], lives: Sequence[tuple[float, float]]
) -> bool:
    at = node_managers.claimed_by_us_at(node, path)
    if at is None or node_managers.claimed_by_another(node, path, 0.0):
        return False
    return not any(began <= at <= ended + _ENDS_WITHIN_S for began, ended in lives)


def cordon_stays(node: NodeView) -> str:
    """Why the node stays cordoned when our taint and cordon comes off; "" when it does not.

    Only a `FreshNode` carries the managers, so the edge reads the node before it unmarks.
    """
    if not node.spec.unschedulable:
        return ""
    note = read_note(node)
    if note is None:
        return "its state before the quarantine is not recorded"
    if note.prior_unschedulable or "Cordon" not in note.parts:
        return f"it was cordoned before session {note.session}"
    other = node_managers.claimed_by_another(
        node, node_managers.CORDON, timestamps.parse_time(note.at) or 0.0
    )
    return f"{other} cordoned it during the quarantine" if other else ""


def annotations_left(node: NodeView) -> tuple[str, ...]:
    """Autoscaler annotations that stay: nothing says whether they are ours, or others claim
    them.
    """
    note = read_note(node)
    recorded = note.prior_annotations if note is not None else {}
    claimed = _annotations_of_others(node)
    return tuple(
        name
        for name in AUTOSCALER_ANNOTATIONS
        if (name not in recorded or name in claimed)
        and node.annotations.get(name) == _AUTOSCALER_VALUE
    )


def _annotations_of_others(node: NodeView) -> frozenset[str]:
    """Autoscaler annotations that somebody else wants as well: they stay as they are."""
    note = read_note(node)
    since = timestamps.parse_time(note.at) if note is not None else None
    return frozenset(
        name
        for name in AUTOSCALER_ANNOTATIONS
        if node_managers.claimed_by_another(
            node, ("f:metadata", "f:annotations", f"f:{name}"), since or 0.0
        )
    )


def _foreign_taints(node: NodeView) -> list[dict[str, Any]]:
    return [
        msgspec.to_builtins(taint)
        for taint in node.spec.taints
        if taint.key != names.TAINT_QUARANTINE
    ]
