"""Requests for repairs as they stand on the Node and on objects, and what takes them off again.

By what is on record of each request alone: a policy may have changed since it was asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from rules.api.names import ANNOTATION_REPAIR
from rules.api.node_managers import annotated_by_us
from rules.api.nodes import NodeView, QuarantineView
from rules.api.object_name import name_from
from rules.api.quarantine import RepairAttempt, RepairState, gravest_reason
from rules.api.repair.writes import SetRepairCondition, Verb, WriteRepairObject
from rules.api.sentences import causes_clause
from rules.repair.adapter import REPAIR_CONDITIONS, NewObject, NodeCondition, NodeLabel, recorded
from rules.repair.ladder import Step
from rules.repair.objects import address_of, is_deleting, is_ours, is_over, uid_of
from rules.repair.template import RequestFacts
from rules.session.case import Case
from rules.session.repair.clearing import cleared_in, letting_back, restoring
from rules.session.repair.node_patch import node_patch

_ASKS: Final = "of a drained node is asked for because of"
_OUR_WORDS: Final = re.compile(
    rf"[a-z0-9.-]{{1,253}}-({'|'.join(step.lower() for step in Step)})-[0-9]{{1,6}}: "
    rf"({'|'.join(Step)}) {_ASKS} "
)
"""How the message of every condition begins that a session set, whatever became of the session."""
_NOT_ASKED: Final = "No repair of this kind is asked for."
MAX_REQUEST: Final = 63
"""What a label value takes: a Job's name stands in a label of its pods."""


def request_name(session: str, step: Step, attempt: int) -> str:
    """What a request is called everywhere: a second leader finds the first one's by it."""
    suffix = f"-{step.lower()}-{attempt}"
    if len(session) + len(suffix) <= MAX_REQUEST:
        return f"{session}{suffix}"
    digest = hashlib.sha256(session.encode()).hexdigest()[:8]
    suffix = f"-{digest}{suffix}"
    return name_from(session, suffix, MAX_REQUEST - len(suffix))


def facts_of(case: Case, attempt: RepairAttempt) -> RequestFacts:
    """What the request may say: as it was when the step was planned, so that it stays the same."""
    accused = tuple(gpu.uuid for gpu in attempt.before.gpus if gpu.accused)
    causes = case.session.spec.causes
    return RequestFacts(
        node=case.seen.name,
        node_uid=attempt.before.node_uid,
        session=case.session.name,
        boot_id=attempt.before.boot_id,
        # Never the others for want of one: a reset of all ends work that nobody accused.
        gpu_uuids=accused,
        reason=gravest_reason(causes),
        step=attempt.step,
    )


def note_of(attempt: RepairAttempt) -> str:
    """The annotation by which a request is known: its name first."""
    return f"{attempt.object} {attempt.step} {attempt.adapter}"


def label_note(attempt: RepairAttempt, action: NodeLabel) -> str:
    """The same on the Node, with the label: it comes off even where no session is left."""
    return f"{note_of(attempt)} {action.label}={action.value}"


def may_have_asked(attempt: RepairAttempt) -> bool:
    """Whether anybody is known to have been asked, or may have been by an older release."""
    return bool(attempt.asked_at) or attempt.state == RepairState.ASKED


# ------------------------------------------------------------------ conditions of the Node


def asked_by_condition(case: Case, attempt: RepairAttempt, action: NodeCondition) -> bool:
    """Whether the node carries the request: the call was sent by whoever led before."""
    found = case.node.condition(action.condition)
    return found is not None and found.status == "True" and _is(attempt, found.message)


def asking_by_condition(
    case: Case, attempt: RepairAttempt, action: NodeCondition
) -> SetRepairCondition:
    """The write that asks for the step by a condition of the Node."""
    return SetRepairCondition(
        node=case.node.name,
        node_uid=case.node.uid,
        session=case.session.name,
        step=attempt.step,
        kind=action.condition,
        asks=True,
        message=f"{attempt.object}: {attempt.step} {_ASKS} {causes_clause(case.causes)}."[:1024],
        at=case.now,
    )


def taking_back(case: Case, *, ends: bool) -> tuple[SetRepairCondition | WriteRepairObject, ...]:
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
        if any(_is(attempt, _message(case.node, kind)) for attempt in past)
    )
    return (*conditions, *letting_back(case))


