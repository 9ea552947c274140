"""The policy: defaults, strictness, and errors an operator can act on."""

from typing import Any

import pytest
import yaml

from rules.api.quarantine import Mode
from rules.api.selectors import parse_selector
from rules.policy.policy import Policy, effective_view, with_installed
from rules.policy.reader import PolicyProblem, load_policy, unknown_reasons
from rules.policy.section import Seconds, format_duration, parse_duration
from rules.repair.adapter import ADAPTERS


def problems(document: object) -> list[str]:
    loaded = load_policy(document)
    assert isinstance(loaded, tuple), "it was accepted"
    return [problem.sentence("policy.yaml") for problem in loaded]


def test_an_empty_policy_watches_and_touches_nothing() -> None:
    documents: tuple[Any, ...] = (None, {})
    for document in documents:
        loaded = load_policy(document)
        assert loaded == Policy()
        assert loaded.mode is Mode.SHADOW


def test_an_unquoted_off_is_off() -> None:
    loaded = load_policy(yaml.safe_load("repair: {mode: Off, attempts: 1}"))
    assert isinstance(loaded, Policy)
    assert loaded.repair.mode == "Off"


def test_the_effective_view_reads_back_as_itself() -> None:
    document = {
        "mode": "Enforce",
        "reasons": {"ThermalSlowdown": {"level": "Report"}},
        "pods": [{"namespaces": ["jobs"], "strategy": "WaitCompleted", "maxWait": "1h30m"}],
        "external": [{"match": "taint a.example/b=c:NoSchedule", "reason": "SiteBroken"}],
        "budget": {"per": ["topology.kubernetes.io/zone"], "maxUnavailable": {"percent": 2.5}},
    }
    loaded = load_policy(document)
    assert isinstance(loaded, Policy)
    view = effective_view(loaded)
    assert load_policy(_lists(view)) == loaded


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, tuple | list) else value


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        pytest.param(
            {"drain": {"fatalTimout": "1m"}},
            "policy.yaml: drain.fatalTimout is not a known key; did you mean fatalTimeout?",
            id="misspelt",
        ),
        pytest.param(
            {"pods": [{}, {"strategie": "Skip"}]},
            "policy.yaml: pods[1].strategie is not a known key; did you mean strategy?",
            id="in-a-list",
        ),
        pytest.param(
            {"reasons": {"Xid79": {"lvl": "Drain"}}},
            "policy.yaml: reasons[...].lvl is not a known key; did you mean level?",
            id="in-a-map",
        ),
        pytest.param(
            {"zzz": 1},
            "policy.yaml: zzz is not a known key; known are apiVersion, kind, metadata, mode, "
            "nodeSelector, "
            "mark, isolate, reasons, budget, drain, pods, external, release, repair, validate, "
            "limits",
            id="nothing-near",
        ),
        pytest.param(
            {"mode": "enforce"},
            "policy.yaml: mode is wrong: invalid enum value 'enforce'; did you mean Enforce?",
            id="mode",
        ),
        pytest.param(
            {"pods": [{"strategy": "Kill"}]},
            "policy.yaml: pods[0].strategy is wrong: invalid enum value 'Kill'; known are "
            "Evict, WaitCompleted, Skip",
            id="strategy",
        ),
        pytest.param(
            {"drain": {"settle": "5"}},
            "policy.yaml: drain.settle is wrong: '5' is no duration; write it as 10m, 24h or "
            "1h30m",
            id="no-unit",
        ),
        pytest.param(
            {"drain": {"settle": 5}},
            "policy.yaml: drain.settle is wrong: a duration is text such as 10m, 24h or 1h30m, "
            "not 5",
            id="number",
        ),
        pytest.param(
            {"budget": {"maxUnavailable": {"percent": 120}}},
            "policy.yaml: budget.maxUnavailable.percent is wrong: expected `float` <= 100.0",
            id="percent",
        ),
        pytest.param(
            {"budget": {"per": ["no spaces"]}},
            "policy.yaml: budget.per[0] is wrong: 'no spaces' is no label key",
            id="label-key",
        ),
        pytest.param(
            {"pods": [{"selector": "a in b"}]},
            "policy.yaml: pods[0].selector is wrong: 'a in b' is no label selector "
            "('a in b' is no label key); write key=value, key, !key or key in (a,b)",
            id="selector",
        ),
        pytest.param(
            {"release": {"replaceAfter": 1}},
            "policy.yaml: release.replaceAfter is wrong: expected `int` >= 2",
            id="replace",
        ),
        pytest.param(
            {"budget": {"maxNew": {"count": 1, "window": "0s"}}},
            "policy.yaml: budget.maxNew.window is wrong: must be longer than 0s",
            id="no-window",
        ),
        pytest.param(
            {"repair": {"mode": "Auto"}},
            "policy.yaml: repair.steps names no step, so there is nothing to repair with; name "
            "one or set repair.mode: Off",
            id="nobody-repairs",
        ),
        pytest.param(
            {"repair": {"steps": {"Reboot": {"adapter": "NodeConditions"}}}},
            "policy.yaml: repair.steps is wrong: invalid enum value 'Reboot'; known are "
            "ResetGPU, RestartDriver, RestartNode, PowerCycle, ReplaceNode",
            id="no-such-step",
        ),
        pytest.param(
            {"repair": {"steps": {"PowerCycle": {"adapter": "NodeConditions"}}}},
            "policy.yaml: repair.steps.PowerCycle.adapter NodeConditions cannot ask for a "
            "PowerCycle; it can for ResetGPU, RestartNode, ReplaceNode",
            id="not-its-step",
        ),
        pytest.param(
            {"repair": {"steps": {"RestartNode": {"adapter": "Ansible"}}}},
            "policy.yaml: repair.steps.RestartNode.adapter 'Ansible' is no adapter; known are "
            + ", ".join(sorted(ADAPTERS)),
            id="no-such-adapter",
        ),
        pytest.param(
            ["mode"], "policy.yaml: is no mapping; start with apiVersion and kind", id="list"
        ),
    ],
)
def test_a_problem_names_path_fault_and_remedy(document: object, sentence: str) -> None:
    assert problems(document) == [sentence]


