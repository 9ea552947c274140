"""Component lifecycle-conditions: admission allows the drain conditions on quarantined nodes."""

import copy
from typing import Any

import pytest
import yaml

pytest.importorskip("celpy", reason="cel-python is not installed")

from hack.sim.cluster.store.patching import strategic_merge
from hack.sim.manifests import json_patch
from rules.api import names
from rules.api.requests import request
from rules.api.writes import SetDrainConditions
from tests.support.cluster.admission_cel import Write, policies, refusals
from tests.support.cluster.admission_nodes import READY, REMEDIATOR, edited, node
from tests.support.cluster.manifest_builds import DAEMONSET

COMPONENT = DAEMONSET / "components" / "lifecycle-conditions" / "kustomization.yaml"
ALL = tuple((kind, True) for kind in names.DRAIN_CONDITIONS)
QUARANTINED = {"metadata__annotations": {names.ANNOTATION_SESSION: '{"session":"s"}'}}


def shipped() -> list[dict[str, Any]]:
    """The policies of base with the patch of the component."""
    (patch,) = yaml.safe_load(COMPONENT.read_text())["patches"]
    name, operations = patch["target"]["name"], yaml.safe_load(patch["patch"])
    return [json_patch(o, operations) if o["metadata"]["name"] == name else o for o in policies()]


def refused(
    states: tuple[tuple[str, bool], ...] = ALL,
    installed: bool = True,
    on: dict[str, Any] = QUARANTINED,
    **changes: Any,
) -> list[str]:
    write = SetDrainConditions(
        node="gpu-1", node_uid="u-1", session="s", states=states, at=0.0, message="m"
    )
    old = node(**on)
    new = edited(strategic_merge(copy.deepcopy(old), request(write).body or {}), changes)
    about = Write(user=REMEDIATOR, resource="nodes/status", new=new, old=old)
    return refusals(about, shipped() if installed else None)


def test_the_component_allows_the_conditions_that_base_denies() -> None:
    assert refused() == []
    (denial,) = refused(installed=False)
    assert "component lifecycle-conditions" in denial


def test_a_drain_is_reported_only_with_the_taint_and_cordon_and_withdrawn_always() -> None:
    (denial,) = refused(on={})
    assert "only for a node with its taint and cordon" in denial
    withdrawn = tuple((kind, False) for kind in names.DRAIN_CONDITIONS)
    assert refused(withdrawn, on={}) == []


@pytest.mark.parametrize("kind", ["Ready", "MaintenanceInProgress", "GPUNeedsRestart"])
def test_other_conditions_stay_denied(kind: str) -> None:
    assert refused((*ALL, (kind, True)))


def test_nothing_else_passes_with_the_conditions() -> None:
    assert refused(metadata__labels__pool="x")
    assert refused(status__conditions=[{**READY, "status": "False"}])
