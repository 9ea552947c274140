"""How a step is asked for: what to read, whether to ask, the write that asks.

The adapter's data made into writes, for one decision. Whatever the decision rests on is read again
just before; what is not known yet is asked of the edge.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Final

from rules.api import messages, names, object_name, quarantine, repair_writes
from rules.api.nodes import NodeView
from rules.api.quarantine import RepairAttempt, RepairTarget
from rules.api.repair_writes import ObjectAddress, SetRepairCondition, Verb, WriteRepairObject
from rules.repair import adapter, objects
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
"""Part of the message of a condition that asks, by which it is known for ours."""
MAX_REQUEST: Final = 63
"""What a label value takes: a Job's name stands in a label of its pods."""


def request_name(session: str, step: Step, attempt: int) -> str:
    """What a request is called everywhere: a second leader finds the first one's by it."""
    suffix = f"-{step.lower()}-{attempt}"
    if len(session) + len(suffix) <= MAX_REQUEST:
        return f"{session}{suffix}"
    digest = hashlib.sha256(session.encode()).hexdigest()[:8]
    suffix = f"-{digest}{suffix}"
    return object_name.name_from(session, suffix, MAX_REQUEST - len(suffix))


def facts_of(case: Case, attempt: RepairAttempt) -> RequestFacts:
    """What the request may say: as it was when the step was planned, so that it stays the same."""
    accused = tuple(gpu.uuid for gpu in attempt.before.gpus if gpu.accused)
    causes = case.session.spec.causes
    return RequestFacts(
        node=case.seen.name,
        node_uid=attempt.before.node_uid,
        session=case.session.name,
        boot_id=attempt.before.boot_id,
        # Never the others where one is missing: a reset of all ends work that nobody accused.
        gpu_uuids=accused,
        reason=quarantine.most_severe_reason(causes),
        step=attempt.step,
    )


def note_of(attempt: RepairAttempt) -> str:
    """The annotation by which a request is known: its name first."""
    return f"{attempt.object} {attempt.step} {attempt.adapter}"


def carries(node: NodeView, attempt: RepairAttempt, kind: str) -> bool:
    """Whether the node's condition of this type is the attempt's request."""
    found = node.condition(kind)
    asks = found is not None and found.status == "True" and bool(attempt.object)
    return asks and found is not None and found.message.startswith(f"{attempt.object}: ")


FRESH_S: Final = 10.0
"""Nobody is asked through an object that was read longer ago than this. What changed since answers
409: every request is bound to the version that was judged. A server that takes seconds for each of
two reads must not be asked in turns for ever."""
AGAIN_S: Final = 5.0
"""How soon an object that says no is checked again,"""
LIST_AGAIN_S: Final = 30.0
"""and how soon where it has to be found in a list of all."""
_MANAGED: Final = {"app.kubernetes.io/managed-by": "gpuward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is known of a call before it is made."""

    needs: ObjectAddress | None = None
    """Read this first."""
    target: RepairTarget | None = None
    """The object, to go on record; None for the Node and where it was not found."""
    verdict: AskAssessment = objects.GOES
    write: SetRepairCondition | WriteRepairObject | None = None
    """What asks; None where the health status says no, or that it was asked already."""
    clears: tuple[str, ...] | None = None
    """`write` only moves others off the GPUs, and these are their labels with the values that come
    back; None where it asks."""
    again_s: float = AGAIN_S
    """When it is worth another check after a no."""


def call_for(case: Case, attempt: RepairAttempt) -> Call:
    """The call that asks for a step, as far as it is known."""
    action = adapter.recorded(attempt.action)
    if action is None:
        return _no(_unknown(attempt))
    call = _call(case, attempt, action)
    if call.write is not None and not case.policy.repair.action(attempt.adapter, attempt.step):
        return replace(_no(_unknown(attempt)), target=call.target)
    nobody = ladder.must_name(attempt.step, action) and not facts_of(case, attempt).gpus
    if call.write is not None and nobody:
        return replace(_no(f"{attempt.step} {ladder.NO_ACCUSED_GPU}"), target=call.target)
    return call


def _call(case: Case, attempt: RepairAttempt, action: RepairAction) -> Call:
    match action:
        case NodeCondition():
            if carries(case.node, attempt, action.condition):
                return Call(verdict=AskAssessment(asked=True))
            if case.node.metadata.deletion_timestamp is not None:
                return Call(verdict=AskAssessment(waits="the Node is being deleted"))
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
    return f"the policy knows no adapter {attempt.adapter} for a {attempt.step}"


def _no(why: str, again_s: float = AGAIN_S) -> Call:
    return Call(verdict=AskAssessment(cannot=why), again_s=again_s)


def read_lately(case: Case, query: ObjectAddress, at_most_s: float) -> ObjectSeen | None:
    """The object or list as last read; None where it was not, or too long ago."""
    seen = case.seen.objects.get(query)
    return seen if seen is not None and abs(case.now - seen.read_at) <= at_most_s else None


def _by_label(case: Case, attempt: RepairAttempt, action: NodeLabel) -> Call:
    node = case.node
    verdict = objects.of_label(action, attempt.object, node)
    if verdict != objects.GOES:
        return Call(verdict=verdict)
    # With the label: it comes off even where no session is left.
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
        return _no(seen.why or f"{address.words} cannot be read")
    found = seen.found[0] if seen.found else None
    target = attempt.target or objects.target_of(address, found)
    verdict = objects.of_new_object(attempt.object, address.words, found)
    if verdict != objects.GOES:
        return Call(target=target, verdict=verdict)
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
        return _no(seen.why or f"{query.words} cannot be read", again_s)
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
    verdict = objects.of_replacement(
        action, attempt.object, address.words, found, node=node, uid=known.uid
    )
    if verdict != objects.GOES or found is None:
        return Call(target=known, verdict=verdict, again_s=again_s)
    named = action.node_annotation
    if named and case.node.annotations.get(named) != known.name:
        return _no(f"the Node's annotation {named} does not name {address.words}", again_s)
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
            why = seen.why or f"{query.words} has no template"
            return Call(target=target, verdict=AskAssessment(cannot=why))
        body = objects.merged({"spec": {"template": part}}, body)
    # Last of all that comes before the call: nobody is moved for a step that cannot be asked.
    first = repair_writes.clearing(
        case.node, case.session, action.clears, attempt.step, attempt.object
    )
    if first is not None:
        return Call(
            target=target, write=first, clears=repair_writes.priors(case.node, action.clears)
        )
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
        # With the session's object whatever is left of its requests goes.
        "ownerReferences": [owner],
    }
    if address.namespace:
        meta["namespace"] = address.namespace
    whole = objects.merged(body, {"metadata": meta})
    return Call(target=target, write=_write(case, attempt, Verb.CREATE, address, whole))


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
