"""Build the patches that taint and cordon a node, and that remove the taint and cordon again.

The session annotation records the prior state of the node. Release, cancel, uninstall and cleanup
all restore that state and keep everything else. Every patch has `metadata.resourceVersion`,
because a taint list is replaced as a unit.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from rules.api import evidence, names, node_managers, timestamps
from rules.api.evidence import QuarantineNote
from rules.api.node_managers import ManagerKind
from rules.api.nodes import ManagedNode, NodeView, Taint
from rules.catalog.reason import is_reason_code

AUTOSCALER_ANNOTATIONS: Final = (
    names.ANNOTATION_SCALE_DOWN_DISABLED,
    names.ANNOTATION_DO_NOT_DISRUPT,
)
EFFECT: Final = "NoSchedule"
DEVICE: Final = "Device"
"""The parts of a session that isolates devices: the node gets neither taint nor cordon."""
CORDONED: Final = "its cordon"
LABELLED: Final = "true"
"""Value of the quarantine label. Earlier versions wrote the phase: a node patch for each."""
_ENDS_WITHIN_S: Final = 120.0
"""How long after the end of a session its last writes to the node may arrive."""
_AUTOSCALER_VALUE: Final = "true"


class QuarantineState(StrEnum):
    """The state of a session's taint and cordon on the node."""

    ABSENT = "Absent"
    """Neither annotation nor taint."""
    INTACT = "Intact"
    """Every part is there."""
    UNCORDONED = "Uncordoned"
    UNTAINTED = "Untainted"
    FOREIGN = "Foreign"
    """The annotation names another session."""
    UNRECORDED = "Unrecorded"
    """gpuward's taint without a valid annotation: the prior state is unknown."""

    @property
    def undone(self) -> bool:
        """Whether another client removed a part."""
        return self in {QuarantineState.UNCORDONED, QuarantineState.UNTAINTED}


def read_note(node: NodeView) -> QuarantineNote | None:
    """Return the node's session annotation; None if there is none or it is invalid."""
    return evidence.note_of(node.annotations)


def own_taint(node: NodeView) -> Taint | None:
    """Return gpuward's taint of the node, if it has one."""
    return next((taint for taint in node.spec.taints if taint.key == names.TAINT_QUARANTINE), None)


def quarantined(node: NodeView) -> bool:
    """Return whether the node has any part of a quarantine."""
    return names.ANNOTATION_SESSION in node.annotations or own_taint(node) is not None


def quarantine_state(node: NodeView, session: str) -> QuarantineState:
    """Return the state of the taint and cordon of `session` on the node."""
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


def isolates_devices(node: NodeView, session: str) -> bool:
    """Return whether the session isolates devices and not the node."""
    note = read_note(node)
    return note is not None and note.session == session and note.parts == DEVICE


def quarantine_patch(
    node: NodeView,
    *,
    session: str,
    reason: str,
    parts: str,
    now: float,
    restored_boot: str = "",
    restored: bool = False,
) -> dict[str, Any]:
    """Return the patch that taints, cordons and annotates the node.

    Applied again, it restores removed parts and updates the recorded prior state. With the first
    `parts` after `DEVICE` it quarantines the node, too. `restored_boot`
    and `restored` record why: after an uncordon at boot, or by another controller. The manager of
    a prior cordon is recorded if `node` is a `ManagedNode`.
    """
    note = read_note(node)
    known = _updated_note(note, node) if note is not None and note.session == session else None
    if known is None or known.parts == DEVICE != parts:
        note = QuarantineNote(
            session=session,
            boot_id=node.boot_id,
            prior_unschedulable=node.spec.unschedulable,
            prior_by=node_managers.claimed_by_another(node, node_managers.CORDON, 0.0),
            at=timestamps.format_time(now),
            parts=parts,
            prior_annotations=known.prior_annotations
            if known is not None
            else {name: node.annotations.get(name) for name in AUTOSCALER_ANNOTATIONS},
        )
    else:
        note = known
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
            "labels": {names.LABEL_QUARANTINE: LABELLED},
            "annotations": {
                names.ANNOTATION_SESSION: msgspec.json.encode(_recorded(note)).decode(),
                **dict.fromkeys(AUTOSCALER_ANNOTATIONS, _AUTOSCALER_VALUE),
            },
        },
        "spec": spec,
    }


def _updated_note(note: QuarantineNote, node: NodeView) -> QuarantineNote:
    """Return the note with the prior state updated by changes of other clients.

    A prior cordon that is removed now was removed by its owner. An operator's cordon is kept,
    because an operator's uncordon would have ended the session, so another program removed it. An
    autoscaler annotation without gpuward's value was changed by its owner.
    """
    by_operator = node_managers.kind_of(note.prior_by) is ManagerKind.INTERACTIVE
    values = {name: node.annotations.get(name) for name in note.prior_annotations}
    return msgspec.structs.replace(
        note,
        prior_unschedulable=note.prior_unschedulable and (node.spec.unschedulable or by_operator),
        prior_annotations={
            name: prior if values[name] == _AUTOSCALER_VALUE else values[name]
            for name, prior in note.prior_annotations.items()
        },
    )


_RARE: Final = ("priorBy", "restoredBoot", "restoredAt")


def _recorded(note: QuarantineNote) -> dict[str, Any]:
    """Return the note as JSON types, without rare fields that are empty."""
    recorded: dict[str, Any] = msgspec.to_builtins(note)
    return {name: value for name, value in recorded.items() if value or name not in _RARE}


def relabel_patch(node: NodeView) -> dict[str, Any]:
    """Return the patch that restores the quarantine label, by which nodes are watched."""
    return {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {names.LABEL_QUARANTINE: LABELLED},
        }
    }


def release_patch(node: NodeView) -> dict[str, Any]:
    """Return the patch that removes gpuward's parts and restores the prior state."""
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


def stray_taints(node: ManagedNode, lives: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    """Return what only gpuward set on a node without taint and annotation, for messages.

    It is not removed, since an operator may have kept the cordon on purpose: a second
    `kubectl cordon` leaves no trace. `lives` are start and end of each known ended session. Writes
    within one of them belong to that session.
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
    """Return whether the node has the quarantine label, but no taint and no annotation."""
    return names.LABEL_QUARANTINE in node.labels and not quarantined(node)


def stray_label_patch(node: NodeView) -> dict[str, Any]:
    """Return the merge patch that removes the label."""
    return {
        "metadata": {
            "uid": node.uid,
            "resourceVersion": node.metadata.resource_version,
            "labels": {names.LABEL_QUARANTINE: None},
        }
    }


def may_have_strays(node: NodeView) -> bool:
    """Return whether the node has to be read with its managers to find leftovers."""
    return not quarantined(node) and (
        node.spec.unschedulable
        or stray_label(node)
        or any(node.annotations.get(name) == _AUTOSCALER_VALUE for name in AUTOSCALER_ANNOTATIONS)
    )


def _is_forgotten(
    node: ManagedNode, path: Sequence[str], lives: Sequence[tuple[float, float]]
) -> bool:
    at = node_managers.claimed_by_us_at(node, path)
    if at is None or node_managers.claimed_by_another(node, path, 0.0):
        return False
    return not any(began <= at <= ended + _ENDS_WITHIN_S for began, ended in lives)


def cordon_stays(node: NodeView) -> str:
    """Return why the node stays cordoned after the release; "" if it does not.

    `node` is a `ManagedNode`; other views have no managers.
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
    """Return the autoscaler annotations that stay: unrecorded ones, and those that others own."""
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
    """Return the autoscaler annotations that another manager owns, too. They stay."""
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
