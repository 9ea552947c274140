"""Evaluates our ValidatingAdmissionPolicies with a CEL interpreter, as an API server would.

Used by admission tests. Like the API server: what is selected first, then parameters (without them
everybody is refused), matchConditions, variables in their order, all validations; an expression
that cannot be evaluated refuses (failurePolicy Fail).
"""

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import celpy
import celpy.adapter
import celpy.evaluation

from hack.sim.manifests import read_manifests

BASE = Path(__file__).parents[3] / "daemonset" / "base"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request as admission sees it."""

    user: str
    resource: str
    operation: str = "UPDATE"
    group: str = ""
    extra: Object | None = field(default_factory=dict)
    new: Object = field(default_factory=dict)
    old: Object | None = None
    params: Object | None = None
    """What the policies of the write's kind are bound to, where they take parameters."""


@functools.cache
def policies() -> list[Object]:
    """Our policies that are bound to deny."""
    objects = read_manifests(BASE)
    bound = {
        o["spec"]["policyName"]
        for o in objects
        if o["kind"] == "ValidatingAdmissionPolicyBinding"
        and o["spec"]["validationActions"] == ["Deny"]
    }
    return [
        o
        for o in objects
        if o["kind"] == "ValidatingAdmissionPolicy" and o["metadata"]["name"] in bound
    ]


def refusals(write: Write, shipped: list[Object] | None = None) -> list[str]:
    """The messages of all validations that refuse; empty when the write passes.

    `shipped`: the policies as an overlay has patched them, instead of those of the base.
    """
    found = policies() if shipped is None else shipped
    return [message for policy in found for message in _judge(policy["spec"], write)]


def _judge(spec: Object, write: Write) -> list[str]:
    if not any(_concerns(rule, write) for rule in spec["matchConstraints"]["resourceRules"]):
        return []
    takes = "paramKind" in spec
    if not _selects(spec["matchConstraints"].get("objectSelector"), write):
        return []
    if takes and write.params is None:
        return ["no params found"]
    user: Object = {"username": write.user, "groups": ["system:authenticated"]}
    if write.extra is not None:
        user["extra"] = write.extra
    context = {
        "object": celpy.adapter.json_to_cel(write.new),
        "oldObject": celpy.adapter.json_to_cel(write.old),
        "request": celpy.adapter.json_to_cel(
            {"userInfo": user, "operation": write.operation, "resource": {"group": write.group}}
        ),
    }
    if not all(_evaluate(c["expression"], context) is True for c in spec["matchConditions"]):
        return []
    if takes:
        context["params"] = celpy.adapter.json_to_cel(write.params)
    variables = celpy.celtypes.MapType()
    context["variables"] = variables
    for variable in spec.get("variables", ()):
        name = celpy.celtypes.StringType(variable["name"])
        variables[name] = _value(variable["expression"], context)
    return [
        rule["message"]
        for rule in spec["validations"]
        if _evaluate(rule["expression"], context) is not True
    ]


def _concerns(rule: Object, write: Write) -> bool:
    return (
        write.group in rule["apiGroups"]
        and write.operation in rule["operations"]
        and write.resource in rule["resources"]
    )


def _selects(selector: Object | None, write: Write) -> bool:
    """Whether the object has the labels; a CREATE, so there is no older one."""
    wanted = (selector or {}).get("matchLabels", {})
    labels = write.new.get("metadata", {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def _evaluate(expression: str, context: Object) -> bool:
    try:
        return bool(_value(expression, context))
    except celpy.evaluation.CELEvalError:
        return False


def _value(expression: str, context: Object) -> Any:
    return _program(expression).evaluate(context)


@functools.cache
def _program(expression: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))
