"""How a step is asked for: what to read, whether to ask, the write that asks.

The adapter's data made into writes, for one decision of `beginning`, `planned` or `phase`.
Whatever the decision rests on is read anew just before; what is not known yet is asked of the
edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from rules.api.names import ANNOTATION_REPAIR, API_VERSION
from rules.api.quarantine import RepairAttempt, RepairTarget
from rules.api.repair.writes import (
    ObjectAddress,
    ObjectQuery,
    SetRepairCondition,
    Verb,
    WriteRepairObject,
)
from rules.repair.adapter import ObjectMatch, RepairAction
from rules.repair.judging import (
    AskVerdict,
    ObjectSeen,
    Sight,
    is_ours,
    judged,
    merged,
    note_of,
)
from rules.repair.matching import at, node_json, uid_of, version_of
from rules.repair.target import address_of, query_by, query_for, query_of, target_of, the_one
from rules.repair.template import RequestFacts, filled, filled_text
from rules.repair.witness import disagreement
from rules.session.case import Case
from rules.session.repair.clearing import clearing, priors
from rules.session.repair.requests import (
    action_of,
    asked_by_condition,
    asking_by_condition,
    facts_of,
    patch_of,
)
from rules.session.repair.wants import NOBODY_ACCUSED, must_name

FRESH_S: Final = 10.0
"""Nobody is asked through an object that was read longer ago than this. What changed since answers
409: every request is bound to the version that was judged. A server that takes seconds for each of
two reads must not be asked in turns for ever."""
AGAIN_S: Final = 5.0
"""How soon an object that says no is looked at again,"""
LIST_AGAIN_S: Final = 30.0
"""and how soon where it has to be found in a list of all."""
_GOES: Final = AskVerdict()
_MANAGED: Final = {"app.kubernetes.io/managed-by": "gpuward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is known of a call before it is made."""

    needs: ObjectQuery | None = None
    """Read this first."""
    target: RepairTarget | None = None
    """The object, to go on record; None for the Node and where it was not found."""
    verdict: AskVerdict = _GOES
    write: SetRepairCondition | WriteRepairObject | None = None
    """What asks; None where the verdict says no, or that it was asked already."""
    clears: tuple[str, ...] | None = None
    """`write` only moves others off the GPUs, and these are their labels with the values that come
    back; None where it asks."""
    again_s: float = AGAIN_S
    """When it is worth another look after a no."""


def call_for(case: Case, attempt: RepairAttempt) -> Call:
    """The call that asks for a step, as far as it is known."""
    action = worded_action(case, attempt)
    if action is None:
        return _no(_unknown(attempt))
    call = _call(case, attempt, action)
    if call.write is not None and not case.policy.repair.action(attempt.adapter, attempt.step):
        return replace(_no(_unknown(attempt)), target=call.target)
    nobody = must_name(attempt.step, action) and not facts_of(case, attempt).gpus
    if call.write is not None and nobody:
        return replace(_no(f"{attempt.step} {NOBODY_ACCUSED}"), target=call.target)
    return call


def _call(case: Case, attempt: RepairAttempt, action: RepairAction) -> Call:
    if action.condition:
        if asked_by_condition(case, attempt, action):
            return Call(verdict=AskVerdict(asked=True))
        node = node_json(case.node)
        verdict = judged(action, attempt.object, "the Node", node, node)
        if verdict != _GOES:
            return Call(verdict=verdict)
        return Call(write=asking_by_condition(case, attempt, action))
    if action.target is None:
        return _by_node(case, attempt, action)
    return _by_object(case, attempt, action)


def worded_action(case: Case, attempt: RepairAttempt) -> RepairAction | None:
    """The action with the names in its matches put in."""
    action = action_of(case.policy, attempt)
    if action is None:
        return None
    values, witness = facts_of(case, attempt).values, action.witness

    def worded(matches: tuple[ObjectMatch, ...]) -> tuple[ObjectMatch, ...]:
        return tuple(
            msgspec.structs.replace(match, value=filled_text(match.value, values))
            if isinstance(match.value, str)
            else match
            for match in matches
        )

    if witness is not None:
        witness = msgspec.structs.replace(witness, shows=worded(witness.shows))
    return msgspec.structs.replace(
        action,
        refuse=worded(action.refuse),
        failed=worded(action.failed),
        done=worded(action.done),
        withdraw=msgspec.structs.replace(action.withdraw, when=worded(action.withdraw.when)),
        witness=witness,
    )


