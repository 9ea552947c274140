"""Read a policy strictly: every problem with its path, what is wrong and the remedy, as values.

Called by the remediator at start and reload and by `policy check`. Takes the decoded YAML value,
not a file: reading files is the edge's work. Never guesses and never drops an unknown key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec

from rules.api.object_name import is_label_key
from rules.api.selectors import parse_selector
from rules.catalog.reason import is_reason_code
from rules.policy.bounds import BOUNDS
from rules.policy.durations import Seconds, parse_duration
from rules.policy.external import external_problems, spelled_out
from rules.policy.places import joined, named, path_of, without
from rules.policy.policy import Policy
from rules.policy.repair_checks import asked_on_nodes, repair_problems
from rules.policy.validation import validation_problems

_MAX_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProblem:
    """One thing wrong with a policy."""

    path: str
    """`drain.fatalTimout`; "" for the file as a whole."""
    message: str

    def sentence(self, source: str) -> str:
        """`policy.yaml: drain.fatalTimout is not a known key; did you mean fatalTimeout?`."""
        where = f"{self.path} " if self.path else ""
        return f"{source}: {where}{self.message}"


_Found = tuple[tuple[Any, ...], str]
"""The steps to what is wrong, and what is."""


def load_policy(document: object) -> Policy | tuple[PolicyProblem, ...]:
    """The policy, or everything that is wrong with it. An empty document is the default."""
    if document is None:
        return Policy()
    if not isinstance(document, dict):
        return (PolicyProblem(path="", message="is no mapping; start with apiVersion and kind"),)
    document = _spelled_out(document)
    problems: list[PolicyProblem] = []
    rest: Any = document
    for steps, message in _unknown_keys(document, Policy, ()):
        problems.append(PolicyProblem(path=joined([*map(_written, steps)]), message=message))
        rest = without(rest, steps)
    # What is wrong is taken out, so that everything else is looked at, too: whoever mends a policy
    # wants the whole list. What is reported is never a policy.
    while len(problems) < _MAX_PROBLEMS:
        try:
            policy = msgspec.convert(rest, Policy, dec_hook=_decode)
        except msgspec.ValidationError as error:
            place = named(path_of(str(error)), rest, _fails_at)
            problems.append(_of_error(str(error), place))
            smaller = without(rest, place)
            if smaller == rest:
                break
            rest = smaller
            continue
        told = ({one.path for one in problems} | {_above(one.path) for one in problems}) - {""}
        problems += [one for one in _nonsense(policy) if not {one.path, _above(one.path)} & told]
        return tuple(problems[:_MAX_PROBLEMS]) or policy
    return tuple(problems[:_MAX_PROBLEMS])


def _spelled_out(document: dict[Any, Any]) -> dict[Any, Any]:
    """YAML 1.1 reads an unquoted Off as false; whoever writes it means the word."""
    if "external" in document:
        document = {**document, "external": spelled_out(document["external"])}
    repair = document.get("repair")
    if isinstance(repair, dict) and repair.get("mode") is False:
        return {**document, "repair": {**repair, "mode": "Off"}}
    return document


def _decode(kind: type, value: object) -> object:
    if kind is Seconds:
        return parse_duration(value)
    raise NotImplementedError(f"{kind.__name__} in a policy")


def _unknown_keys(value: object, kind: object, steps: tuple[Any, ...]) -> Iterator[_Found]:
    """Walk the document beside the types: unknown keys at every depth, with the nearest name."""
    section = _section(kind)
    if section is None:
        yield from _inside(value, kind, steps)
        return
    fields = _fields(section)
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key in fields:
            yield from _unknown_keys(inner, fields[key], (*steps, key))
            continue
        near = difflib.get_close_matches(str(key), fields, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(fields))}"
        yield (*steps, key), f"is not a known key; {remedy}"


def _inside(value: object, kind: object, steps: tuple[Any, ...]) -> Iterator[_Found]:
    arguments = [a for a in get_args(kind) if a is not Ellipsis]
    if get_origin(kind) is tuple and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown_keys(item, arguments[0], (*steps, f"[{index}]"))
    elif get_origin(kind) is dict and isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                yield from _unknown_keys(item, arguments[1], (*steps, key))
            else:
                yield (*steps, key), "is no text, as YAML reads it; put the key in quotes"


def _written(key: object) -> str:
    """A key as YAML writes it."""
    if key is None:
        return "null"
    return str(key).lower() if isinstance(key, bool) else str(key)


@cache
def _fields(section: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The types of a section's keys."""
    return {f.encode_name: f.type for f in msgspec.structs.fields(section)}


