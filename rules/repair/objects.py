"""Objects that a repair is asked through: which one it is, and whether it may be asked.

What the edge read comes in as it is, refusals included; what is not there, or is something else
than expected, does not match, and no shape of an object is an error. Whether a step happened is
never decided here: `rules.repair.ladder` does that, by the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rules.api import names, object_name
from rules.api.nodes import NodeView
from rules.api.quarantine import RepairTarget
from rules.api.repair_writes import ObjectAddress
from rules.repair import adapter
from rules.repair.adapter import ConditionIs, NewObject, NodeLabel, Replacement, RequestFacts
from rules.text.printable import printable

Json = Mapping[str, Any]
_SHOWN: Final = 80
_MESSAGE_SHOWN: Final = 200


class ReadState(StrEnum):
    """What became of reading an object."""

    FOUND = "Found"
    ABSENT = "Absent"
    """The API server itself says that there is none of that name."""
    NOT_SERVED = "NotServed"
    """Nobody serves the kind: its definition is not installed."""
    FORBIDDEN = "Forbidden"
    UNREAD = "Unread"
    """No answer, or one that says nothing about the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSeen:
    """An object or a list as it was read."""

    state: ReadState
    read_at: float
    """When the answer came."""
    found: tuple[Json, ...] = ()
    api_version: str = ""
    """The version that was asked, where the adapter leaves it to the cluster."""
    why: str = ""
    """What the API server said instead, a clause."""
    failing_since: float | None = None
    """Since when reading it says nothing, as far as this process knows."""


# ------------------------------------------------------------------ values in JSON of any shape


def at(json: Json, path: str) -> Any:
    """The value under a dotted path; None where there is none."""
    found: Any = json
    for name in path.split("."):
        found = _dict(found).get(name)
    return found


def annotation(json: Json, key: str) -> str:
    """An annotation of the object; "" where there is none."""
    found = _dict(at(json, "metadata.annotations")).get(key)
    return found if isinstance(found, str) else ""


def uid_of(json: Json) -> str:
    """The object's UID."""
    return _string(at(json, "metadata.uid"))


def version_of(json: Json) -> str:
    """The object's resourceVersion."""
    return _string(at(json, "metadata.resourceVersion"))


def is_deleting(json: Json) -> bool:
    """Whether it is on its way out."""
    return at(json, "metadata.deletionTimestamp") is not None


def holds(wanted: ConditionIs, json: Json) -> bool:
    """Whether the object shows the condition."""
    shown = _condition(json, wanted.type)
    because = wanted.reason in {"", _string(shown.get("reason"))}
    return because and _string(shown.get("status")) == wanted.status


def merged(onto: Json, patch: Json) -> dict[str, Any]:
    """Two merge patches as one; the second wins."""
    result = dict(onto)
    for key, value in patch.items():
        known = result.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        result[key] = merged(known or {}, value) if both else value
    return result


def _condition(json: Json, kind: str) -> Json:
    """The condition of this type; {} where there is none."""
    listed = at(json, "status.conditions")
    for one in listed if isinstance(listed, list) else ():
        if _dict(one).get("type") == kind:
            return _dict(one)
    return {}


def _string(value: object) -> str:
    return value[:253] if isinstance(value, str) else ""


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


# ------------------------------------------------------------------ which object it is


def address_of(target: RepairTarget) -> ObjectAddress:
    """Where the object on record is."""
    return ObjectAddress(
        api_version=target.api_version,
        resource=target.resource,
        namespace=target.namespace,
        name=target.name,
    )


def target_of(address: ObjectAddress, found: Json | None) -> RepairTarget:
    """What goes on record of an object: as it was found, or as it is going to be called."""
    name, namespace = at(found or {}, "metadata.name"), at(found or {}, "metadata.namespace")
    return RepairTarget(
        api_version=address.api_version,
        resource=address.resource,
        namespace=namespace if isinstance(namespace, str) else address.namespace,
        name=name if isinstance(name, str) else address.name,
        uid=uid_of(found or {})[:64],
    )


def new_address(
    action: NewObject, request: str, facts: RequestFacts, own_namespace: str
) -> ObjectAddress | str:
    """Where a new object is made, or a clause that says why it cannot be."""
    name = adapter.filled_text(action.meta.get("name", ""), facts.values) or request
    named = {adapter.OWN_NAMESPACE: own_namespace}
    namespace = adapter.filled_text(action.meta.get("namespace", ""), named)
    if not object_name.is_object_name(name) or (
        namespace and not object_name.is_object_name(namespace)
    ):
        return "its name is no name that an object can have"
    return ObjectAddress(
        api_version=action.api_version,
        resource=action.resource,
        namespace=namespace,
        name=name,
    )


