"""The policy's JSON Schema and `policy check` agree about what is well formed."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules.policy.policy import Policy, effective_view
from rules.policy.reader import load_policy, policy_schema
from rules.policy.section import format_duration, parse_duration

REPOSITORY = Path(__file__).parents[4]
VALIDATOR = jsonschema.Draft202012Validator(policy_schema())


def shipped() -> dict[str, Any]:
    text = (REPOSITORY / "daemonset" / "base" / "policy.yaml").read_text()
    return yaml.safe_load(yaml.safe_load(text)["data"]["policy.yaml"])


def demo() -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "hack" / "sim" / "demo" / "policy.yaml").read_text())


def documented() -> dict[str, Any]:
    text = (REPOSITORY / "docs" / "policy.md").read_text()
    return yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])


def accepted(document: object) -> bool:
    return VALIDATOR.is_valid(document)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(policy_schema())


def test_the_documented_defaults_are_the_defaults() -> None:
    """Every top-level key is documented with its default."""
    policy = load_policy(documented())
    assert isinstance(policy, Policy)
    assert effective_view(policy) == effective_view(Policy())
    assert documented().keys() >= effective_view(Policy()).keys()


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            yaml.safe_load(yaml.safe_dump(effective_view(Policy()))), id="the default, spelled out"
        ),
        pytest.param(shipped(), id="as installed"),
        pytest.param(demo(), id="of the demo"),
        pytest.param(documented(), id="documented"),
        pytest.param({}, id="empty"),
        pytest.param({"reasons": {"ThermalSlowdown": {"level": "Report"}}}, id="a reason"),
        pytest.param({"external": [{"match": "taint a/b:NoExecute", "reason": "X"}]}, id="taint"),
        pytest.param({"pods": [{"selector": "app=x", "strategy": "WaitCompleted"}]}, id="pods"),
    ],
)
def test_what_the_loader_takes_is_valid(document: dict[str, Any]) -> None:
    assert isinstance(load_policy(document), Policy)
    VALIDATOR.validate(document)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"modus": "Shadow"}, id="unknown key"),
        pytest.param({"drain": {"fatalTimout": "1m"}}, id="unknown key inside"),
        pytest.param({"pods": [{"selectors": "x"}]}, id="unknown key in a list"),
        pytest.param({"reasons": {"X": {"levels": "Drain"}}}, id="unknown key of a reason"),
        pytest.param({"mode": "enforce"}, id="unknown value"),
        pytest.param({"drain": {"settle": 5}}, id="duration as a number"),
        pytest.param({"drain": {"settle": "5 s"}}, id="duration with a space"),
        pytest.param({"budget": {"maxNew": {"count": "3", "window": "1m"}}}, id="number as text"),
        pytest.param({"budget": {"maxNew": {"count": 3.5, "window": "1m"}}}, id="half a node"),
        pytest.param({"reasons": {"X": {"level": "Evict"}}}, id="unknown level"),
        pytest.param({"kind": "Policy"}, id="another kind"),
        pytest.param({"external": [{"match": "a/b", "reason": "X"}]}, id="nothing to look for"),
        pytest.param({"repair": {"steps": {"Reboot": {"adapter": "X"}}}}, id="unknown step"),
        pytest.param([], id="a list"),
    ],
)
def test_what_the_loader_refuses_for_its_shape_is_invalid(document: Any) -> None:
    assert not isinstance(load_policy(document), Policy)
    assert not accepted(document)


@given(st.floats(min_value=0.001, max_value=366 * 86_400))
def test_every_duration_we_write_is_one_the_schema_takes(seconds: float) -> None:
    text = format_duration(seconds)
    parse_duration(text)
    assert accepted({"drain": {"settle": text}})


def test_every_default_is_stated() -> None:
    drain = policy_schema()["properties"]["drain"]["properties"]
    assert drain["fatalTimeout"]["default"] == "30m"
    assert policy_schema()["properties"]["mode"]["default"] == "Shadow"


@pytest.mark.parametrize(
    ("path", "least", "most"),
    [
        ("budget.maxUnavailable.percent", 0, 100),
        ("budget.maxUnavailable.atMost", 0, None),
        ("budget.maxNew.count", 1, None),
        ("budget.perReason.count", 1, None),
        ("release.replaceAfter", 2, None),
        ("limits.nodesDraining", 1, None),
    ],
)
def test_reader_and_schema_refuse_the_same_numbers(
    path: str, least: int, most: int | None
) -> None:
    """Helm and editors know the schema alone."""

    def at(number: int) -> dict[str, Any]:
        document: Any = number
        for key in reversed(path.split(".")):
            document = {key: document, **({"window": "1h"} if key == "count" else {})}
        return document

    inside = [least, *([most] if most is not None else [])]
    outside = [least - 1, *([most + 1] if most is not None else [])]
    for number in inside:
        assert isinstance(load_policy(at(number)), Policy)
        assert accepted(at(number))
    for number in outside:
        found = load_policy(at(number))
        assert isinstance(found, tuple)
        assert [one.path for one in found] == [path]
        assert not accepted(at(number))