def _section(kind: object) -> type[msgspec.Struct] | None:
    candidates = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None


def _above(path: str) -> str:
    return path.rpartition(".")[0]


def _of_error(text: str, steps: Sequence[str]) -> PolicyProblem:
    """msgspec says `what - at `$.path` `; the steps name what it hides."""
    what, _, at = text.partition(" - at `")
    words = _choices(at.removeprefix("key` in `").rstrip("`").removeprefix("$"))
    remedy = f"; write one of {', '.join(words)}" if words else ""
    said = f"is wrong: {what[:1].lower()}{what[1:]}{remedy}"
    return PolicyProblem(path=joined(steps), message=said)


def _fails_at(document: Any) -> str:
    """The path of its first error; "" of a policy."""
    try:
        msgspec.convert(document, Policy, dec_hook=_decode)
    except msgspec.ValidationError as error:
        return path_of(str(error))
    return ""


def _choices(path: str) -> tuple[str, ...]:
    """The words allowed at a msgspec path such as `.pods[0].strategy`; () where any text is."""
    kind: object = Policy
    for name in re.findall(r"[A-Za-z]+|\[[^\]]*\]", path):
        section = _section(kind)
        if name.startswith("["):
            kind = get_args(kind)[-2 if get_args(kind)[-1] is Ellipsis else -1]
        elif section is not None:
            fields = _fields(section)
            kind = fields.get(name)
    for candidate in (kind, *get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, StrEnum):
            return tuple(candidate)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _at(policy: Policy, path: str) -> float | None:
    """The number at a path of the policy; None where a section on the way is left out."""
    found: Any = policy
    for key in path.split("."):
        if found is None:
            return None
        fields = msgspec.structs.fields(found)
        found = getattr(found, next(one.name for one in fields if one.encode_name == key))
    number: float | None = found
    return number


def _nonsense(policy: Policy) -> list[PolicyProblem]:
    """What has the right type and still makes no sense."""
    problems = [
        PolicyProblem(path=path, message=bound.message)
        for path, bound in BOUNDS.items()
        if (value := _at(policy, path)) is not None and not bound.holds(value)
    ]
    checks = [
        ("budget.maxNew.window", policy.budget.max_new.window_s > 0, "must be longer than 0s"),
        ("budget.perReason.window", policy.budget.per_reason.window_s > 0,
         "must be longer than 0s"),
        ("drain.backoff.min", 0 < policy.drain.backoff.min_s <= policy.drain.backoff.max_s,
         "must be above 0s and not above drain.backoff.max"),
        ("repair.window", policy.repair.window_s > 0, "must be longer than 0s"),
        ("repair.steps", policy.repair.mode == "Off" or bool(policy.repair.steps),
         "names no step, so there is nothing to repair with; name one or set repair.mode: Off"),
    ]  # fmt: skip
    problems += [
        PolicyProblem(path=path, message=message) for path, good, message in checks if not good
    ]
    selectors = [("nodeSelector", policy.node_selector)]
    selectors += [(f"pods[{i}].selector", rule.selector) for i, rule in enumerate(policy.pods)]
    for path, text in selectors:
        try:
            parse_selector(text)
        except ValueError as error:
            problems.append(PolicyProblem(path=path, message=f"is wrong: {error}"))
    problems.extend(
        PolicyProblem(path=f"{path}[{index}]", message=f"is wrong: {key!r:.80} is no label key")
        for path, keys in (("budget.per", policy.budget.per), ("repair.per", policy.repair.per))
        for index, key in enumerate(keys)
        if not is_label_key(key)
    )
    problems.extend(
        PolicyProblem(path=path, message=message)
        for path, message in repair_problems(policy.repair)
    )
    problems.extend(
        PolicyProblem(path=path, message=message)
        for path, message in (
            *external_problems(policy.external, asked_on_nodes(policy.repair)),
            *validation_problems(policy.validate),
        )
    )
    problems.extend(
        PolicyProblem(path=f"reasons.{reason[:80]}", message="is wrong: a reason is CamelCase")
        for reason in policy.reasons
        if not is_reason_code(reason)
    )
    return problems
