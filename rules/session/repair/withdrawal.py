"""Withdraw repair requests from Nodes and objects, based only on what is recorded for each.

The policy may have changed since a request was made. A session and its taint and cordon may both
disappear while gpuward does not run, so a request on the Node carries its own name; docs/repair.md
has the table.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rules.api import messages, names, node_managers, quarantine_taint, repair_writes, timestamps
from rules.api.nodes import ManagedNode, NodeView, QuarantineView
from rules.api.quarantine import RepairAttempt, RepairState
from rules.api.repair_writes import ObjectAddress, SetRepairCondition, Verb, WriteRepairObject
from rules.api.writes import EmitEvent, node_event
from rules.repair import adapter, objects
from rules.repair.adapter import NewObject, NodeLabel
from rules.repair.ladder import Step
from rules.repair.objects import ReadState
from rules.session.case import Case
from rules.session.repair.request import ASKS, FRESH_S, carries, read_lately

_OUR_MESSAGE: Final = re.compile(
    rf"[a-z0-9.-]{{1,253}}-({'|'.join(step.lower() for step in Step)})-[0-9]{{1,6}}: "
    rf"({'|'.join(Step)}) {ASKS} "
)
"""The begin of the message of every condition that a session set."""
_NOT_ASKED: Final = "No repair of this kind is asked for."


def may_have_asked(attempt: RepairAttempt) -> bool:
    """Return whether the request was made, or may have been by an older release."""
    return bool(attempt.asked_at) or attempt.state == RepairState.ASKED


def node_withdrawals(
    case: Case, *, ends: bool
) -> tuple[SetRepairCondition | WriteRepairObject, ...]:
    """Return the writes that withdraw ended requests from the node.

    A request for a replacement stays as long as the session: the node is out of service, and a
    slow provider may still replace it. When the session `ends`, all requests are withdrawn.
    """
    if case.seen.node is None:
        return ()
    past = [a for a in case.session.status.repair if ends or a.step != Step.REPLACE_NODE]
    conditions = tuple(
        _off(case.node, case.session.name, kind, case.now)
        for kind in asked_of(case.node)
        if any(carries(case.node, attempt, kind) for attempt in past)
    )
    return (*conditions, *restored_labels(case))


def restored_labels(case: Case) -> tuple[WriteRepairObject, ...]:
    """Return the write that restores the labels of pods that were moved off the GPUs; () if none
    were.
    """
    return repair_writes.restoring(
        case.seen.node, case.session.name, repair_writes.cleared_in((case.session,))
    )


def asked_of(node: NodeView) -> tuple[str, ...]:
    """Return the repair conditions that are True on the node."""
    found = ((kind, node.condition(kind)) for kind in adapter.REPAIR_CONDITIONS)
    return tuple(kind for kind, known in found if known is not None and known.status == "True")


def _noted(node: NodeView, request: str) -> bool:
    return node.annotations.get(names.ANNOTATION_REPAIR, "").startswith(f"{request} ")


def _label_off(node: NodeView, request: str, action: NodeLabel) -> dict[str, Any]:
    """Return the merge patch that removes what is unchanged; other programs' values stay."""
    meta: dict[str, Any] = {}
    if node.labels.get(action.label) == action.value:
        meta["labels"] = {action.label: None}
    if _noted(node, request):
        meta["annotations"] = {names.ANNOTATION_REPAIR: None}
    return meta


def deletion_of(
    case: Case, attempt: RepairAttempt, action: NewObject, json: Mapping[str, Any]
) -> tuple[WriteRepairObject, ...]:
    """Return the deletion of the object that the request created, as it was just read."""
    target = attempt.target
    if target is None or (target.uid and objects.uid_of(json) != target.uid):
        return ()
    if (
        not objects.is_ours(json, attempt.object)
        or objects.is_deleting(json)
        or objects.is_over(action, json)
    ):
        return ()
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": objects.uid_of(json)},
        # The API server's own default leaves the pods of a Job behind.
        "propagationPolicy": "Background",
    }
    return (
        WriteRepairObject(
            node=case.seen.name,
            node_uid=attempt.before.node_uid,
            session=case.session.name,
            step=attempt.step,
            verb=Verb.DELETE,
            address=objects.address_of(target),
            body=body,
            asks=False,
        ),
    )


def is_our_request(node: NodeView, kind: str) -> bool:
    """Return whether a session set or withdrew the condition."""
    found = node.condition(kind)
    message = found.message if found is not None else ""
    return _OUR_MESSAGE.match(message) is not None or message == _NOT_ASKED


def node_request_off(node: NodeView, known: tuple[QuarantineView, ...]) -> dict[str, Any]:
    """Return the metadata of the merge patch that removes a request's label; {} for none.

    A kubelet can write the annotation that names the request. It counts if one of the `known`
    sessions recorded the request, or the managed fields of a `ManagedNode` show that the
    remediator wrote it.
    """
    name, _, rest = node.annotations.get(names.ANNOTATION_REPAIR, "").partition(" ")
    asked = (a for session in known for a in session.status.repair if a.object == name)
    action = next((adapter.recorded(attempt.action) for attempt in asked), None)
    label, _, value = rest.rpartition(" ")[2].partition("=")
    if action is None and value and node_managers.annotated_by_us(node, names.ANNOTATION_REPAIR):
        action = NodeLabel(label=label, value=value)
    # Otherwise the annotation names no request of gpuward.
    return _label_off(node, name, action) if isinstance(action, NodeLabel) else {}


def _unset(node: NodeView, session: str, meta: dict[str, Any]) -> tuple[WriteRepairObject, ...]:
    """Return the write of this metadata to exactly this Node; () if there is nothing to remove."""
    if not meta:
        return ()
    return (repair_writes.node_patch(node, session, {"metadata": {**meta, "uid": node.uid}}),)


