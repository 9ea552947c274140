"""Label and field selectors, as query strings and as objects, and the syntax of labels.

A selector that cannot be read is a 400; it must never match everything by accident.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hack.sim.cluster.errors import bad_request

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!\s*(?P<no>[^\s,=!()<>]+))
      | (?P<key>[^\s,=!()<>]+)\s*(?:
            (?P<set>(?:not)?in)\s*\((?P<values>[^()]*)\)
          | (?P<op>==|=|!=)\s*(?P<value>[^\s,=!()<>]*)
          | )
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn"}
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_DNS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_KEY = re.compile(
    rf"((?=.{{1,253}}/){_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def is_name(text: str) -> bool:
    """Whether an object can be named so (RFC 1123 subdomain)."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether it can be the key of a label, annotation or taint, or a finalizer."""
    return _KEY.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether it can be the value of a label or taint."""
    return _VALUE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels satisfies it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        try:
            number, bound = int(value or ""), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.operator == "Gt" else number < bound


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
    text = (text or "").strip()
    requirements = []
    position = 0
    while position < len(text):
        found = _REQUIREMENT.match(text, position)
        if found is None:
            raise bad_request(f"unable to parse requirement: found '{text[position:].strip()}'")
        requirement = _requirement(found)
        if not is_label_key(requirement.key) or not all(map(is_label_value, requirement.values)):
            raise bad_request(f"unable to parse requirement: Invalid value: '{found[0].strip()}'")
        requirements.append(requirement)
        position = found.end()
    return LabelSelector(tuple(requirements))


def _requirement(found: re.Match[str]) -> Requirement:
    if found["absent"]:
        return Requirement(found["no"], "DoesNotExist")
    if found["set"]:
        values = tuple(value.strip() for value in found["values"].split(","))
        if values == ("",):
            raise bad_request("unable to parse requirement: values set can't be empty")
        return Requirement(found["key"], _OPERATORS[found["set"]], values)
    if found["op"] is None:
        return Requirement(found["key"], "Exists")
    return Requirement(found["key"], _OPERATORS[found["op"]], (found["value"],))


def requirement_of(expression: Mapping[str, Any]) -> Requirement:
    """One entry of matchExpressions, of a label selector or of a node selector."""
    return Requirement(
        expression["key"], expression["operator"], tuple(expression.get("values") or ())
    )


def selector_of_object(selector: Mapping[str, Any] | None) -> LabelSelector | None:
    """Read a `LabelSelector` object: None selects nothing, an empty one everything."""
    if selector is None:
        return None
    wanted = (selector.get("matchLabels") or {}).items()
    return LabelSelector(
        (
            *(Requirement(key, "In", (value,)) for key, value in wanted),
            *map(requirement_of, selector.get("matchExpressions") or ()),
        )
    )


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a `LabelSelector` object selects these labels."""
    read = selector_of_object(selector)
    return read is not None and read.matches(labels)


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
    terms = []
    for part in re.split(r"(?<!\\),", text or ""):
        if not part:
            continue
        found = re.fullmatch(r"(.*?)(!=|==|=)(.*)", part, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = found.groups()
        if field not in readers:
            raise bad_request(f"field label not supported: {field}")
        terms.append(FieldTerm(field, operator != "!=", re.sub(r"\\(.)", r"\1", value)))
    return FieldSelector(tuple(terms), readers)
