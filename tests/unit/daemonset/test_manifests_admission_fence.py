"""The out-of-service taint against the admission policies: set on what, and taken off by whom."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
import yaml

pytest.importorskip("celpy", reason="cel-python is not installed")

from rules.api import names
from rules.api.nodes import NodeView
from rules.api.repair.out_of_service import taint_patch, untaint_patch
from rules.repair.component import MARK_POLICY
from tests.support.cluster.admission_cel import Write, policies, refusals
from tests.support.cluster.admission_nodes import FOREIGN_TAINT, REMEDIATOR, edited, node
from tests.support.cluster.manifest_builds import DAEMONSET, build, one

COMPONENT = DAEMONSET / "components" / "fence" / "kustomization.yaml"
SILENT = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
MARKED = {**node()["metadata"]["annotations"], names.ANNOTATION_SESSION: "{}"}
OUR_WORD = "out of service only with component fence"


def silent(**changes: Any) -> dict[str, Any]:
    """A marked node whose kubelet is silent."""
    return node(metadata__annotations=MARKED, status__conditions=SILENT, **changes)


def with_component() -> list[dict[str, Any]]:
    found = copy.deepcopy(policies())
    (patch,) = yaml.safe_load(COMPONENT.read_text())["patches"]
    test, replace = yaml.safe_load(patch["patch"])
    (policy,) = [p for p in found if p["metadata"]["name"] == MARK_POLICY]
    variable = policy["spec"]["variables"][int(test["path"].split("/")[3])]
    assert variable["name"] == test["value"]
    variable["expression"] = replace["value"]
    return found


def patched(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    notes = {**(old["metadata"].get("annotations") or {}), **patch["metadata"]["annotations"]}
    return edited(
        old,
        {
            "metadata__annotations": {k: v for k, v in notes.items() if v is not None},
            "spec__taints": patch["spec"]["taints"],
        },
    )


def tainted(old: dict[str, Any]) -> dict[str, Any]:
    return patched(old, taint_patch(msgspec.convert(old, NodeView), "s-powercycle-1"))


def cleared(old: dict[str, Any]) -> dict[str, Any]:
    return patched(old, untaint_patch(msgspec.convert(old, NodeView)))


def said(new: dict[str, Any], old: dict[str, Any], *, component: bool = True) -> list[str]:
    write = Write(user=REMEDIATOR, resource="nodes", new=new, old=old)
    return refusals(write, with_component() if component else None)


def test_with_the_component_it_goes_on_a_silent_marked_node_and_off_again() -> None:
    old = silent()
    on = tainted(old)
    assert said(on, old) == []
    assert said(cleared(on), on) == []
    assert said(cleared(on), on, component=False) == [], "off it comes always"


NOT_SET: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "speaks": (tainted(node(metadata__annotations=MARKED)), node(metadata__annotations=MARKED)),
    "unmarked": (tainted(node(status__conditions=SILENT)), node(status__conditions=SILENT)),
    "without a note": (
        edited(tainted(silent()), {"metadata__annotations": MARKED}),
        silent(),
    ),
    "another effect": (
        silent(
            spec__taints=[
                FOREIGN_TAINT,
                {"key": names.TAINT_OUT_OF_SERVICE, "effect": "NoSchedule", "value": "x"},
            ]
        ),
        silent(),
    ),
}


@pytest.mark.parametrize("case", NOT_SET)
def test_it_is_set_on_no_other_node_and_in_no_other_way(case: str) -> None:
    (answer,) = said(*NOT_SET[case])
    assert OUR_WORD in answer


def test_without_the_component_it_is_not_set() -> None:
    (answer,) = said(tainted(silent()), silent(), component=False)
    assert OUR_WORD in answer


def test_what_somebody_else_said_is_not_taken_back() -> None:
    foreign = edited(tainted(silent()), {"metadata__annotations": MARKED})
    (answer,) = said(silent(), foreign)
    assert OUR_WORD in answer


def test_the_component_builds() -> None:
    policy = one(build("fence"), "ValidatingAdmissionPolicy", MARK_POLICY)
    fences = [v for v in policy["spec"]["variables"] if v["name"] == "fences"]
    assert names.TAINT_OUT_OF_SERVICE in fences[0]["expression"]