def test_the_first_problems_are_listed_and_the_others_counted() -> None:
    found = problems({"pods": [{"selector": "a in"}] * 100})
    assert len(set(found)) == 21
    assert found[-1] == "policy.yaml: has 80 more problems; fix these and check it again"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("24h", 86400),
        ("1h30m", 5400),
        ("7d", 604800),
        ("250ms", 0.25),
        ("0s", 0),
        ("1.5h", 5400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "10", "m", "-5m", "10 m", "1h 30m", "5x", "9999999d", None, 5, True]
)
def test_not_durations(text: object) -> None:
    with pytest.raises(ValueError, match=r"duration|year"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (5400, "1h30m"),
        (86400, "24h"),
        (604800, "7d"),
        (90061, "25h1m1s"),
        (0.25, "250ms"),
    ],
)
def test_durations_are_written_back(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    assert str(Seconds(seconds)) == text
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        ("gpuward.io/gpus", {"gpuward.io/gpus": "8"}, True),
        ("gpuward.io/gpus", {}, False),
        ("!a", {"a": ""}, False),
        ("a=b,c!=d", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a in (x, y),b", {"a": "y", "b": ""}, True),
        ("a notin (x,y)", {"a": "x"}, False),
        ("a notin (x,y)", {}, True),
    ],
)
def test_selectors(selector: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_selector(selector)(labels) == matches


def test_per_reason_overrides() -> None:
    loaded = load_policy({"reasons": {"Hot": {"level": "Report"}}})
    assert isinstance(loaded, Policy)
    assert loaded.level_of("Hot", "Drain") == "Report"
    assert loaded.level_of("Slow", "Drain") == "Drain"
    assert (loaded.drain_timeout_s("Fatal"), loaded.drain_timeout_s("Degraded")) == (1800, 86400)


def test_a_problem_of_the_file_has_no_path() -> None:
    assert PolicyProblem(path="", message="is empty").sentence("f") == "f: is empty"


@pytest.mark.parametrize(
    ("provider", "installed", "without"),
    [("Auto", True, False), ("None", False, False), ("Job", True, True)],
)
def test_auto_tests_where_the_component_is_installed(
    provider: str, installed: bool, without: bool
) -> None:
    policy = load_policy({"validate": {"provider": provider}})
    assert isinstance(policy, Policy)
    assert with_installed(policy, validate=True).validate.tests == installed
    assert with_installed(policy, validate=False).validate.tests == without


def noted(reason: str) -> tuple[str, ...]:
    policy = load_policy({"reasons": {reason: {"level": "Report"}}})
    assert isinstance(policy, Policy)
    return unknown_reasons(policy)


@pytest.mark.parametrize(
    "reason", ["Xid79GPUFallenOffBus", "RowRemapFailure", "ThermalSlowdown", "Xid4711Unknown"]
)
def test_what_is_published_needs_no_note(reason: str) -> None:
    assert noted(reason) == ()


@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        pytest.param("Xid79", "did you mean Xid79GPUFallenOffBus?", id="only the number"),
        pytest.param("ThermalSlowDown", "did you mean ThermalSlowdown?", id="case"),
        pytest.param("Qwertyuiop", "of this version; it changes nothing", id="nothing near"),
    ],
)
def test_a_slip_is_named_with_what_was_meant(reason: str, meant: str) -> None:
    (note,) = noted(reason)
    assert note.startswith(f"reasons.{reason} is no reason")
    assert meant in note


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
