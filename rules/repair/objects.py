"""Objects that repairs are requested through: find the object and decide whether to request.

Input is the result of a read, refusals included. Missing or unexpected fields do not match, and no
shape of an object is an error. `rules.repair.ladder` decides whether a step happened, by the node.
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
    """The outcome of reading an object."""

    FOUND = "Found"
    ABSENT = "Absent"
    """The API server itself answered that it does not exist."""
    NOT_SERVED = "NotServed"
    """The kind is not served: its CRD is not installed."""
    FORBIDDEN = "Forbidden"
    UNREAD = "Unread"
    """No answer, or one without information about the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSeen:
    """An object or a list as it was read."""

    state: ReadState
    read_at: float
    """Time of the answer."""
    found: tuple[Json, ...] = ()
    api_version: str = ""
    """The version that was read, if the adapter leaves it to the cluster."""
    why: str = ""
    """Why it was not found, as a clause."""
    failing_since: float | None = None
    """Since when this process cannot read it."""


# ------------------------------------------------------------------ values in JSON of any shape


def at(json: Json, path: str) -> Any:
    """Return the value under a dotted path; None without one."""
    found: Any = json
    for name in path.split("."):
        found = _dict(found).get(name)
    return found


def annotation(json: Json, key: str) -> str:
    """Return an annotation of the object; "" without one."""
    found = _dict(at(json, "metadata.annotations")).get(key)
    return found if isinstance(found, str) else ""


def uid_of(json: Json) -> str:
    """The object's UID."""
    return _string(at(json, "metadata.uid"))


def version_of(json: Json) -> str:
    """The object's resourceVersion."""
    return _string(at(json, "metadata.resourceVersion"))


def is_deleting(json: Json) -> bool:
    """Return whether the object is being deleted."""
    return at(json, "metadata.deletionTimestamp") is not None


def holds(wanted: ConditionIs, json: Json) -> bool:
    """Return whether the object has the condition."""
    shown = _condition(json, wanted.type)
    because = wanted.reason in {"", _string(shown.get("reason"))}
    return because and _string(shown.get("status")) == wanted.status


def merged(onto: Json, patch: Json) -> dict[str, Any]:
    """Return two merge patches as one; the second wins."""
    result = dict(onto)
    for key, value in patch.items():
        known = result.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        result[key] = merged(known or {}, value) if both else value
    return result


def _condition(json: Json, kind: str) -> Json:
    """Return the condition of this type; {} without one."""
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
    """Return the address of the recorded object."""
    return ObjectAddress(
        api_version=target.api_version,
        resource=target.resource,
        namespace=target.namespace,
        name=target.name,
    )


def target_of(address: ObjectAddress, found: Json | None) -> RepairTarget:
    """Return the target to record: the object as found, or as it will be created."""
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
    """Return the address of a new object, or a clause with why it cannot be created."""
    name = adapter.filled_text(action.meta.get("name", ""), facts.values) or request
    named = {adapter.OWN_NAMESPACE: own_namespace}
    namespace = adapter.filled_text(action.meta.get("namespace", ""), named)
    if not object_name.is_object_name(name) or (
        namespace and not object_name.is_object_name(namespace)
    ):
        return "its name is not a valid object name"
    return ObjectAddress(
        api_version=action.api_version,
        resource=action.resource,
        namespace=namespace,
        name=name,
    )


def the_one(action: Replacement, node: str, found: tuple[Json, ...]) -> Json | str:
    """Return the only object of a list that names the node, or why there is not exactly one."""
    matching = [json for json in found if at(json, action.node_field) == node]
    if len(matching) != 1:
        count = f"{len(matching) or 'none'}"
        verb = "belong" if len(matching) > 1 else "belongs"
        return f"{count} of the {action.resource} {verb} to the node"
    name, namespace = at(matching[0], "metadata.name"), at(matching[0], "metadata.namespace")
    good = _is_name(name) and uid_of(matching[0])
    if not good or (namespace is not None and not _is_name(namespace)):
        return f"the object of the node among the {action.resource} has no valid name"
    return matching[0]