def the_one(action: Replacement, node: str, found: tuple[Json, ...]) -> Json | str:
    """The one object of a list that names the node, or why there is not exactly one."""
    matching = [json for json in found if at(json, action.node_field) == node]
    if len(matching) != 1:
        count = f"{len(matching) or 'none'}"
        verb = "belong" if len(matching) > 1 else "belongs"
        return f"{count} of the {action.resource} {verb} to the node"
    name, namespace = at(matching[0], "metadata.name"), at(matching[0], "metadata.namespace")
    good = _is_name(name) and uid_of(matching[0])
    if not good or (namespace is not None and not _is_name(namespace)):
        return f"the one of the {action.resource} that belongs to the node has no usable name"
    return matching[0]


def _is_name(value: object) -> bool:
    return isinstance(value, str) and object_name.is_object_name(value)


# ------------------------------------------------------------------ whether it may be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAssessment:
    """What follows for the call: nothing of it set means that it may go."""

    asked: bool = False
    """It was asked for already, by this leader or an earlier one."""
    waits: str = ""
    """A clause: as long as this holds nobody is asked."""
    cannot: str = ""
    """A clause: it cannot be asked for; said, tried again, and failed in the end."""


GOES: Final = AskAssessment()


def is_ours(json: Json, request: str) -> bool:
    """Whether the object carries this very request."""
    return bool(request) and annotation(json, names.ANNOTATION_REPAIR).startswith(f"{request} ")


def of_label(action: NodeLabel, request: str, node: NodeView) -> AskAssessment:
    """Whether the label may be set: nobody else's is overwritten."""
    found = node.labels.get(action.label)
    noted = node.annotations.get(names.ANNOTATION_REPAIR, "").startswith(f"{request} ")
    if noted or found == action.value:
        # The same was asked for before; it is followed and not written again.
        return AskAssessment(asked=True)
    if found is not None:
        return AskAssessment(waits=f"the Node has {action.label} from somebody else")
    deleting = node.metadata.deletion_timestamp is not None
    return AskAssessment(waits="the Node is being deleted") if deleting else GOES


def of_new_object(request: str, words: str, json: Json | None) -> AskAssessment:
    """Whether the object may be made; None: it is certainly not there."""
    if json is None:
        return GOES
    if is_ours(json, request):
        return AskAssessment(asked=True)
    return AskAssessment(waits=f"{words} is there and was not made for this step")


def of_replacement(
    action: Replacement, request: str, words: str, json: Json | None, *, node: str, uid: str
) -> AskAssessment:
    """Whether the provider's object may be quarantined or deleted; `uid` is the one on record."""
    deletes = not action.annotation
    if json is not None and is_ours(json, request):
        return AskAssessment(asked=True)
    if deletes and uid and (json is None or uid_of(json) != uid or is_deleting(json)):
        # It went after the step was on record: nothing is left to ask for.
        return AskAssessment(asked=True)
    if json is None:
        return AskAssessment(cannot=f"there is no {words}")
    if uid and uid_of(json) != uid:
        return AskAssessment(cannot=f"{words} is another one than when the step was planned")
    if at(json, action.node_field) != node:
        return AskAssessment(cannot=f"{words} lacks field {action.node_field}={node}")
    for kind in ("annotation", "label"):
        keys = _dict(at(json, f"metadata.{kind}s"))
        if refused := next((key for key in action.refuse if key in keys), ""):
            return AskAssessment(waits=f"{words} has {kind} {refused}")
    if is_deleting(json):
        return AskAssessment(waits=f"{words} is being deleted")
    # The same was asked for before; it is followed and not written again.
    quarantined = action.annotation in _dict(at(json, "metadata.annotations"))
    return AskAssessment(asked=not deletes and quarantined)


def given_up(action: NewObject, words: str, json: Json) -> str:
    """Why the one that was asked gave up, a clause; "" while it has not."""
    wanted = action.failed
    if wanted is None or not holds(wanted, json):
        return ""
    shown = _condition(json, wanted.type)
    status = "" if wanted.status == "True" else f"={wanted.status}"
    status += f" ({wanted.reason[:_SHOWN]})" if wanted.reason else ""
    reason = "" if wanted.reason else _string(shown.get("reason"))[:_SHOWN]
    message = _string(shown.get("message"))[:_MESSAGE_SHOWN].strip().rstrip(".")
    said = ": ".join(part for part in (reason, message) if part)
    seen = f"{words} has condition {wanted.type}{status}"[:300]
    return seen + (f" ({printable(said)})" if said else "")


def is_over(action: NewObject, json: Json) -> bool:
    """Whether an object that says when it is through is through or given up: it does no more."""
    ends = (action.done, action.failed) if action.done is not None else ()
    return any(end is not None and holds(end, json) for end in ends)
