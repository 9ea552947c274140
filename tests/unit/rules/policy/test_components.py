"""Which values of a policy need a component, and that each of those is one that is shipped."""

from pathlib import Path
from typing import Any

import pytest

from rules.policy.components import NEEDS, asked_components
from rules.policy.policy import Policy
from rules.policy.reader import load_policy

COMPONENTS = Path(__file__).parents[4] / "daemonset" / "components"


def asked(document: dict[str, Any]) -> list[str]:
    policy = load_policy(document)
    assert isinstance(policy, Policy), policy
    return [each.sentence for each in asked_components(policy)]


def test_the_default_policy_needs_none() -> None:
    assert asked({}) == []


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"drain": {"onTimeout": "Force"}},
                     ["drain.onTimeout: Force needs component force"], id="force"),
        pytest.param({"drain": {"notice": "10m"}},
                     ["drain.notice: 10m needs component notice"], id="notice"),
        pytest.param({"drain": {"notice": "0m"}}, [], id="no notice"),
        pytest.param({"drain": {"nodeConditions": True}},
                     ["drain.nodeConditions: true needs component lifecycle-conditions"],
                     id="node conditions"),
        pytest.param({"validate": {"provider": "Job", "template": "mine"}},
                     ["validate.provider: Job needs component validate"], id="a test of theirs"),
        pytest.param({"validate": {"newNodes": True}},
                     ["validate.newNodes: true needs component validate"],
                     id="new nodes, by any provider"),
        pytest.param({"validate": {"newNodes": True, "provider": "None"}}, [],
                     id="new nodes, by nobody"),
        pytest.param({"repair": {"steps": {"RestartNode": {"adapter": "NodeConditions"}}}}, [],
                     id="a repair that is off"),
        pytest.param(
            {"repair": {"mode": "Auto", "adapters": {"Mine": {"label": "example.io/do=it"}},
                        "steps": {"RestartNode": {"adapter": "NodeConditions"},
                                  "RestartDriver": {"adapter": "Mine"}}}},
            [("repair.steps.RestartNode.adapter: NodeConditions needs component "
             "repair-node-conditions")], id="an adapter with a component and one without",
        ),
    ],
)  # fmt: skip
def test_a_value_names_the_component_it_needs(
    document: dict[str, Any], expected: list[str]
) -> None:
    assert asked(document) == expected


def test_every_component_that_is_named_is_shipped() -> None:
    named = {component for need in NEEDS for component in need.components.values()}
    assert named <= {folder.name for folder in COMPONENTS.iterdir()}
    repairs = {folder.name for folder in COMPONENTS.glob("repair-*")}
    assert repairs <= named, "and none of an adapter is forgotten"