def action_on_record(case: Case, attempt: RepairAttempt) -> dict[str, Any] | None:
    """What goes on record of the action, with all names put in: causes change while it stands."""
    action = worded_action(case, attempt)
    if action is None:
        return None
    patch = patch_of(case, attempt, action) if action.patch is not None else None
    record: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(action, patch=patch))
    return record


def _unknown(attempt: RepairAttempt) -> str:
    return f"the policy knows no adapter {attempt.adapter} for a {attempt.step}"


def _no(why: str, again_s: float = AGAIN_S) -> Call:
    return Call(verdict=AskVerdict(cannot=why), again_s=again_s)


def read_lately(case: Case, query: ObjectQuery, at_most_s: float) -> ObjectSeen | None:
    """The object or list as last read; None where it was not, or too long ago."""
    seen = case.seen.objects.get(query)
    return seen if seen is not None and abs(case.now - seen.read_at) <= at_most_s else None


def _by_node(case: Case, attempt: RepairAttempt, action: RepairAction) -> Call:
    node, patch = node_json(case.node), patch_of(case, attempt, action)
    verdict = judged(action, attempt.object, "the Node", node, node, patch=patch)
    if verdict != _GOES:
        return Call(verdict=verdict)
    address = ObjectAddress(api_version="v1", resource="nodes", name=case.node.name)
    version = case.node.metadata.resource_version
    body = _noted(attempt, patch, uid=case.node.uid, version=version)
    return Call(write=_write(case, attempt, Verb.PATCH, address, body))


def _by_object(case: Case, attempt: RepairAttempt, action: RepairAction) -> Call:
    facts, beside = facts_of(case, attempt), _template_of(case, attempt, action)
    if isinstance(beside, str):
        return _no(beside)
    query: ObjectQuery | str
    if attempt.target is not None:
        query = query_for(attempt.target)
    else:
        query = query_of(
            action,
            attempt.object,
            facts,
            case.node,
            own_namespace=case.seen.own_namespace,
            beside=beside.address.namespace if beside is not None else "",
        )
    if isinstance(query, str):
        return _no(query)
    again_s = AGAIN_S if query.address.name else LIST_AGAIN_S
    seen = read_lately(case, query, FRESH_S)
    if seen is None:
        return Call(needs=query)
    if seen.sight not in {Sight.FOUND, Sight.ABSENT}:
        return _no(seen.why or f"{query.address.words} cannot be read", again_s)
    found = _the_object(action, facts, query, seen)
    if isinstance(found, str):
        return _no(found, again_s)
    address = replace(query.address, api_version=seen.api_version or query.address.api_version)
    target = attempt.target
    if target is None and (found is not None or action.create is not None):
        target = target_of(address, found)
    at_hand = address_of(target) if target is not None else address
    patch = patch_of(case, attempt, action)
    verdict = judged(
        action,
        attempt.object,
        at_hand.words,
        found,
        node_json(case.node),
        uid=target.uid if target is not None else "",
        patch=patch,
    )
    # What stands there already without our name may have been asked of another node's machine.
    json = found or {}
    adopted = verdict.asked and action.patch is not None and not is_ours(json, attempt.object)
    if verdict == _GOES or adopted:
        # Without the target: what may be another node's goes on no record of this one.
        doubt = _doubted(case, action, facts, at_hand.words, json)
        if doubt is not None:
            return doubt
    if verdict != _GOES:
        return Call(target=target, verdict=verdict, again_s=again_s)
    if action.create is not None:
        return _creating(case, attempt, action, facts, at_hand, target, beside)
    uid, version = uid_of(json), version_of(json)
    if action.delete:
        body = _delete_options(uid, version)
        return Call(target=target, write=_write(case, attempt, Verb.DELETE, at_hand, body))
    body = _noted(attempt, patch, uid=uid, version=version)
    return Call(target=target, write=_write(case, attempt, Verb.PATCH, at_hand, body))


