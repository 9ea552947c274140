"""Parse and match label selectors, in the text form of kubectl and the form of API objects.

Used for the policy's `nodeSelector` and pod rules, for PDBs and for pause scopes. An invalid
selector is a ValueError with its text, never a match.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rules.api import object_name
from rules.api.metadata import LabelSelector

Matcher = Callable[[Mapping[str, str]], bool]

_PART: Final = r"[^\s,=!()<>]+"
_SET: Final = re.compile(rf"({_PART})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL: Final = re.compile(rf"({_PART})\s*(==|=|!=)\s*({_PART}|)")
_EXISTS: Final = re.compile(rf"(!?)\s*({_PART})")
_WITH_VALUES: Final = frozenset({"In", "NotIn"})


@functools.lru_cache(maxsize=256)
def parse_selector(text: str) -> Matcher:
    """Return a matcher for `a=b,c!=d,e in (x,y),f,!g`; "" matches everything.

    Accepts only what the API server accepts, because watches use the same text.
    """
    parts = _split(text) if text.strip() else []
    matchers = tuple(_requirement(part.strip(), text) for part in parts)
    return lambda labels: all(matches(labels) for matches in matchers)


def as_object(text: str) -> dict[str, Any]:
    """Return the selector as an API object, with `matchLabels` where possible and
    `matchExpressions` otherwise. ValueError if it is invalid.
    """
    parse_selector(text)
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for part in _listed(text):
        key, operator, values = _parts(part)
        if operator == "In" and len(values) == 1 and key not in labels:
            labels[key] = values[0]
        else:
            listed = {"values": values} if operator in _WITH_VALUES else {}
            expressions.append({"key": key, "operator": operator, **listed})
    return {
        **({"matchLabels": labels} if labels else {}),
        **({"matchExpressions": expressions} if expressions else {}),
    }


def spelled(selector: LabelSelector) -> str:
    """Return the text form of an object-form selector."""
    return ",".join(
        [
            *(f"{key}={value}" for key, value in sorted(selector.match_labels.items())),
            *map(_spelled, selector.match_expressions),
        ]
    )


def _spelled(expression: Mapping[str, Any]) -> str:
    key, operator = expression.get("key", ""), expression.get("operator", "")
    values = expression.get("values") or ()
    if operator in _WITH_VALUES and isinstance(values, list | tuple):
        return f"{key} {operator.lower()} ({','.join(map(str, values))})"
    return f"!{key}" if operator == "DoesNotExist" else str(key)


@functools.lru_cache(maxsize=256)
def requirements(text: str) -> frozenset[tuple[str, str, frozenset[str]]]:
    """Return the requirements of a selector, the same for each way to write them."""
    parts = map(_parts, _listed(text))
    return frozenset((key, operator, frozenset(values)) for key, operator, values in parts)


def joined(text: str, more: str) -> str:
    """Return a selector with the requirements of both, each once."""
    new = [part for part in _listed(more) if not requirements(part) <= requirements(text)]
    return ",".join([*_listed(text), *new])


def _listed(text: str) -> list[str]:
    return list(filter(None, map(str.strip, _split(text))))


def _split(text: str) -> list[str]:
    return re.split(r",(?![^()]*\))", text)


def _requirement(part: str, text: str) -> Matcher:
    key, operator, values = _parts(part)
    try:
        return _operator(key, operator, values)
    except ValueError as error:
        where = f" in {text!r:.80}" if part.strip() != text.strip() else ""
        raise ValueError(
            f"{part!r:.80}{where} is no label selector ({error}); write key=value, key, "
            "!key or key in (a,b)"
        ) from error


def _parts(part: str) -> tuple[str, str, list[str]]:
    if found := _SET.fullmatch(part):
        values = [value.strip() for value in found[3].split(",")] if found[3].strip() else []
        return found[1], "In" if found[2] == "in" else "NotIn", values
    if found := _EQUAL.fullmatch(part):
        return found[1], "NotIn" if found[2] == "!=" else "In", [found[3]]
    if found := _EXISTS.fullmatch(part):
        return found[2], "DoesNotExist" if found[1] else "Exists", []
    return part, "Exists", []


def _operator(key: str, operator: str, values: Sequence[object]) -> Matcher:
    """Return the matcher of one requirement; ValueError if the API machinery refuses it."""
    if not object_name.is_label_key(key):
        raise ValueError(f"{key!r:.80} is no label key")
    wanted = {value for value in values if isinstance(value, str)}
    if len(wanted) != len(set(map(repr, values))) or not all(
        map(object_name.is_label_value, wanted)
    ):
        raise ValueError(f"{list(values)!r:.80} are not all label values")
    if (operator in _WITH_VALUES) != bool(wanted):
        raise ValueError(f"{operator!r:.40} of {key} with {len(wanted)} values")
    match operator:
        case "In":
            return lambda labels: key in labels and labels[key] in wanted
        case "NotIn":
            return lambda labels: labels.get(key) not in wanted
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case _:
            raise ValueError(f"{operator!r:.40} is no label selector operator")


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether an object-form selector matches: None matches nothing, an empty one all.

    ValueError if it is invalid (the Eviction API ignores such a PDB).
    """
    return selector is not None and matcher(selector)(labels)


def matcher(selector: LabelSelector) -> Matcher:
    """Return the matcher of an object-form selector; ValueError if any part is invalid."""
    matchers = [
        *(_operator(key, "In", [value]) for key, value in selector.match_labels.items()),
        *(_expression(expression) for expression in selector.match_expressions),
    ]
    return lambda labels: all(matches(labels) for matches in matchers)


def _expression(expression: Mapping[str, Any]) -> Matcher:
    values = expression.get("values")
    if values is not None and not isinstance(values, list | tuple):
        raise ValueError(f"values is {type(values).__name__}, not a list")
    return _operator(
        str(expression.get("key", "")), str(expression.get("operator", "")), values or ()
    )
