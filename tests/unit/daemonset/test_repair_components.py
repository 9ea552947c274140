"""The component of each repair adapter allows what the adapter asks for, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

pytest.importorskip("celpy", reason="cel-python is not installed")

from hack.repair_components import FOLDER, POLICY, rendered
from rules.api import names
from rules.api.requests import request
from rules.api.writes import SetRepairCondition
from rules.repair.adapter import REPAIR_CONDITIONS
from tests.support.cluster.admission_cel import Write, policies, refusals
from tests.support.cluster.admission_nodes import REMEDIATOR, node
from tests.support.cluster.manifest_builds import REPAIR_COMPONENTS, build, one

MARKED = {**node()["metadata"]["annotations"], names.ANNOTATION_SESSION: "{}"}


def test_issue13_03_the_components_are_what_the_adapters_ask_for() -> None:
    """`python -m hack.repair_components` after changing an adapter."""
    assert {name: (FOLDER / name).read_text() for name in rendered()} == rendered()
    assert {name.partition("/")[0] for name in rendered()} == set(REPAIR_COMPONENTS)


def asked(kind: str, *, asks: bool = True, annotations: dict[str, str] | None = None) -> Write:
    sent = request(
        SetRepairCondition(
            node="gpu-1", node_uid="u", session="s", step="RestartNode", kind=kind, asks=asks,
            message="m", at=0.0,
        )
    )  # fmt: skip
    assert sent.body is not None
    old = node(metadata__annotations=MARKED if annotations is None else annotations)
    known = old["status"]["conditions"]
    new: dict[str, Any] = {
        **old,
        "status": {**old["status"], "conditions": [*known, *sent.body["status"]["conditions"]]},
    }
    return Write(user=REMEDIATOR, resource="nodes/status", new=new, old=old)


def patched() -> list[dict[str, Any]]:
    """The shipped policies with the component's patch applied."""
    component = yaml.safe_load(rendered()["repair-node-conditions/kustomization.yaml"])
    (patch,) = component["patches"]
    test, replace = yaml.safe_load(patch["patch"])
    assert patch["target"]["name"] == POLICY
    assert (test["path"], replace["path"]) == (
        "/spec/variables/0/name",
        "/spec/variables/0/expression",
    )
    found = []
    for policy in policies():
        if policy["metadata"]["name"] == POLICY:
            first, *rest = policy["spec"]["variables"]
            assert first["name"] == test["value"]
            variables = [{**first, "expression": replace["value"]}, *rest]
            policy = {**policy, "spec": {**policy["spec"], "variables": variables}}
        found.append(policy)
    return found


@pytest.mark.parametrize("kind", REPAIR_CONDITIONS)
def test_issue13_03_a_request_needs_the_component(kind: str) -> None:
    (said,) = refusals(asked(kind))
    assert "component repair-node-conditions" in said
    assert refusals(asked(kind), patched()) == []


def test_issue13_03_a_node_without_the_mark_is_never_asked_for() -> None:
    (said,) = refusals(asked("GPUNeedsRestart", annotations={}), patched())
    assert "only of a node that carries its mark" in said
    assert refusals(asked("GPUNeedsRestart", asks=False, annotations={}), patched()) == []


def test_issue13_03_other_conditions_stay_forbidden() -> None:
    assert refusals(asked("Ready"), patched())


def test_issue13_03_the_component_builds() -> None:
    policy = one(build("repair-node-conditions"), "ValidatingAdmissionPolicy", POLICY)
    expression = policy["spec"]["variables"][0]["expression"]
    assert all(f"'{kind}'" in expression for kind in REPAIR_CONDITIONS)
