"""Everything that is wrong with a policy is said at once, and what is right is not accused."""

from __future__ import annotations

from typing import Any

import pytest

from rules.policy.policy import Policy, effective_view
from rules.policy.reader import REMOVED, load_policy
from rules.policy.schema import differences


def paths(document: dict[str, Any]) -> list[str]:
    found = load_policy(document)
    return [] if isinstance(found, Policy) else [one.path for one in found]


def test_everything_that_makes_no_sense_is_listed_at_once() -> None:
    document = {
        "nodeSelector": "a in",
        "budget": {"per": ["b", "b c"]},
        "validate": {"timeout": "0s", "template": "A B"},
        "reasons": {"not a reason": {}},
        "external": [{"match": "taint a/b", "reason": "no code"}],
    }
    assert set(paths(document)) == {
        "nodeSelector", "budget.per[1]", "validate.timeout", "validate.template",
        "reasons.not a reason", "external[0].reason",
    }  # fmt: skip


@pytest.mark.parametrize(
    "document", [{"mode": 1}, {"mode": "x", "pods": [{"a": 1}]}, {"a": {}}, {True: 1}, {None: 2}]
)
def test_what_has_an_error_is_never_a_policy(document: dict[str, Any]) -> None:
    assert len(paths(document)) == 1


NAMED = {"reasons[]": "Xid79GPUFallenOffBus", "adapters[]": "Mine", "steps[]": "RestartNode"}
"""Mappings by name, and a name in each."""


@pytest.mark.parametrize("key", sorted(REMOVED))
def test_a_removed_key_is_refused_with_what_holds_now(key: str) -> None:
    document: Any = {}
    for step in reversed(key.split(".")):
        inner = [document] if step.endswith("[]") else document
        if step in NAMED:
            inner = {NAMED[step]: document}
        document = {step.removesuffix("[]"): inner}
    found = load_policy(document)
    assert isinstance(found, tuple)
    (problem,) = found
    assert problem.message == f"is no key any more: {REMOVED[key]}"


def test_what_is_empty_in_both_is_no_difference():
    step = {"ResetGPU": {"adapter": "NodeConditions", "timeout": "5m"}}
    policy = load_policy({"repair": {"mode": "Ask", "steps": step}})
    assert isinstance(policy, Policy)
    said = differences(effective_view(policy), effective_view(Policy()))
    assert "repair.mode: Ask -> Off" in said
    assert [line for line in said if line.endswith("(nothing) -> (nothing)")] == []


def test_differences_are_those_in_effect():
    policy = load_policy({"budget": {"maxNew": {"count": 5, "window": "10m"}}, "mode": "Shadow"})
    assert isinstance(policy, Policy)
    assert differences(effective_view(Policy()), effective_view(policy)) == [
        "budget.maxNew.count: 3 -> 5"
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param({"a": {}}, {"a": {"b": 1}}, ["a.b: (nothing) -> 1"], id="one in it"),
        pytest.param({"a": {}}, {"a": {"b": ""}}, [], id="nothing in it"),
        pytest.param({"a": None}, {"a": ""}, ["a: null -> ''"], id="any and the empty one"),
        pytest.param({"a": 1}, {"a": "1"}, ["a: 1 -> '1'"], id="number and digits"),
        pytest.param({"a": ""}, {"a": ""}, [], id="empty in both"),
        pytest.param({"a": 100.0}, {"a": 100}, [], id="an export writes the number otherwise"),
        pytest.param({"a": 100.0}, {"a": 10}, ["a: 100 -> 10"], id="numbers in words of people"),
        pytest.param({"a": ("x", "y")}, {}, ["a: [x, y] -> (nothing)"], id="a list"),
    ],
)
def test_what_reads_the_same_and_is_not_is_a_difference(
    old: dict[str, object], new: dict[str, object], said: list[str]
) -> None:
    assert differences(old, new) == said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param(True, False, ["a: true -> false"], id="yes and no"),
        pytest.param(True, "true", ["a: true -> 'true'"], id="yes and its word"),
        pytest.param((), ("b/c",), ["a: (nothing) -> [b/c]"], id="a list"),
        pytest.param(10.0, 2.5, ["a: 10 -> 2.5"], id="numbers as written"),
        pytest.param((), (True,), ["a: (nothing) -> [true]"], id="a list of yes"),
        pytest.param(1.0, 1e300, ["a: 1 -> 1e+300"], id="no page of digits"),
    ],
)
def test_differences_are_told_in_the_words_of_yaml(
    old: object, new: object, said: list[str]
) -> None:
    assert differences({"a": old}, {"a": new}) == said


def test_a_list_in_a_difference_is_told_as_yaml_writes_it() -> None:
    assert differences({"x": [True, 1.0]}, {"x": [False, "a"]}) == ["x: [true, 1] -> [false, a]"]
