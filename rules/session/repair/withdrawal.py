"""What takes requests for repairs off Nodes and objects again, by what is on record of each alone.

A policy may have changed since a request was made. A session's object and its taint and cordon may
both vanish while gpuward does not run: what stands on the Node says itself whose it is;
docs/repair.md has the table.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rules.api import messages, names, node_managers, quarantine_taint, repair_writes, timestamps
from rules.api.nodes import FreshNode, NodeView, QuarantineView
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
"""How the message of every condition begins that a session set, whatever became of the session."""
_NOT_ASKED: Final = "No repair of this kind is asked for."


def may_have_asked(attempt: RepairAttempt) -> bool:
    """Whether anybody is known to have been asked, or may have been by an older release."""
    return bool(attempt.asked_at) or attempt.state == RepairState.ASKED


def node_withdrawals(
    case: Case, *, ends: bool
) -> tuple[SetRepairCondition | WriteRepairObject, ...]:
    """What is on the node of requests that ended: off with it, so that nobody follows it late.

    A request for a replacement stays while the session does: the node serves nobody, and whoever
    is slow to replace it still may. With the session (`ends`) everything goes.
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
    """The write that lets everybody back who was moved off the GPUs; () where nobody was."""
    return repair_writes.restoring(
        case.seen.node, case.session.name, repair_writes.cleared_in((case.session,))
    )


def asked_of(node: NodeView) -> tuple[str, ...]:
    """The repair conditions that the node carries as True."""
    found = ((kind, node.condition(kind)) for kind in adapter.REPAIR_CONDITIONS)
    return tuple(kind for kind, known in found if known is not None and known.status == "True")


def _noted(node: NodeView, request: str) -> bool:
    return node.annotations.get(names.ANNOTATION_REPAIR, "").startswith(f"{request} ")


def _label_off(node: NodeView, request: str, action: NodeLabel) -> dict[str, Any]:
    """The merge patch that takes back what is still there; what others changed is theirs."""
    meta: dict[str, Any] = {}
    if node.labels.get(action.label) == action.value:
        meta["labels"] = {action.label: None}
    if _noted(node, request):
        meta["annotations"] = {names.ANNOTATION_REPAIR: None}
    return meta


def deletion_of(
    case: Case, attempt: RepairAttempt, action: NewObject, json: Mapping[str, Any]
) -> tuple[WriteRepairObject, ...]:
    """The deletion of the object that the request made, as it was just read."""
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
    """Whether a session set the condition, or took it back; one that others set is theirs."""
    found = node.condition(kind)
    message = found.message if found is not None else ""
    return _OUR_MESSAGE.match(message) is not None or message == _NOT_ASKED


def node_request_off(node: NodeView, known: tuple[QuarantineView, ...]) -> dict[str, Any]:
    """The metadata of the merge patch that takes a request's label off the Node; {} for none.

    A kubelet can write the note that names the request. It counts if one of the `known` sessions
    has the request on record, or the managers of a `FreshNode` show that the remediator wrote it.
    """
    name, _, rest = node.annotations.get(names.ANNOTATION_REPAIR, "").partition(" ")
    asked = (a for session in known for a in session.status.repair if a.object == name)
    action = next((adapter.recorded(attempt.action) for attempt in asked), None)
    label, _, value = rest.rpartition(" ")[2].partition("=")
    if action is None and value and node_managers.annotated_by_us(node, names.ANNOTATION_REPAIR):
        action = NodeLabel(label=label, value=value)
    # Whose it is, nobody knows: it names no request of gpuward.
    return _label_off(node, name, action) if isinstance(action, NodeLabel) else {}


def _unset(node: NodeView, session: str, meta: dict[str, Any]) -> tuple[WriteRepairObject, ...]:
    """The write of this metadata to exactly this Node; () where nothing is to be taken back."""
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
    """How requests come off: read this, wait for that, or send these."""

    needs: ObjectAddress | None = None
    waits: str = ""
    """Why it is not known whether a request still stands, a clause."""
    writes: tuple[SetRepairCondition | WriteRepairObject, ...] = ()
    told: tuple[EmitEvent, ...] = ()
    """What people are reported with it."""
    left: str = ""
    """What could not be taken back and may be followed late, a clause; an operator takes it
    off.
    """