def asked_of(node: NodeView) -> tuple[str, ...]:
    """The repair conditions that the node carries as True."""
    found = ((kind, node.condition(kind)) for kind in REPAIR_CONDITIONS)
    return tuple(kind for kind, known in found if known is not None and known.status == "True")


# ------------------------------------------------------------------ labels and objects


def taking_off_node(
    case: Case, attempt: RepairAttempt, action: NodeLabel
) -> tuple[WriteRepairObject, ...]:
    """What takes the request's label off the Node. A step that nobody was asked for takes back
    nothing: people and other sessions ask in the same words.
    """
    node = case.seen.node
    if node is None or not (may_have_asked(attempt) or _noted(node, attempt.object)):
        return ()
    return _unset(node, case.session.name, _label_off(node, attempt.object, action))


def _noted(node: NodeView, request: str) -> bool:
    return node.annotations.get(ANNOTATION_REPAIR, "").startswith(f"{request} ")


def _label_off(node: NodeView, request: str, action: NodeLabel) -> dict[str, Any]:
    """The merge patch that takes back what is still there; what others changed is theirs."""
    meta: dict[str, Any] = {}
    if node.labels.get(action.label) == action.value:
        meta["labels"] = {action.label: None}
    if _noted(node, request):
        meta["annotations"] = {ANNOTATION_REPAIR: None}
    return meta


def taking_off(
    case: Case, attempt: RepairAttempt, action: NewObject, json: Mapping[str, Any]
) -> tuple[WriteRepairObject, ...]:
    """The deletion of the object that the request made, as it was just read."""
    target = attempt.target
    if target is None or (target.uid and uid_of(json) != target.uid):
        return ()
    if not is_ours(json, attempt.object) or is_deleting(json) or is_over(action, json):
        return ()
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid_of(json)},
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
            address=address_of(target),
            body=body,
            asks=False,
        ),
    )


def orphaned(
    node: NodeView, now: float, known: tuple[QuarantineView, ...]
) -> tuple[SetRepairCondition | WriteRepairObject, ...]:
    """Requests on a node that no open session concerns: it may serve again, so they come off.

    A condition that others set, or a person, is theirs. `known`: sessions of the node that are
    over or gone, with the requests and changed labels that they have on record.
    """
    conditions = tuple(
        _off(node, "", kind, now) for kind in asked_of(node) if is_our_request(node, kind)
    )
    marks = _unset(node, "", node_request_off(node, known))
    return (*conditions, *marks, *restoring(node, "", cleared_in(known)))


def is_our_request(node: NodeView, kind: str) -> bool:
    """Whether a session set the condition, or took it back; one that others set is theirs."""
    message = _message(node, kind)
    return _OUR_WORDS.match(message) is not None or message == _NOT_ASKED


def node_request_off(node: NodeView, known: tuple[QuarantineView, ...]) -> dict[str, Any]:
    """The metadata of the merge patch that takes a request's label off the Node; {} for none.

    A kubelet can write the note that names the request. It counts if one of the `known` sessions
    has the request on record, or the managers of a `FreshNode` show that the remediator wrote it.
    """
    name, _, rest = node.annotations.get(ANNOTATION_REPAIR, "").partition(" ")
    asked = (a for session in known for a in session.status.repair if a.object == name)
    action = next((recorded(attempt.action) for attempt in asked), None)
    label, _, value = rest.rpartition(" ")[2].partition("=")
    if action is None and value and annotated_by_us(node, ANNOTATION_REPAIR):
        action = NodeLabel(label=label, value=value)
    # Whose it is, nobody knows: it names no request of ours.
    return _label_off(node, name, action) if isinstance(action, NodeLabel) else {}


def _unset(node: NodeView, session: str, meta: dict[str, Any]) -> tuple[WriteRepairObject, ...]:
    """The write of this metadata to exactly this Node; () where nothing is to be taken back."""
    if not meta:
        return ()
    return (node_patch(node, session, {"metadata": {**meta, "uid": node.uid}}),)


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


def _is(attempt: RepairAttempt, message: str) -> bool:
    return bool(attempt.object) and message.startswith(f"{attempt.object}: ")


def _message(node: NodeView, kind: str) -> str:
    found = node.condition(kind)
    return found.message if found is not None else ""
