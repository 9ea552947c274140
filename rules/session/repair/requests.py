"""Requests for repairs as they stand on the Node and on objects, and what takes them off again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rules.api.names import ANNOTATION_REPAIR
from rules.api.node_managers import annotated_by_us
from rules.api.nodes import NodeView, QuarantineView
from rules.api.object_name import name_from
from rules.api.quarantine import RepairAttempt, RepairState, gravest_reason
from rules.api.repair.writes import SetRepairCondition, Verb, WriteRepairObject
from rules.api.sentences import causes_clause
from rules.policy.policy import Policy
from rules.repair.adapter import REPAIR_CONDITIONS, RepairAction
from rules.repair.judging import is_ours, merged, taken_back
from rules.repair.ladder import Step
from rules.repair.matching import first_holding, is_deleting, node_json, uid_of
from rules.repair.target import address_of
from rules.repair.template import RequestFacts, filled
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


def action_of(policy: Policy, attempt: RepairAttempt) -> RepairAction | None:
    """How the attempt was, or is to be, asked for: as on record, whatever the policy says now.

    Entries of older releases, and those that cannot be read, have nothing on record.
    """
    if attempt.action is not None:
        try:
            return msgspec.convert(attempt.action, RepairAction)
        except msgspec.ValidationError:
            pass
    return policy.repair.action(attempt.adapter, attempt.step)


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


def patch_of(case: Case, attempt: RepairAttempt, action: RepairAction) -> dict[str, Any]:
    """What the step sets on its object; {} where it sets nothing."""
    patch: dict[str, Any] = filled(action.patch or {}, facts_of(case, attempt))
    return patch


# ------------------------------------------------------------------ conditions of the Node


def asked_by_condition(case: Case, attempt: RepairAttempt, action: RepairAction) -> bool:
    """Whether the node carries the request: the call was sent by whoever led before."""
    found = case.node.condition(action.condition)
    return found is not None and found.status == "True" and _is(attempt, found.message)


def asking_by_condition(
    case: Case, attempt: RepairAttempt, action: RepairAction
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


# ------------------------------------------------------------------ labels, annotations, objects


def taking_off_node(
    case: Case, attempt: RepairAttempt, action: RepairAction
) -> tuple[WriteRepairObject, ...]:
    """What takes the request's labels and annotations off the Node."""
    if case.seen.node is None:
        return ()
    node = node_json(case.node)
    if not _may_have_asked(attempt, node):
        return ()
    back = taken_back(action, attempt.object, node, patch_of(case, attempt, action))
    return _unset(case.node, case.session.name, back)


def _may_have_asked(attempt: RepairAttempt, json: Mapping[str, Any]) -> bool:
    """Whether what stands there may be this request: a step that nobody was asked for takes back
    nothing, since people and other sessions ask in the same words.
    """
    known = bool(attempt.asked_at) or attempt.state == RepairState.ASKED
    return known or is_ours(json, attempt.object)


def taking_off(
    case: Case, attempt: RepairAttempt, action: RepairAction, json: Mapping[str, Any]
) -> tuple[WriteRepairObject, ...]:
    """What takes the request off its object as it was just read: only what is ours."""
    target = attempt.target
    other = target is None or (target.uid and uid_of(json) != target.uid)
    if target is None or other or not _may_have_asked(attempt, json):
        return ()
    if action.create is not None:
        node = node_json(case.seen.node) if case.seen.node is not None else {}
        over = first_holding((*action.done, *action.failed), json, node) if action.done else None
        if not is_ours(json, attempt.object) or is_deleting(json) or over is not None:
            return ()
        verb, body = (
            Verb.DELETE,
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": uid_of(json)},
                # The API server's own default leaves the pods of a Job behind.
                "propagationPolicy": "Background",
            },
        )
    else:
        back = taken_back(action, attempt.object, json, patch_of(case, attempt, action))
        if not back:
            return ()
        verb, body = Verb.PATCH, merged(back, {"metadata": {"uid": uid_of(json)}})
    return (
        WriteRepairObject(
            node=case.seen.name,
            node_uid=attempt.before.node_uid,
            session=case.session.name,
            step=attempt.step,
            verb=verb,
            address=address_of(target),
            body=body,
            asks=False,
        ),
    )


def orphaned(
    node: NodeView, policy: Policy, now: float, known: tuple[QuarantineView, ...]
) -> tuple[SetRepairCondition | WriteRepairObject, ...]:
    """Requests on a node that no open session concerns: it may serve again, so they come off.

    A condition that others set, or a person, is theirs. `known`: sessions of the node that are
    over or gone, with the requests and changed labels that they have on record.
    """
    conditions = tuple(
        _off(node, "", kind, now) for kind in asked_of(node) if is_our_request(node, kind)
    )
    marks = _unset(node, "", node_request_off(node, policy, known))
    return (*conditions, *marks, *restoring(node, "", cleared_in(known)))


def is_our_request(node: NodeView, kind: str) -> bool:
    """Whether a session set the condition, or took it back; one that others set is theirs."""
    message = _message(node, kind)
    return _OUR_WORDS.match(message) is not None or message == _NOT_ASKED


def node_request_off(
    node: NodeView, policy: Policy, known: tuple[QuarantineView, ...]
) -> dict[str, Any]:
    """The merge patch that takes labels and annotations of a request off the Node; {} for none.

    A kubelet can write the note that names the request. It counts if one of the `known` sessions
    has the request on record, or the managers of a `FreshNode` show that the remediator wrote it.
    """
    words = node.annotations.get(ANNOTATION_REPAIR, "").split(" ")
    asked = (a for session in known for a in session.status.repair if a.object == words[0])
    attempt = next(asked, None)
    if attempt is None and len(words) == 3 and annotated_by_us(node, ANNOTATION_REPAIR):
        attempt = RepairAttempt(object=words[0], step=words[1], adapter=words[2])
    action = action_of(policy, attempt) if attempt is not None else None
    if action is None or action.patch is None or action.target is not None:
        # Whose it is, nobody knows: an adapter that the policy does not have any more.
        return {}
    return taken_back(action, words[0], node_json(node), action.patch)


def _unset(node: NodeView, session: str, back: dict[str, Any]) -> tuple[WriteRepairObject, ...]:
    """The write of `back` to exactly this Node; () where nothing is to be taken back."""
    of_this = {"metadata": {"uid": node.uid}}
    return (node_patch(node, session, merged(back, of_this)),) if back else ()


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
