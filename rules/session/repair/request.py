"""The request of a repair step: what to read first, whether it may be sent, and its write.

Turns the data of an adapter into writes, for one decision. Everything that the decision depends on
is read just before; the caller reads what is still missing.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Final

from rules.api import messages, names, object_name, quarantine, repair_writes
from rules.api.nodes import NodeView
from rules.api.quarantine import RepairAttempt, RepairTarget
from rules.api.repair_writes import ObjectAddress, SetRepairCondition, Verb, WriteRepairObject
from rules.drain import drain_plan
from rules.repair import adapter, objects, operands
from rules.repair.adapter import (
    NewObject,
    NodeCondition,
    NodeLabel,
    RepairAction,
    Replacement,
    RequestFacts,
)
from rules.repair.ladder import Step
from rules.repair.objects import AskAssessment, ObjectSeen, ReadState
from rules.session.case import Case
from rules.session.repair import ladder

ASKS: Final = "of a drained node is asked for because of"
"""Part of the message of a condition that requests a repair; it identifies gpuward's own."""
MAX_REQUEST: Final = 63
"""Maximum length of a label value: pods of a Job have its name as a label."""


def request_name(session: str, step: Step, attempt: int) -> str:
    """Return the name of a request, the same for every leader."""
    suffix = f"-{step.lower()}-{attempt}"
    if len(session) + len(suffix) <= MAX_REQUEST:
        return f"{session}{suffix}"
    digest = hashlib.sha256(session.encode()).hexdigest()[:8]
    suffix = f"-{digest}{suffix}"
    return object_name.name_from(session, suffix, MAX_REQUEST - len(suffix))


def facts_of(case: Case, attempt: RepairAttempt) -> RequestFacts:
    """Return the facts for the request as of the planning of the step, so that they are stable."""
    accused = tuple(gpu.uuid for gpu in attempt.before.gpus if gpu.accused)
    causes = case.session.spec.causes
    return RequestFacts(
        node=case.seen.name,
        node_uid=attempt.before.node_uid,
        session=case.session.name,
        boot_id=attempt.before.boot_id,
        # Only accused GPUs: a reset of others would end healthy work.
        gpu_uuids=accused,
        reason=quarantine.most_severe_reason(causes),
        step=attempt.step,
    )


def note_of(attempt: RepairAttempt) -> str:
    """Return the annotation that identifies a request; it begins with the request's name."""
    return f"{attempt.object} {attempt.step} {attempt.adapter}"


def carries(node: NodeView, attempt: RepairAttempt, kind: str) -> bool:
    """Return whether the node's condition of this type is the attempt's request."""
    found = node.condition(kind)
    asks = found is not None and found.status == "True" and bool(attempt.object)
    return asks and found is not None and found.message.startswith(f"{attempt.object}: ")