def _doubted(
    case: Case, action: RepairAction, facts: RequestFacts, words: str, json: Any
) -> Call | None:
    """Nobody is asked through `json` while its witness was not read, or says another thing; None
    where it says the same.
    """
    witness = action.witness
    if witness is None:
        return None
    rule = witness.target
    query = query_by(rule, facts, case.node, own_namespace=case.seen.own_namespace)
    if isinstance(query, str):
        return _no(query)
    seen = read_lately(case, query, FRESH_S)
    if seen is None:
        return Call(needs=query)
    if seen.sight is not Sight.FOUND:
        return _no(seen.why or f"{query.address.words} cannot be read", LIST_AGAIN_S)
    found = seen.found[0] if query.address.name else the_one(rule, facts, seen.found)
    if isinstance(found, str):
        return _no(f"nobody else says whose {words} is: {found}", LIST_AGAIN_S)
    theirs = address_of(target_of(query.address, found)).words
    node = node_json(case.node)
    why = disagreement(witness, theirs, found, words, json, node)
    return _no(f"nobody is asked through another machine: {why}", LIST_AGAIN_S) if why else None


def _the_object(
    action: RepairAction, facts: RequestFacts, query: ObjectQuery, seen: ObjectSeen
) -> Any:
    """The object that was read, None where it is certainly not there, or a clause."""
    if query.address.name or action.target is None:
        return seen.found[0] if seen.found else None
    return the_one(action.target, facts, seen.found)


def _template_of(
    case: Case, attempt: RepairAttempt, action: RepairAction
) -> ObjectQuery | str | None:
    """Where the template is that the new object copies; None where it copies none."""
    if action.target is None or not (action.copies or action.pod):
        return None
    if action.pod:
        own = case.seen.own_namespace
        return ObjectQuery(
            address=ObjectAddress(
                api_version="v1", resource="podtemplates", namespace=own, name=action.pod
            )
        )
    wanted = {str(step): each for step, each in case.policy.repair.steps.items()}
    namespace, _, name = (
        wanted[attempt.step].template.partition("/") if (attempt.step in wanted) else ("", "", "")
    )
    if not namespace or not name:
        return f"the policy names no template for {attempt.step} (repair.steps.{attempt.step})"
    return ObjectQuery(
        address=ObjectAddress(
            api_version=action.target.api_version,
            resource=action.copies,
            namespace=namespace,
            name=name,
        )
    )


def _creating(
    case: Case,
    attempt: RepairAttempt,
    action: RepairAction,
    facts: RequestFacts,
    address: ObjectAddress,
    target: RepairTarget | None,
    copied: ObjectQuery | None,
) -> Call:
    body: dict[str, Any] = filled(action.create or {}, facts)
    if copied is not None:
        seen = read_lately(case, copied, FRESH_S)
        if seen is None:
            return Call(needs=copied, target=target)
        path = "template" if action.pod else "spec.template.spec"
        part = at(seen.found[0], path) if seen.found else None
        if seen.sight is not Sight.FOUND or not isinstance(part, dict):
            why = seen.why or f"{copied.address.words} has no {path}"
            return Call(target=target, verdict=AskVerdict(cannot=why))
        body = merged({"spec": {"template": part} if action.pod else part}, body)
    if (first := clearing(case, attempt, action)) is not None:
        # Last of all that comes before the call: nobody is moved for a step that cannot be asked.
        return Call(target=target, write=first, clears=priors(case.node, action))
    kind = action.target.kind if action.target is not None else ""
    owner = {
        "apiVersion": API_VERSION,
        "kind": "GPUQuarantine",
        "name": case.session.name,
        "uid": case.session.metadata.uid,
    }
    meta: dict[str, Any] = {
        "name": address.name,
        "labels": _MANAGED,
        "annotations": {ANNOTATION_REPAIR: _note(attempt)},
        # With the session's object whatever is left of its requests goes.
        "ownerReferences": [owner],
    }
    if address.namespace:
        meta["namespace"] = address.namespace
    head = {"apiVersion": address.api_version, "kind": kind}
    whole = merged({**body, **head}, {"metadata": meta})
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


def _noted(
    attempt: RepairAttempt, patch: dict[str, Any], *, uid: str, version: str
) -> dict[str, Any]:
    """The patch with the request's name, for exactly the object that was judged."""
    meta = {
        "uid": uid,
        "resourceVersion": version,
        "annotations": {ANNOTATION_REPAIR: _note(attempt)},
    }
    return merged(patch, {"metadata": meta})


def _note(attempt: RepairAttempt) -> str:
    return note_of(attempt.object, attempt.step, attempt.adapter)


def _delete_options(uid: str, version: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid, "resourceVersion": version},
    }