TAKE_BACK_S: Final = 600.0
"""How long an object that cannot be read keeps a step or a session from ending."""


def withdraw(case: Case, attempts: tuple[RepairAttempt, ...], *, ends: bool) -> Withdrawal:
    """What takes the requests of these attempts off their objects; `ends`: the session does."""
    writes: list[SetRepairCondition | WriteRepairObject] = []
    left: list[str] = []
    for attempt in attempts:
        if not ends and attempt.step == Step.REPLACE_NODE:
            continue
        action = adapter.recorded(attempt.action)
        if action is None and (may_have_asked(attempt) or attempt.target is not None):
            # Of a release whose adapters this one does not have.
            through = objects.address_of(attempt.target).words if attempt.target else "the Node"
            left.append(f"{through} (asked by {attempt.adapter})")
        node = case.seen.node
        # A step that nobody was asked for takes back nothing: people and other sessions ask in the
        # same words.
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
            if case.now - since < TAKE_BACK_S:
                return Withdrawal(waits=f"{query.words} cannot be read ({seen.why})")
        if seen.state in {ReadState.UNREAD, ReadState.FORBIDDEN}:
            left.append(f"{query.words} ({seen.why})")
        if seen.state is ReadState.FOUND and seen.found:
            writes += deletion_of(case, attempt, action, seen.found[0])
    return Withdrawal(writes=tuple(writes), left=", ".join(left))


_MOST_NAMED: Final = 8


NodeWrites = tuple[SetRepairCondition | WriteRepairObject, ...]


def leftover_writes(node: NodeView, now: float, known: tuple[QuarantineView, ...]) -> NodeWrites:
    """What takes off all that is ours on a node that no open session concerns: it may serve again.

    A condition that others set, or an operator, is theirs. `known`: sessions of the node that are
    over or gone, with the requests and changed labels that they have on record. The taint and
    cordon's label comes last, alone, since each write makes the node another version.
    """
    conditions = tuple(
        _off(node, "", kind, now) for kind in asked_of(node) if is_our_request(node, kind)
    )
    marks = _unset(node, "", node_request_off(node, known))
    asked: NodeWrites = (
        *conditions,
        *marks,
        *repair_writes.restoring(node, "", repair_writes.cleared_in(known)),
    )
    if asked or not quarantine_taint.stray_label(node):
        return asked
    return (repair_writes.node_patch(node, "", quarantine_taint.stray_label_patch(node)),)


def told(
    node: NodeView,
    now: float,
    known: tuple[QuarantineView, ...],
    writes: NodeWrites,
) -> tuple[EmitEvent, ...]:
    """What becomes of it, for people: what goes with `writes`, and what stays."""
    events = []
    if gone := _going(writes):
        said = f"A session that is over or gone left {_named(gone)} on this node; it is taken off."
        events.append(_event(node, "Normal", "QuarantineLeftover", said, now))
    stays = [
        f"label {key}"
        for key in repair_writes.unexplained_labels(node, repair_writes.cleared_in(known))
    ]
    if names.ANNOTATION_REPAIR in node.annotations and not node_request_off(node, known):
        stays.append(f"annotation {names.ANNOTATION_REPAIR}")
    if isinstance(node, FreshNode):
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
        said = f"{named} may be gpuward's and nothing proves it; an operator takes it off."
        events.append(_event(node, "Warning", "QuarantineNeedsHuman", said, now))
    return tuple(events)


def _named(parts: tuple[str, ...]) -> str:
    more = len(parts) - _MOST_NAMED
    return ", ".join(parts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _going(writes: NodeWrites) -> tuple[str, ...]:
    found: list[str] = []
    for write in writes:
        if isinstance(write, SetRepairCondition):
            found.append(f"condition {write.kind}")
            continue
        meta = write.body.get("metadata", {})
        found += [f"label {key}" for key in meta.get("labels") or {}]
        found += [f"annotation {key}" for key in meta.get("annotations") or {}]
    return tuple(found)


def _event(node: NodeView, kind: str, reason: str, said: str, now: float) -> EmitEvent:
    key = f"{node.uid}/{reason}/{said}"[:300]
    return node_event(node.name, node.uid, reason, messages.bounded(said), now, key, kind)
