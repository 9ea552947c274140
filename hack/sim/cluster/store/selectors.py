"""Label and field selectors, as query strings and as objects.

Called by lists, watches and the eviction logic.  A selector that cannot be read is a 400; it must
never match everything by accident.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.validation.names import label_value_problem, qualified_name_problem

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!\s*(?P<no>[^\s,=!()<>]+))
      | (?P<key>[^\s,=!()<>]+)\s*(?:
            (?P<set>(?:not)?in)\s*\((?P<values>[^()]*)\)
          | (?P<op>==|=|!=|>|<)\s*(?P<value>[^\s,=!()<>]*)
          | )
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_SELECTOR_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label key."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels satisfies it."""
        value = labels.get(self.key)
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        if self.operator == "notin":
            return value is None or value not in self.values
        if value is None:
            return False
        if self.operator == "in":
            return value in self.values
        (bound,) = self.values
        try:
            return int(value) > int(bound) if self.operator == ">" else int(value) < int(bound)
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements hold; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether an object with these labels is selected."""
        present = labels or {}
        return all(requirement.matches(present) for requirement in self.requirements)


def parse_label_selector(text: str | None) -> LabelSelector:
    """Read the `labelSelector` of a query."""
    if not text or not text.strip():
        return LabelSelector()
    requirements = []
    position = 0
    while position < len(text):
        found = _REQUIREMENT.match(text, position)
        if found is None:
            raise ApiError(
                400,
                "BadRequest",
                f"unable to parse requirement: found '{text[position:].strip()}', "
                "expected: a valid label selector",
            )
        requirement = _requirement(found)
        if why := _problem(requirement):
            raise ApiError(400, "BadRequest", f"unable to parse requirement: {why}")
        requirements.append(requirement)
        position = found.end()
    return LabelSelector(tuple(requirements))


def _requirement(found: re.Match[str]) -> Requirement:
    if found["absent"]:
        return Requirement(found["no"], "!", frozenset())
    key = found["key"]
    if found["set"]:
        listed = found["values"].split(",") if found["values"].strip() else []
        values = frozenset(value.strip() for value in listed)
        return Requirement(key, found["set"], values)
    operator = found["op"]
    if operator is None:
        return Requirement(key, "exists", frozenset())
    name = {"=": "in", "==": "in", "!=": "notin"}.get(operator, operator)
    return Requirement(key, name, frozenset([found["value"]]))


def _problem(requirement: Requirement) -> str:
    """What the server refuses about one requirement; "" where nothing."""
    if why := qualified_name_problem(requirement.key):
        return f'key: Invalid value: "{requirement.key}": {why}'
    if requirement.operator in {"in", "notin"} and not requirement.values:
        return (
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
        )
    for value in sorted(requirement.values):
        if why := label_value_problem(value):
            return f'values[0][{requirement.key}]: Invalid value: "{value}": {why}'
    return ""


def selector_of_object(selector: Mapping[str, Any] | None) -> LabelSelector | None:
    """Read a `LabelSelector` object; None (selects nothing) for none, ValueError for a bad one."""
    if selector is None:
        return None
    requirements = [
        Requirement(key, "in", frozenset([value]))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or []:
        operator = _SELECTOR_OPERATORS.get(expression.get("operator", ""))
        values = frozenset(expression.get("values") or [])
        if operator is None or (operator in {"in", "notin"}) != bool(values):
            raise ValueError(f"{expression!r} is not a valid label selector requirement")
        requirements.append(Requirement(expression.get("key", ""), operator, values))
    return LabelSelector(tuple(requirements))


FieldReader = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One comparison of a selectable field with a text."""

    field: str
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms hold; `readers` say how each field is read from an object."""

    terms: tuple[FieldTerm, ...] = ()
    readers: Mapping[str, FieldReader] | None = None

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Whether the object is selected."""
        readers = self.readers or {}
        return all((readers[term.field](obj) == term.value) is term.equal for term in self.terms)

    def wanted(self, field: str) -> str | None:
        """The value that `field` must have, when one is demanded."""
        return next((t.value for t in self.terms if t.equal and t.field == field), None)


def parse_field_selector(text: str | None, readers: Mapping[str, FieldReader]) -> FieldSelector:
    """Read the `fieldSelector` of a query; an unknown field is a 400."""
    if not text:
        return FieldSelector()
    terms = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        found = re.fullmatch(r"(.*?)(!=|==|=)(.*)", part, re.DOTALL)
        if found is None:
            raise ApiError(
                400, "BadRequest", f"invalid selector: '{text}'; can't understand '{part}'"
            )
        field, operator, value = found.groups()
        if field not in readers:
            raise ApiError(400, "BadRequest", f"field label not supported: {field}")
        terms.append(FieldTerm(field, operator != "!=", re.sub(r"\\(.)", r"\1", value)))
    return FieldSelector(tuple(terms), readers)
