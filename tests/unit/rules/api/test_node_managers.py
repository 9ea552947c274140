"""Who else claims a field of a node: what another manager asked for stays when our taint and
cordon goes.
"""

from typing import Any

import msgspec
import pytest

from rules.api.names import ANNOTATION_DO_NOT_DISRUPT
from rules.api.node_managers import changes_since, claimed_by_another
from rules.api.nodes import FreshNode
from rules.api.quarantine_taint import (
    annotations_left,
    cordon_stays,
    quarantine_patch,
    release_patch,
)
from rules.api.timestamps import parse_time

SINCE = parse_time("2026-01-01T00:00:00Z") or 0.0
BEFORE, AFTER = "2025-12-31T00:00:00Z", "2026-01-01T00:30:00Z"
CORDON: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
ANNOTATION: dict[str, Any] = {
    "f:metadata": {"f:annotations": {f"f:{ANNOTATION_DO_NOT_DISRUPT}": {}}}
}


def entry(manager: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": fields, **more}


def quarantined_node(*managers: dict[str, Any]) -> FreshNode:
    """A node with our taint and cordon and these managers."""
    bare = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}}
    patch = quarantine_patch(
        msgspec.convert(bare, FreshNode),
        session="s1", reason="Xid79", parts="CordonAndTaint", now=SINCE,
    )  # fmt: skip
    node = {
        "metadata": {**bare["metadata"], **patch["metadata"], "managedFields": list(managers)},
        "spec": patch["spec"],
    }
    return msgspec.convert(node, FreshNode)


OURS = entry("gpuward-remediator", CORDON, time=BEFORE)


@pytest.mark.parametrize(
    ("managers", "who"),
    [
        pytest.param([OURS], "", id="ours"),
        pytest.param([OURS, entry("argocd", CORDON, operation="Apply")], "argocd", id="applied"),
        pytest.param([OURS, entry("kubectl", CORDON, time="soon")], "kubectl", id="no-real-time"),
        pytest.param([OURS, entry("", CORDON)], "another manager", id="nameless"),
        pytest.param([entry("x" * 5000, CORDON)], "x" * 100, id="endless-name"),
        pytest.param([OURS, entry("kubectl", CORDON, time=AFTER)], "kubectl", id="later"),
        pytest.param([OURS, entry("kubectl", CORDON, time=BEFORE)], "", id="older"),
        pytest.param([OURS, entry("nfd", {"f:spec": None})], "", id="no-fields"),
        pytest.param([OURS, entry("nfd", {"f:spec": {"f:taints": {}}})], "", id="other-field"),
        pytest.param([entry("ancient-changes", CORDON)], "", id="ours-merged-away"),
        pytest.param(
            [OURS, entry("ancient-changes", CORDON)], "ancient-changes", id="another-merged-away"
        ),
    ],
)
def test_a_claim_counts_with_and_without_a_time(managers: list[dict[str, Any]], who: str) -> None:
    node = quarantined_node(*managers)
    assert claimed_by_another(node, ("f:spec", "f:unschedulable"), SINCE) == who
    assert cordon_stays(node) == (f"{who} cordoned it during the quarantine" if who else "")
    assert ("unschedulable" in release_patch(node)["spec"]) == (not who)


def test_an_annotation_that_another_manager_applied_stays() -> None:
    node = quarantined_node(OURS, entry("flux", ANNOTATION, operation="Apply"))
    patch = release_patch(node)
    assert ANNOTATION_DO_NOT_DISRUPT not in patch["metadata"]["annotations"]
    assert patch["spec"]["unschedulable"] is None, "it claimed no cordon"
    assert annotations_left(node) == (ANNOTATION_DO_NOT_DISRUPT,)


TAINTED: dict[str, Any] = {"f:spec": {"f:taints": {}}}
LABELLED: dict[str, Any] = {"f:metadata": {"f:labels": {"f:plan.upgrade.cattle.io/k3s": {}}}}


@pytest.mark.parametrize(
    ("manager", "kind", "program"),
    [
        ("kubectl-taint", "Interactive", "kubectl"),
        ("kubectl-gpuward", "Interactive", "kubectl"),
        ("k9s", "Interactive", "k9s"),
        ("kured", "Controller", "kured"),
        ("driver-manager", "Controller", "k8s-driver-manager"),
        ("machine-config-controller", "Controller", "machine-config-operator"),
        ("aws-cloud-controller-manager", "Bystander", "cloud-controller-manager"),
        ("nfd-master", "Bystander", "Node Feature Discovery"),
        ("gpuward-remediator", "Ours", "gpuward-remediator"),
        ("in-house-rebooter", "Unknown", "in-house-rebooter"),
        ("", "Unknown", "another manager"),
    ],
)
def test_a_manager_is_identified_by_the_name_of_its_client(
    manager: str, kind: str, program: str
) -> None:
    (change,) = changes_since(quarantined_node(entry(manager, LABELLED, time=AFTER)), SINCE)
    assert (change.kind, change.program) == (kind, program)
    assert change.at == parse_time(AFTER)


def test_changes_come_newest_first() -> None:
    node = quarantined_node(
        entry("system-upgrade-controller", LABELLED, time="2026-01-01T00:10:00Z"),
        entry("karpenter", TAINTED, time=AFTER),
        entry("gpuward-remediator", CORDON, time="2026-01-01T00:20:00Z"),
    )
    found = [change.program for change in changes_since(node, SINCE)]
    assert found == ["Karpenter", "gpuward-remediator", "system-upgrade-controller"]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(entry("kured", CORDON, time=BEFORE), id="earlier"),
        pytest.param(entry("kured", CORDON), id="no-time"),
        pytest.param(entry("kured", CORDON, time=AFTER, subresource="status"), id="status"),
        pytest.param(entry("ancient-changes", CORDON, time=AFTER), id="merged"),
    ],
)
def test_what_names_no_writer_since_then_is_no_change(written: dict[str, Any]) -> None:
    assert changes_since(quarantined_node(written), SINCE) == ()


def test_a_change_within_the_second_of_the_moment_counts() -> None:
    node = quarantined_node(entry("kured", LABELLED, time="2026-01-01T00:00:00Z"))
    assert changes_since(node, SINCE + 0.9), "managedFields keeps node seconds"
    assert not changes_since(node, SINCE + 1.0)
