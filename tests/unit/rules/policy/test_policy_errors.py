"""Everything that is wrong with a policy is said at once, and what is right is not accused."""

from __future__ import annotations

from typing import Any

import pytest

from rules.policy.policy import Policy, effective_view
from rules.policy.reader import load_policy
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
        pytest.param({"a": ""}, {"a": ""}, [], id="empty in both"),
        pytest.param({"a": 100.0}, {"a": 100}, [], id="an export writes the number otherwise"),
        pytest.param({"a": 100.0}, {"a": 10}, ["a: 100 -> 10"], id="numbers in words of people"),
        pytest.param({"a": ("x", True, 1.0)}, {}, ["a: [x, true, 1] -> (nothing)"], id="a list"),
        pytest.param({"a": True}, {"a": False}, ["a: true -> false"], id="yes and no"),
        pytest.param({"a": [{"b": 1}]}, {"a": []}, ["a[0].b: 1 -> (nothing)"], id="rows"),
    ],
)
def test_a_difference_is_written_as_yaml_writes_it(
    old: dict[str, object], new: dict[str, object], said: list[str]
) -> None:
    assert differences(old, new) == said
