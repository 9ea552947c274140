"""Everything that is wrong with a policy is said at once, and what is right is not accused."""

from __future__ import annotations

from typing import Any

import pytest

from rules.policy.differences import differences
from rules.policy.policy import Policy, effective_view
from rules.policy.reader import load_policy


def paths(document: dict[str, Any]) -> list[str]:
    found = load_policy(document)
    return [] if isinstance(found, Policy) else [one.path for one in found]


def test_all_errors_are_listed_at_once():
    document = {
        "mod": "Enforce",
        "mark": "Nothing",
        "drain": {"settle": "soon", "backoff": {"min": "2m", "max": "1m"}},
        "budget": {"minimum": -1},
        "nodeSelector": "a in",
    }
    assert set(paths(document)) == {
        "mod", "mark", "drain.settle", "drain.backoff.min", "budget.minimum", "nodeSelector"
    }  # fmt: skip


def test_what_follows_from_an_error_is_not_told_as_another():
    assert paths({"repair": {"mode": "Ask", "stepz": {}}}) == ["repair.stepz"]


def test_a_wrong_entry_of_a_mapping_hides_nothing_beside_it():
    document = {"reasons": {"Xid79GPUFallenOffBus": {"level": "Nuke"}}, "mark": 7}
    assert set(paths(document)) == {"reasons.Xid79GPUFallenOffBus.level", "mark"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(
            {"reasons": {"A": {"level": "Report"}, "B": {"level": "Drian"}, "C": {"level": "x"}}},
            ["reasons.B.level", "reasons.C.level"],
            id="each wrong key, and no other",
        ),
        pytest.param({"reasons": {"A": {}, "B": 3}}, ["reasons.B"], id="a whole entry"),
        pytest.param(
            {"repair": {"adapters": {"Mine": {"steps": {"ResetGPU": {"create": 7}}}}}},
            ["repair.adapters.Mine.steps.ResetGPU.create"],
            id="a key below a key",
        ),
        pytest.param({"reasons": {"x.y z": 3}}, ["reasons.x.y z"], id="a key that is no word"),
        pytest.param(
            {"reasons": {True: {}, 7: {"x": 1}, "A": 3}},
            ["reasons.true", "reasons.7", "reasons.A"],
            id="a key that is no text hides nothing beside it",
        ),
        pytest.param({True: 1, "mode.x": 1, "mode": 3}, ["true", "mode.x", "mode"], id="unknown"),
    ],
)
def test_the_key_that_is_meant_is_named(document: dict[str, Any], said: list[str]) -> None:
    assert paths(document) == said


@pytest.mark.parametrize("document", [{"mode": 1}, {"mode": "x", "pods": [{"a": 1}]}, {"a": {}}])
def test_what_has_an_error_is_never_a_policy(document):
    assert not isinstance(load_policy(document), Policy)


GOOD = {"taint": {"key": "a/b"}, "reason": "Foo"}
NO_KEY = {"taint": {"key": "a b"}, "reason": "Foo"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(
            {"external": ["x", GOOD, NO_KEY, {**GOOD, "reason": 3}]},
            ["external[0]", "external[3].reason", "external[2].taint.key"],
            id="what makes no sense",
        ),
        pytest.param({"pods": [3, {}, 7, {"strategy": "x"}]},
                     ["pods[0]", "pods[2]", "pods[3].strategy"], id="what has a wrong type"),
        pytest.param({"budget": {"per": ["a", 3, "b c"]}},
                     ["budget.per[1]", "budget.per[2]"], id="a list of texts"),
        pytest.param(
            {"repair": {"adapters": {"Mine": {"steps": {"ResetGPU": {
                "condition": "GPUNeedsReset", "refuse": [7, {}, "x", {"label": "b c"}]}}}}}},
            [f"repair.adapters.Mine.steps.ResetGPU.refuse[{i}]" for i in (0, 2)],
            id="deep in a mapping",
        ),
    ],
)  # fmt: skip
def test_an_entry_of_a_list_keeps_its_index_whatever_is_wrong_before_it(
    document: dict[str, Any], said: list[str]
) -> None:
    assert paths(document) == said


def repairs(adapter: Any, **more: Any) -> dict[str, Any]:
    """A policy of one adapter of its own, which is to reset and to restart."""
    steps = {"ResetGPU": {"adapter": "Mine"}, "RestartNode": {"adapter": "Mine"}}
    return {"repair": {"mode": "Ask", "adapters": {"Mine": adapter}, "steps": steps, **more}}


OF_MINE = "repair.adapters.Mine"
CONDITION = {"condition": "GPUNeedsReset"}
RESTARTS = "repair.steps.RestartNode.adapter"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(repairs(3), [OF_MINE], id="the adapter"),
        pytest.param(repairs({"stepz": {}}), [f"{OF_MINE}.stepz"], id="its one key"),
        pytest.param(repairs({"steps": {}}), [f"{OF_MINE}.steps"], id="it can do nothing"),
        pytest.param(
            repairs({"steps": {"ResetGPU": CONDITION, "RestratNode": CONDITION}}),
            [f"{OF_MINE}.steps"], id="the name of its step",
        ),
        pytest.param(
            repairs({"steps": {"ResetGPU": CONDITION, "RestartNode": 3}}),
            [f"{OF_MINE}.steps.RestartNode"], id="its step",
        ),
        pytest.param(
            repairs({"steps": {"ResetGPU": {"condition": "X"}}}),
            [f"{OF_MINE}.steps.ResetGPU.condition", RESTARTS], id="of another step",
        ),
        pytest.param(
            repairs({"steps": {"ResetGPU": {"patch": 7}, "RestartNode": CONDITION}}),
            [f"{OF_MINE}.steps.ResetGPU.patch"], id="what a step says",
        ),
        pytest.param(
            {"repair": {"adapters": {"Metal3": {"steps": {"ResetGPU": CONDITION}}},
                        "steps": {"ResetGPU": {"adapter": "Metal3"}}}},
            ["repair.adapters.Metal3"], id="a name that is taken",
        ),
        pytest.param(
            {"repair": {"steps": {"PowerCycle": {"adapter": "None"}}, "fence": {"after": "5m"}}},
            ["repair.steps.PowerCycle.adapter"], id="who fences",
        ),
        pytest.param(
            {"repair": {"steps": {"PowerCycle": 3}, "fence": {"after": 3}}},
            ["repair.steps.PowerCycle", "repair.fence.after"], id="the step that fences",
        ),
        pytest.param({"external": [{"tant": {}, "reason": "A"}]}, ["external[0].tant"],
                     id="what a trigger looks for"),
        pytest.param({"external": [{"taint": {"key": "a"}, "reson": "A"}]}, ["external[0].reson"],
                     id="a key that must be there"),
        pytest.param(
            {"validate": {"provider": "Job", "severity": {"Fatal": {"timeout": "0s"}}}},
            ["validate.template", "validate.severity.Fatal.timeout"], id="a template for all",
        ),
        pytest.param(
            {"validate": {"template": 3, "step": {"ResetGPU": {"provider": "Job"}}}},
            ["validate.template"], id="a template that is none",
        ),
        pytest.param({"drain": {"backoff": {"min": "5m", "max": "soon"}}}, ["drain.backoff.max"],
                     id="the other end"),
    ],
)  # fmt: skip
def test_only_the_root_cause_is_told(document: dict[str, Any], said: list[str]) -> None:
    assert paths(document) == said


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
