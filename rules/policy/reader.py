"""Read a policy strictly: every problem with its path, what is wrong and the remedy, as values.

Called by the remediator at start and reload and by `policy check`. Takes the decoded YAML value,
not a file: reading files is the edge's work. Never guesses and never drops an unknown key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rules.api.object_name import is_label_key
from rules.api.selectors import parse_selector
from rules.catalog.reason import is_reason_code
from rules.policy.bounds import BOUNDS
from rules.policy.external import external_problems, spelled_out
from rules.policy.follow_ups import root_causes
from rules.policy.policy import Policy
from rules.policy.repair_checks import asked_on_nodes, repair_problems
from rules.policy.typed import Reading, decoded
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


def load_policy(document: object) -> Policy | tuple[PolicyProblem, ...]:
    """The policy, or everything that is wrong with it. An empty document is the default."""
    if document is None:
        return Policy()
    if not isinstance(document, dict):
        return (PolicyProblem(path="", message="is no mapping; start with apiVersion and kind"),)
    read = Reading(_spelled_out(document), Policy, _MAX_PROBLEMS)
    # What has a wrong type is left out, so that everything else is looked at, too: whoever mends a
    # policy wants the whole list. What is reported is never a policy.
    policy: Policy = decoded(read.rest, Policy)
    nonsense = ((read.as_written(path), message) for path, message in _nonsense(policy))
    found = [*read.told, *root_causes(nonsense, policy, read.wrong)]
    problems = [PolicyProblem(path=path, message=what) for path, what in found[:_MAX_PROBLEMS]]
    more = read.more + len(found) - len(problems)
    if more:
        message = f"has {more} more problems; mend these and check it again"
        problems.append(PolicyProblem(path="", message=message))
    return tuple(problems) or policy


def _spelled_out(document: dict[Any, Any]) -> dict[Any, Any]:
    """YAML 1.1 reads an unquoted Off as false; whoever writes it means the word."""
    if "external" in document:
        document = {**document, "external": spelled_out(document["external"])}
    repair = document.get("repair")
    if isinstance(repair, dict) and repair.get("mode") is False:
        return {**document, "repair": {**repair, "mode": "Off"}}
    return document


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


def _nonsense(policy: Policy) -> Iterator[tuple[str, str]]:
    """What has the right type and still makes no sense."""
    for path, bound in BOUNDS.items():
        if (value := _at(policy, path)) is not None and not bound.holds(value):
            yield path, bound.message
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
    yield from ((path, message) for path, good, message in checks if not good)
    selectors = [("nodeSelector", policy.node_selector)]
    selectors += [(f"pods[{i}].selector", rule.selector) for i, rule in enumerate(policy.pods)]
    for path, text in selectors:
        try:
            parse_selector(text)
        except ValueError as error:
            yield path, f"is wrong: {error}"
    for path, keys in (("budget.per", policy.budget.per), ("repair.per", policy.repair.per)):
        for index, key in enumerate(keys):
            if not is_label_key(key):
                yield f"{path}[{index}]", f"is wrong: {key!r:.80} is no label key"
    yield from repair_problems(policy.repair)
    yield from external_problems(policy.external, asked_on_nodes(policy.repair))
    yield from validation_problems(policy.validate)
    for reason in policy.reasons:
        if not is_reason_code(reason):
            yield f"reasons.{reason[:80]}", "is wrong: a reason is CamelCase"
