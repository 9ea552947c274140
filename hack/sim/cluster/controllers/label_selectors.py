"""Structured label selectors (matchLabels, matchExpressions) and node selector terms.

Workload controllers, the disruption controller and placement use them. They decide only from
the labels they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Obj = dict[str, Any]


def matches(selector: Obj | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects these labels: None selects nothing, `{}` everything."""
    if selector is None:
        return False
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(
        requirement_holds(requirement, labels)
        for requirement in selector.get("matchExpressions") or ()
    )


def requirement_holds(requirement: Obj, labels: Mapping[str, str]) -> bool:
    """One matchExpressions entry, of a label selector or of a node selector (Gt and Lt too)."""
    value = labels.get(requirement["key"])
    values: list[str] = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _is_integer(value) and int(str(value)) > int(values[0])
        case "Lt":
            return _is_integer(value) and int(str(value)) < int(values[0])
    return False


def _is_integer(value: str | None) -> bool:
    return value is not None and value.lstrip("-").isdigit()
