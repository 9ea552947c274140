"""`policy.external`: what it takes, what it refuses, and that no error needs a guess."""

from typing import Any

import pytest

from rules.policy.external import MAX_TRIGGERS
from rules.policy.policy import Policy
from rules.policy.reader import load_policy


def given(**trigger: Any) -> dict[str, Any]:
    return {"external": [{"reason": "SiteBroken", **trigger}]}


def problems_of(document: dict[str, Any]) -> str:
    loaded = load_policy(document)
    assert isinstance(loaded, tuple), "it was accepted"
    return "; ".join(problem.sentence("policy.yaml") for problem in loaded)


def test_the_shortest_trigger_cordons_after_two_minutes() -> None:
    policy = load_policy(given(match="condition GpuBroken"))
    assert isinstance(policy, Policy)
    (trigger,) = policy.external
    assert (trigger.for_s, trigger.severity, trigger.level) == (120, "Degraded", "Cordon")
    assert trigger.action == "Investigate"


@pytest.mark.parametrize(
    ("text", "kind", "name", "value", "effect", "key"),
    [
        ("condition Bad", "condition", "Bad", "True", None, "condition Bad True"),
        ("condition Good=False", "condition", "Good", "False", None, "condition Good False"),
        ("label a/b", "label", "a/b", None, None, "label a/b"),
        ("label a/b=", "label", "a/b", "", None, "label a/b="),
        ("annotation a=x=y z:1", "annotation", "a", "x=y z:1", None, "annotation a=x=y z:1"),
        ("taint a:NoExecute", "taint", "a", None, "NoExecute", "taint a:NoExecute"),
        ("taint a=b:NoSchedule", "taint", "a", "b", "NoSchedule", "taint a=b:NoSchedule"),
        ("taint a=b", "taint", "a", "b", None, "taint a=b"),
        ("deviceTaint d.io a", "deviceTaint", "a", None, None, "deviceTaint d.io a"),
        ("deviceTaint d.io *:None", "deviceTaint", "*", None, "None", "deviceTaint d.io *:None"),
        ("deviceTaint d.io A-*=b", "deviceTaint", "A-*", "b", None, "deviceTaint d.io A-*=b"),
    ],
)
def test_what_a_trigger_looks_for_is_written_as_for_kubectl(
    text: str, kind: str, name: str, value: str | None, effect: str | None, key: str
) -> None:
    policy = load_policy(given(match=text))
    assert isinstance(policy, Policy), policy
    (trigger,) = policy.external
    found = trigger.match
    assert found.reason is None
    assert (found.kind, found.name, found.value, found.effect) == (kind, name, value, effect)
    assert trigger.key == key


@pytest.mark.parametrize("reason", ["NvidiaXID*", "NeuronDMAError", "a,b:c_d-e.f"])
def test_a_condition_may_have_a_reason(reason: str) -> None:
    policy = load_policy(given(match=f"condition Ok=False:{reason}"))
    assert isinstance(policy, Policy), policy
    (trigger,) = policy.external
    assert (trigger.match.name, trigger.match.value) == ("Ok", "False")
    assert trigger.match.reason == reason
    assert trigger.key == f"condition Ok False:{reason}"
    short = load_policy(given(match=f"condition Ok:{reason}"))
    assert isinstance(short, Policy), short
    assert short.external[0].key == f"condition Ok True:{reason}"


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ({}, "external[0] is wrong: object missing required field `match`"),
        ({"match": "a/b"}, "external[0].match is wrong: 'a/b' is no match; write"),
        ({"match": 7}, "external[0].match is wrong: 7 is no match"),
        ({"match": "condition GPUHealthy"}, "GPUHealthy is written by gpuward itself"),
        ({"match": "condition GPUNeedsReset"}, "is written by gpuward itself"),
        ({"match": "condition GPUValidated=False"}, "written by gpuward itself"),
        ({"match": "label gpuward.io/health"}, "external[0].match is wrong"),
        ({"match": "taint gpuward.io/quarantine"}, "is written by gpuward itself"),
        ({"match": "taint node.kubernetes.io/unschedulable"}, "is written by gpuward itself"),
        ({"match": "condition a b"}, "is no condition type"),
        ({"match": "label a//b"}, "is no label key"),
        ({"match": f"label a={'x' * 300}"}, "is longer than 256"),
        ({"match": "taint a:NoWork"}, "'NoWork' is no effect; write one of"),
        ({"match": "taint a:None"}, "'None' is no effect; write one of"),
        ({"match": "deviceTaint a"}, "'' is no deviceTaint key"),
        ({"match": "deviceTaint A_b c"}, "'A_b' is no DRA driver; write"),
        ({"match": "deviceTaint a b*c"}, "'b*c' is no deviceTaint key"),
        ({"match": "deviceTaint a b:PreferNoSchedule"}, "one of NoSchedule, NoExecute, None"),
        ({"match": "deviceTaint a gpuward.io/quarantine"}, "is written by gpuward itself"),
        ({"match": "deviceTaint a b", "before": "1h"}, "before needs an annotation or label"),
        ({"match": "label a=x", "before": "1h"}, "before needs an annotation or label without"),
        ({"match": "taint a", "before": "1h"}, "before needs an annotation or label without"),
        ({"match": "condition A", "reason": "no code"}, "is not CamelCase"),
        ({"match": "condition A=True:"}, "'' is no reason of a condition"),
        ({"match": "condition A:*"}, "'*' is no reason of a condition"),
        ({"match": "condition A:B*C"}, "'B*C' is no reason of a condition"),
        ({"match": f"condition A:{'x' * 200}"}, "is no reason of a condition"),
        ({"match": "condition A=Maybe"}, "write one of True, False, Unknown"),
        ({"match": "condition A", "for": "soon"}, "is no duration"),
        ({"match": "condition A", "levle": "Drain"}, "did you mean level?"),
        ({"condition": {"type": "A"}}, "external[0].condition is not a known key"),
    ],
)
def test_invalid_triggers_are_named(trigger: dict[str, Any], expected: str) -> None:
    assert expected in problems_of(given(**trigger))


GKE_LABEL = "cloud.google.com/perform-maintenance"


def test_what_a_chosen_repair_step_sets_on_the_node_is_no_cause() -> None:
    trigger = given(match=f"label {GKE_LABEL}")
    assert isinstance(load_policy(trigger), Policy), (
        "where no step sets it, it is an external label"
    )
    steps = {"ReplaceNode": {"adapter": "GKEMaintenance"}}
    message = problems_of({**trigger, "repair": {"mode": "Ask", "steps": steps}})
    assert f"external[0].match is wrong: gpuward sets {GKE_LABEL}" in message
    other = given(match="label example.com/broken")
    assert isinstance(load_policy({**other, "repair": {"steps": steps}}), Policy)


def test_one_thing_has_one_meaning_and_there_is_a_bound() -> None:
    twice = [{"reason": reason, "match": "condition A"} for reason in ("One", "Two")]
    assert "has the same match as another" in problems_of({"external": twice})
    many = [{"reason": "R", "match": f"condition C{index}"} for index in range(MAX_TRIGGERS + 1)]
    assert f"{MAX_TRIGGERS} are the most" in problems_of({"external": many})
    assert "external" in problems_of({"external": "everything"})