def _off(node: NodeView, session: str, kind: str, now: float) -> SetRepairCondition:
    return SetRepairCondition(
        node=node.name,
        node_uid=node.uid,
        session=session,
        step="",
        kind=kind,
        asks=False,
        message=_NOT_ASKED,
        at=now,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """How to withdraw requests: read an object first, wait, or send writes."""

    needs: ObjectAddress | None = None
    waits: str = ""
    """Why it is unknown whether a request remains, as a clause."""
    writes: tuple[SetRepairCondition | WriteRepairObject, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    """Events to emit with the writes."""
    left: str = ""
    """Requests that could not be withdrawn, as a clause; an operator has to remove them."""


WITHDRAWAL_S: Final = 600.0
"""How long an object that cannot be read keeps a step or a session from ending."""


def withdraw(case: Case, attempts: tuple[RepairAttempt, ...], *, ends: bool) -> Withdrawal:
    """Return what withdraws the requests of these attempts; `ends`: the session does."""
    writes: list[SetRepairCondition | WriteRepairObject] = []
    left: list[str] = []
    for attempt in attempts:
        if not ends and attempt.step == Step.REPLACE_NODE:
            continue
        action = adapter.recorded(attempt.action)
        if action is None and (may_have_asked(attempt) or attempt.target is not None):
            # The adapter belongs to another release.
            through = objects.address_of(attempt.target).text if attempt.target else "the Node"
            left.append(f"{through} (requested by {attempt.adapter})")
        node = case.seen.node
        # A step without a request withdraws nothing: operators and other sessions may have set the
        # same label.
        asked = may_have_asked(attempt) or (node is not None and _noted(node, attempt.object))
        if isinstance(action, NodeLabel) and node is not None and asked:
            writes += _unset(node, case.session.name, _label_off(node, attempt.object, action))
        if not isinstance(action, NewObject) or attempt.target is None:
            continue
        query = objects.address_of(attempt.target)
        seen = read_lately(case, query, FRESH_S)
        if seen is None:
            return Withdrawal(needs=query)
        if seen.state is ReadState.UNREAD:
            since = case.now if seen.failing_since is None else seen.failing_since
            if case.now - since < WITHDRAWAL_S:
                return Withdrawal(waits=f"{query.text} cannot be read ({seen.why})")
        if seen.state in {ReadState.UNREAD, ReadState.FORBIDDEN}:
            left.append(f"{query.text} ({seen.why})")
        if seen.state is ReadState.FOUND and seen.found:
            writes += deletion_of(case, attempt, action, seen.found[0])
    return Withdrawal(writes=tuple(writes), left=", ".join(left))


_MOST_NAMED: Final = 8


NodeWrites = tuple[SetRepairCondition | WriteRepairObject, ...]


def leftover_writes(node: NodeView, now: float, known: tuple[QuarantineView, ...]) -> NodeWrites:
    """Return the writes that remove all requests of gpuward from a node without an open session.

    Conditions that other programs or operators set stay. `known`: ended or deleted sessions of the
    node with their recorded requests and changed labels. The label of the quarantine comes last,
    alone, since each write changes the resourceVersion.
    """
    conditions = tuple(
        _off(node, "", kind, now) for kind in asked_of(node) if is_our_request(node, kind)
    )
    labels = _unset(node, "", node_request_off(node, known))
    asked: NodeWrites = (
        *conditions,
        *labels,
        *repair_writes.restoring(node, "", repair_writes.cleared_in(known)),
    )
    if asked or not quarantine_taint.stray_label(node):
        return asked
    return (repair_writes.node_patch(node, "", quarantine_taint.stray_label_patch(node)),)


def leftover_events(
    node: NodeView,
    now: float,
    known: tuple[QuarantineView, ...],
    writes: NodeWrites,
) -> tuple[EmitEvent, ...]:
    """Return the Events about leftovers: those that `writes` remove, and those that stay."""
    events = []
    if gone := _removed(writes):
        text = f"An ended or deleted session left {_named(gone)} on this node; gpuward removes it."
        events.append(_event(node, "Normal", "QuarantineLeftover", text, now))
    stays = [
        f"label {key}"
        for key in repair_writes.unexplained_labels(node, repair_writes.cleared_in(known))
    ]
    if names.ANNOTATION_REPAIR in node.annotations and not node_request_off(node, known):
        stays.append(f"annotation {names.ANNOTATION_REPAIR}")
    if isinstance(node, ManagedNode):
        lives = [
            (
                session.metadata.created_at,
                timestamps.parse_time(session.status.phase_since) or float("inf"),
            )
            for session in known
        ]
        stays = [*quarantine_taint.stray_taints(node, lives), *stays]
    if stays:
        named = _named(tuple(stays))
        text = f"{named} may belong to gpuward, but this is not certain; remove it manually."
        events.append(_event(node, "Warning", "QuarantineNeedsHuman", text, now))
    return tuple(events)


def _named(parts: tuple[str, ...]) -> str:
    more = len(parts) - _MOST_NAMED
    return ", ".join(parts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _removed(writes: NodeWrites) -> tuple[str, ...]:
    found: list[str] = []
    for write in writes:
        if isinstance(write, SetRepairCondition):
            found.append(f"condition {write.kind}")
            continue
        meta = write.body.get("metadata", {})
        found += [f"label {key}" for key in meta.get("labels") or {}]
        found += [f"annotation {key}" for key in meta.get("annotations") or {}]
    return tuple(found)


def _event(node: NodeView, kind: str, reason: str, text: str, now: float) -> EmitEvent:
    key = f"{node.uid}/{reason}/{text}"[:300]
    return node_event(node.name, node.uid, reason, messages.bounded(text), now, key, kind)