def _is_name(value: object) -> bool:
    return isinstance(value, str) and object_name.is_object_name(value)


# ------------------------------------------------------------------ whether it may be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAssessment:
    """Whether a request may be sent: yes, if no field is set."""

    asked: bool = False
    """It was sent already, by this leader or an earlier one."""
    waits: str = ""
    """Why the request waits, as a clause."""
    cannot: str = ""
    """Why the request is impossible, as a clause; it is retried until the step fails."""


GOES: Final = AskAssessment()


def is_ours(json: Json, request: str) -> bool:
    """Return whether the object carries this request."""
    return bool(request) and annotation(json, names.ANNOTATION_REPAIR).startswith(f"{request} ")


def of_label(action: NodeLabel, request: str, node: NodeView) -> AskAssessment:
    """Return whether the label may be set; values of other programs are not overwritten."""
    found = node.labels.get(action.label)
    noted = node.annotations.get(names.ANNOTATION_REPAIR, "").startswith(f"{request} ")
    if noted or found == action.value:
        # An equal request exists: it is followed and not written again.
        return AskAssessment(asked=True)
    if found is not None:
        return AskAssessment(waits=f"the Node has {action.label} from another program")
    deleting = node.metadata.deletion_timestamp is not None
    return AskAssessment(waits="the Node is being deleted") if deleting else GOES


def of_new_object(request: str, label: str, json: Json | None) -> AskAssessment:
    """Return whether the object may be created; `json` None means that it does not exist."""
    if json is None:
        return GOES
    if is_ours(json, request):
        return AskAssessment(asked=True)
    return AskAssessment(waits=f"{label} exists and was not created for this step")


def of_replacement(
    action: Replacement, request: str, label: str, json: Json | None, *, node: str, uid: str
) -> AskAssessment:
    """Return whether the provider's object may be annotated or deleted; `uid` is recorded."""
    deletes = not action.annotation
    if json is not None and is_ours(json, request):
        return AskAssessment(asked=True)
    if deletes and uid and (json is None or uid_of(json) != uid or is_deleting(json)):
        # It was deleted after the step was recorded: nothing is left to request.
        return AskAssessment(asked=True)
    if json is None:
        return AskAssessment(cannot=f"there is no {label}")
    if uid and uid_of(json) != uid:
        return AskAssessment(cannot=f"{label} was replaced after the step was planned")
    if at(json, action.node_field) != node:
        return AskAssessment(cannot=f"{label} lacks field {action.node_field}={node}")
    for kind in ("annotation", "label"):
        keys = _dict(at(json, f"metadata.{kind}s"))
        if refused := next((key for key in action.refuse if key in keys), ""):
            return AskAssessment(waits=f"{label} has {kind} {refused}")
    if is_deleting(json):
        return AskAssessment(waits=f"{label} is being deleted")
    # An equal request exists: it is followed and not written again.
    annotated = action.annotation in _dict(at(json, "metadata.annotations"))
    return AskAssessment(asked=not deletes and annotated)


def given_up(action: NewObject, label: str, json: Json) -> str:
    """Return why the object reports failure, as a clause; "" if it does not."""
    wanted = action.failed
    if wanted is None or not holds(wanted, json):
        return ""
    shown = _condition(json, wanted.type)
    status = "" if wanted.status == "True" else f"={wanted.status}"
    status += f" ({wanted.reason[:_SHOWN]})" if wanted.reason else ""
    reason = "" if wanted.reason else _string(shown.get("reason"))[:_SHOWN]
    message = _string(shown.get("message"))[:_MESSAGE_SHOWN].strip().rstrip(".")
    detail = ": ".join(part for part in (reason, message) if part)
    shown_condition = f"{label} has condition {wanted.type}{status}"[:300]
    return shown_condition + (f" ({printable(detail)})" if detail else "")


def is_over(action: NewObject, json: Json) -> bool:
    """Return whether an object that reports its end is done or has failed."""
    ends = (action.done, action.failed) if action.done is not None else ()
    return any(end is not None and holds(end, json) for end in ends)
