"""What an object of others shows: looked up in JSON of any shape, never trusted to have one.

Called by `rules.repair.judging`. What is not there, or is something else than expected, does not
match. Pure; raises nothing for anything in an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rules.api.nodes import NodeView
from rules.repair.adapter import ObjectMatch
from rules.text.printable import printable

Json = Mapping[str, Any]
_SHOWN: Final = 80
_SAID: Final = 200


def node_json(node: NodeView) -> dict[str, Any]:
    """The Node as matches look at it."""
    meta = node.metadata
    return {
        "metadata": {
            "name": meta.name,
            "uid": meta.uid,
            "labels": meta.labels,
            "annotations": meta.annotations,
            "deletionTimestamp": meta.deletion_timestamp,
        },
        "spec": {
            "unschedulable": node.spec.unschedulable,
            "providerID": node.spec.provider_id,
        },
        "status": {
            "conditions": [
                {"type": c.type, "status": c.status, "reason": c.reason}
                for c in node.status.conditions
            ]
        },
    }


def first_holding(matches: Iterable[ObjectMatch], target: Json, node: Json) -> ObjectMatch | None:
    """The first that is so."""
    return next((m for m in matches if holds(m, node if m.on == "Node" else target)), None)


def holds(match: ObjectMatch, json: Json) -> bool:
    """Whether `json` shows it."""
    return _shows(match, json) is not match.negated


def clause(match: ObjectMatch, words: str) -> str:
    """What was seen, for a sentence about `words`."""
    name = match.annotation or match.label or match.condition or match.field
    kind = next(k for k in ("annotation", "label", "condition", "field") if getattr(match, k))
    value = "" if match.value is None else f"={_text(match.value)[:_SHOWN]}"
    value += f" ({match.reason[:_SHOWN]})" if match.reason else ""
    verb = "lacks" if match.negated else "has"
    return f"{words} {verb} {kind} {name}{value}"[:300]


def said_with(match: ObjectMatch, json: Json) -> str:
    """The reason and the words that stand with a condition, to go on with its clause."""
    shown = _condition(json, match.condition) if match.condition and not match.negated else {}
    reason = "" if match.reason else _string(shown.get("reason"))[:_SHOWN]
    message = _string(shown.get("message"))[:_SAID].strip().rstrip(".")
    said = ": ".join(part for part in (reason, message) if part)
    return f" ({printable(said)})" if said else ""


def _shows(match: ObjectMatch, json: Json) -> bool:
    if match.condition:
        wanted = "True" if match.value is None else _text(match.value)
        shown = _condition(json, match.condition)
        because = match.reason in {"", _string(shown.get("reason"))}
        return because and _string(shown.get("status")) == wanted
    if match.field:
        found = at(json, match.field)
    else:
        kind = "annotations" if match.annotation else "labels"
        found = _dict(_dict(json.get("metadata")).get(kind)).get(match.annotation or match.label)
    if match.value is None:
        return found is not None
    return found is not None and _text(found) == _text(match.value)


def at(json: Json, path: str) -> Any:
    """The value under a dotted path; None where there is none."""
    found: Any = json
    for name in path.split("."):
        found = _dict(found).get(name)
    return found


def annotation(json: Json, key: str) -> str:
    """An annotation of the object; "" where there is none."""
    found = _dict(_dict(json.get("metadata")).get("annotations")).get(key)
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


def _condition(json: Json, kind: str) -> Mapping[str, Any]:
    """The condition of this type; {} where there is none."""
    listed = at(json, "status.conditions")
    for one in listed if isinstance(listed, list) else ():
        if _dict(one).get("type") == kind:
            return _dict(one)
    return {}


def _text(value: object) -> str:
    """As YAML and JSON write it: true, 5, words; "" for what has parts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def _string(value: object) -> str:
    return value[:253] if isinstance(value, str) else ""


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
