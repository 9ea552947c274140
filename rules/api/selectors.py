"""Label selectors: the text form of kubectl and the object form of API objects.

Used for the policy's ``nodeSelector`` and pod rules, for PDB selectors and pause scopes. A
selector that cannot be read is a ValueError with the text, never a match.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rules.api.metadata import LabelSelector

Matcher = Callable[[Mapping[str, str]], bool]

_KEY: Final = r"[A-Za-z0-9](?:[A-Za-z0-9./_-]{0,315}[A-Za-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9._-]{0,63}"
_SET: Final = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EQUAL: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_EXISTS: Final = re.compile(rf"(!?)\s*({_KEY})")


@functools.lru_cache(maxsize=256)
def parse_selector(text: str) -> Matcher:
    """``a=b,c!=d,e in (x,y),f,!g`` as a function of labels; "" matches everything."""
    matchers = tuple(_requirement(part.strip(), text) for part in _split(text) if part.strip())
    return lambda labels: all(matches(labels) for matches in matchers)


def _split(text: str) -> list[str]:
    return re.split(r",(?![^()]*\))", text)


def _requirement(part: str, text: str) -> Matcher:
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found[3].split(","))
        return _operator(found[1], "In" if found[2] == "in" else "NotIn", values)
    if found := _EQUAL.fullmatch(part):
        return _operator(found[1], "NotIn" if found[2] == "!=" else "In", frozenset({found[3]}))
    if found := _EXISTS.fullmatch(part):
        return _operator(found[2], "DoesNotExist" if found[1] else "Exists", frozenset())
    raise ValueError(
        f"{part!r:.80} in {text!r:.80} is no label selector; write key=value, key, !key or "
        "key in (a,b)"
    )


def _operator(key: str, operator: str, values: frozenset[str]) -> Matcher:
    match operator:
        case "In":
            return lambda labels: key in labels and labels[key] in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case _:
            raise ValueError(f"{operator!r:.40} is no label selector operator")


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether an object-form selector matches: None matches nothing, an empty one everything.

    ValueError where an expression is malformed (the eviction API ignores such a PDB).
    """
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_expression(expression)(labels) for expression in selector.match_expressions)


def _expression(expression: Mapping[str, Any]) -> Matcher:
    values = expression.get("values") or ()
    return _operator(
        str(expression.get("key", "")),
        str(expression.get("operator", "")),
        frozenset(str(value) for value in values),
    )
