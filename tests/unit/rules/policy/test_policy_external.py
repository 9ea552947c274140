"""`policy.external`: what it takes, what it refuses, and that no error needs a guess."""

from __future__ import annotations

from typing import Any

import pytest

from rules.policy.external import MAX_TRIGGERS
from rules.policy.policy import Policy
from rules.policy.reader import load_policy


def given(**trigger: Any) -> dict[str, Any]:
    return {"external": [{"reason": "SiteBroken", **trigger}]}


def said(document: dict[str, Any]) -> str:
    loaded = load_policy(document)
    assert isinstance(loaded, tuple), "it was accepted"
    return "; ".join(problem.sentence("policy.yaml") for problem in loaded)


def test_the_shortest_trigger_cordons_after_two_minutes() -> None:
    policy = load_policy(given(condition={"type": "GpuBroken"}))
    assert isinstance(policy, Policy)
    (trigger,) = policy.external
    assert (trigger.for_s, trigger.severity, trigger.level) == (120, "Degraded", "Cordon")
    assert trigger.action == "Investigate"
    assert trigger.condition is not None
    assert trigger.condition.status == "True"


def test_an_unquoted_status_of_yaml_is_the_word() -> None:
    policy = load_policy(given(condition={"type": "Good", "status": False}))
    assert isinstance(policy, Policy)
    assert policy.external[0].condition is not None
    assert policy.external[0].condition.status == "False"


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({}, "external[0] names nothing to look for; write one of condition, annotation"),
        (
            {"condition": {"type": "A"}, "label": {"key": "b"}},
            "names condition and label; write one of",
        ),
        ({"condition": {"type": "GPUHealthy"}}, "GPUHealthy is written by gpuward itself"),
        ({"condition": {"type": "GPUNeedsReset"}}, "is written by gpuward itself"),
        ({"condition": {"type": "GPUValidated", "status": "False"}}, "written by gpuward itself"),
        ({"label": {"key": "gpuward.io/health"}}, "external[0].label.key is wrong"),
        ({"taint": {"key": "gpuward.io/quarantine"}}, "is written by gpuward itself"),
        ({"taint": {"key": "node.kubernetes.io/unschedulable"}}, "is written by gpuward itself"),
        ({"condition": {"type": "a b"}}, "is no condition type"),
        ({"label": {"key": "a//b"}}, "is no label key"),
        ({"label": {"key": "a", "value": "x" * 300}}, "is longer than 256"),
        ({"label": {"key": "a", "value": "x", "before": "1h"}}, "no value can be asked for"),
        ({"condition": {"type": "A"}, "reason": "no code"}, "is not CamelCase"),
        ({"condition": {"type": "A", "status": "Maybe"}}, "write one of True, False, Unknown"),
        ({"condition": {"type": "A"}, "for": "soon"}, "is no duration"),
        ({"condition": {"type": "A"}, "levle": "Drain"}, "did you mean level?"),
        ({"condition": "A"}, "external[0].condition is wrong"),
    ],
)
def test_what_makes_no_sense_is_named(trigger: dict[str, Any], words: str) -> None:
    assert words in said(given(**trigger))


GKE_LABEL = "cloud.google.com/perform-maintenance"


def test_what_a_chosen_repair_step_sets_on_the_node_is_no_cause() -> None:
    trigger = given(label={"key": GKE_LABEL})
    assert isinstance(load_policy(trigger), Policy), "where no step sets it, it is another's word"
    steps = {"ReplaceNode": {"adapter": "GKEMaintenance"}}
    words = said({**trigger, "repair": {"mode": "Ask", "steps": steps}})
    assert f"external[0].label.key is wrong: gpuward itself sets {GKE_LABEL}" in words
    other = given(label={"key": "example.com/broken"})
    assert isinstance(load_policy({**other, "repair": {"steps": steps}}), Policy)


def test_one_thing_has_one_meaning_and_there_is_a_bound() -> None:
    twice = [{"reason": reason, "condition": {"type": "A"}} for reason in ("One", "Two")]
    assert "looks for the same as another" in said({"external": twice})
    many = [
        {"reason": "R", "condition": {"type": f"C{index}"}} for index in range(MAX_TRIGGERS + 1)
    ]
    assert f"{MAX_TRIGGERS} are the most" in said({"external": many})
    assert "external" in said({"external": "everything"})