FRESH_S: Final = 10.0
"""Maximum age of an object at the time of a request. Every request is bound to the resourceVersion
that was read, so a later change answers 409. The value allows for a slow API server that needs
seconds for each of two reads."""
AGAIN_S: Final = 5.0
"""How soon an object with an objection is read again."""
LIST_AGAIN_S: Final = 30.0
"""How soon it is read again if it has to be found in a list."""
_MANAGED: Final = {"app.kubernetes.io/managed-by": "gpuward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A repair request that may be sent."""

    needs: ObjectAddress | None = None
    """The object to read first."""
    target: RepairTarget | None = None
    """The object to record; None for the Node and if it was not found."""
    assessment: AskAssessment = objects.GOES
    write: SetRepairCondition | WriteRepairObject | None = None
    """The write that requests the step; None if it must not be sent or was sent already."""
    clears: tuple[str, ...] | None = None
    """Set if `write` only moves pods off the GPUs: their labels with the values to restore."""
    leaving: str = ""
    """Pods that have to terminate before more are moved off the GPUs, as a clause; "" if none."""
    again_s: float = AGAIN_S
    """Seconds until another check if the request must not be sent."""


def call_for(case: Case, attempt: RepairAttempt) -> Call:
    """Return the request of a step, as far as it is known."""
    action = adapter.recorded(attempt.action)
    if action is None:
        return _no(_unknown(attempt))
    call = _call(case, attempt, action)
    if call.write is not None and not case.policy.repair.action(attempt.adapter, attempt.step):
        return replace(_no(_unknown(attempt)), target=call.target)
    no_gpus = ladder.must_name(attempt.step, action) and not facts_of(case, attempt).gpus
    if call.write is not None and no_gpus:
        return replace(_no(f"{attempt.step} {ladder.NO_ACCUSED_GPU}"), target=call.target)
    return call


def _call(case: Case, attempt: RepairAttempt, action: RepairAction) -> Call:
    match action:
        case NodeCondition():
            if carries(case.node, attempt, action.condition):
                return Call(assessment=AskAssessment(asked=True))
            if case.node.metadata.deletion_timestamp is not None:
                return Call(assessment=AskAssessment(waits="the Node is being deleted"))
            asks = f"{attempt.step} {ASKS} {messages.causes_clause(case.causes)}"
            return Call(
                write=SetRepairCondition(
                    node=case.node.name,
                    node_uid=case.node.uid,
                    session=case.session.name,
                    step=attempt.step,
                    kind=action.condition,
                    asks=True,
                    message=f"{attempt.object}: {asks}."[:1024],
                    at=case.now,
                )
            )
        case NodeLabel():
            return _by_label(case, attempt, action)
        case NewObject():
            return _by_new_object(case, attempt, action)
        case Replacement():
            return _by_replacement(case, attempt, action)


def _unknown(attempt: RepairAttempt) -> str:
    return f"the policy has no adapter {attempt.adapter} for a {attempt.step}"


def _no(why: str, again_s: float = AGAIN_S) -> Call:
    return Call(assessment=AskAssessment(cannot=why), again_s=again_s)


def read_lately(case: Case, query: ObjectAddress, at_most_s: float) -> ObjectSeen | None:
    """Return the object or list as last read; None if not read within `at_most_s`."""
    seen = case.seen.objects.get(query)
    return seen if seen is not None and abs(case.now - seen.read_at) <= at_most_s else None


def _by_label(case: Case, attempt: RepairAttempt, action: NodeLabel) -> Call:
    node = case.node
    assessment = objects.of_label(action, attempt.object, node)
    if assessment != objects.GOES:
        return Call(assessment=assessment)
    # The annotation names the label, so that it can be removed without the session.
    note = f"{note_of(attempt)} {action.label}={action.value}"
    meta = {
        "uid": node.uid,
        "resourceVersion": node.metadata.resource_version,
        "labels": {action.label: action.value},
        "annotations": {names.ANNOTATION_REPAIR: note},
    }
    body = {"metadata": meta}
    write = repair_writes.node_patch(node, case.session.name, body, step=attempt.step, asks=True)
    return Call(write=write)


def _by_new_object(case: Case, attempt: RepairAttempt, action: NewObject) -> Call:
    own = case.seen.own_namespace
    address: ObjectAddress | str
    if attempt.target is not None:
        address = objects.address_of(attempt.target)
    else:
        address = objects.new_address(action, attempt.object, facts_of(case, attempt), own)
    if isinstance(address, str):
        return _no(address)
    seen = read_lately(case, address, FRESH_S)
    if seen is None:
        return Call(needs=address)
    if seen.state not in {ReadState.FOUND, ReadState.ABSENT}:
        return _no(seen.why or f"{address.text} cannot be read")
    found = seen.found[0] if seen.found else None
    target = attempt.target or objects.target_of(address, found)
    assessment = objects.of_new_object(attempt.object, address.text, found)
    if assessment != objects.GOES:
        return Call(target=target, assessment=assessment)
    return _creating(case, attempt, action, address, target)


def _by_replacement(case: Case, attempt: RepairAttempt, action: Replacement) -> Call:
    known = attempt.target
    place = ObjectAddress(api_version=action.api_version, resource=action.resource)
    query = objects.address_of(known) if known is not None else place
    again_s = AGAIN_S if known is not None else LIST_AGAIN_S
    seen = read_lately(case, query, FRESH_S)
    if seen is None:
        return Call(needs=query)
    if seen.state not in {ReadState.FOUND, ReadState.ABSENT}:
        return _no(seen.why or f"{query.text} cannot be read", again_s)
    node = case.node.name
    if known is not None:
        found = seen.found[0] if seen.found else None
    else:
        one = objects.the_one(action, node, seen.found)
        if isinstance(one, str):
            return _no(one, again_s)
        version = seen.api_version or action.api_version
        found, known = one, objects.target_of(replace(place, api_version=version), one)
    address = objects.address_of(known)
    assessment = objects.of_replacement(
        action, attempt.object, address.text, found, node=node, uid=known.uid
    )
    if assessment != objects.GOES or found is None:
        return Call(target=known, assessment=assessment, again_s=again_s)
    named = action.node_annotation
    if named and case.node.annotations.get(named) != known.name:
        return _no(f"the Node's annotation {named} does not name {address.text}", again_s)
    seen_as = {"uid": objects.uid_of(found), "resourceVersion": objects.version_of(found)}
    if not action.annotation:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": seen_as}
        return Call(target=known, write=_write(case, attempt, Verb.DELETE, address, body))
    notes = {action.annotation: "gpuward", names.ANNOTATION_REPAIR: note_of(attempt)}
    body = {"metadata": {**seen_as, "annotations": notes}}
    return Call(target=known, write=_write(case, attempt, Verb.PATCH, address, body))


def _creating(
    case: Case,
    attempt: RepairAttempt,
    action: NewObject,
    address: ObjectAddress,
    target: RepairTarget,
) -> Call:
    body: dict[str, Any] = adapter.filled(action.object, facts_of(case, attempt))
    if action.pod:
        own = case.seen.own_namespace
        query = ObjectAddress(
            api_version="v1", resource="podtemplates", namespace=own, name=action.pod
        )
        seen = read_lately(case, query, FRESH_S)
        if seen is None:
            return Call(needs=query, target=target)
        part = objects.at(seen.found[0], "template") if seen.found else None
        if seen.state is not ReadState.FOUND or not isinstance(part, dict):
            why = seen.why or f"{query.text} has no template"
            return Call(target=target, assessment=AskAssessment(cannot=why))
        body = objects.merged({"spec": {"template": part}}, body)
    # Last before the request: no pod is moved for a step that cannot be requested.
    if (first := _moving(case, attempt, action)) is not None:
        return replace(first, target=target)
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUQuarantine",
        "name": case.session.name,
        "uid": case.session.metadata.uid,
    }
    meta: dict[str, Any] = {
        "name": address.name,
        "labels": _MANAGED,
        "annotations": {names.ANNOTATION_REPAIR: note_of(attempt)},
        # Requests are deleted with the session.
        "ownerReferences": [owner],
    }
    if address.namespace:
        meta["namespace"] = address.namespace
    manifest = objects.merged(body, {"metadata": meta})
    return Call(target=target, write=_write(case, attempt, Verb.CREATE, address, manifest))


def _moving(case: Case, attempt: RepairAttempt, action: NewObject) -> Call | None:
    """Return the next write that moves pods off the GPUs, or which pods it waits for; None if
    nothing is left to move.
    """
    if not action.clears:
        return None
    keys = operands.to_pause(case.node.labels, action.clears)
    early = tuple(key for key in keys if key not in operands.LAST)
    node, session = case.node, case.session
    write = repair_writes.clearing(node, session, early, attempt.step, attempt.object)
    if write is not None:
        return Call(write=write, clears=repair_writes.priors(early))
    late = tuple(key for key in keys if key in operands.LAST)
    write = repair_writes.clearing_last(node, session, late, attempt.step)
    if write is None:
        return None
    if leaving := drain_plan.leaving_claimants(case.seen.plan, node.labels):
        return Call(leaving=f"{messages.name_list(leaving, 3)} to terminate")
    recorded = (*attempt.cleared, *repair_writes.priors(late))
    return Call(write=write, clears=tuple(dict.fromkeys(recorded)))


def _write(
    case: Case, attempt: RepairAttempt, verb: Verb, address: ObjectAddress, body: dict[str, Any]
) -> WriteRepairObject:
    return WriteRepairObject(
        node=case.node.name,
        node_uid=case.node.uid,
        session=case.session.name,
        step=attempt.step,
        verb=verb,
        address=address,
        body=body,
        asks=True,
    )
