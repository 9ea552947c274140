"""Views decode from what an API server sends, whatever else is in there."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from rules.api.nodes import FreshNode, NodeView, QuarantineView
from rules.api.pods import PodView
from rules.api.workloads import PdbView

NODE: dict[str, Any] = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {
        "name": "n0",
        "uid": "u0",
        "resourceVersion": "12",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"a": "b"},
        "managedFields": [
            {
                "manager": "kubectl",
                "operation": "Update",
                "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
            }
        ],
    },
    "spec": {
        "podCIDR": "10.0.0.0/24",
        "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}],
        "unschedulable": True,
    },
    "status": {
        "images": [{"names": ["x"], "sizeBytes": 1}],
        "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
        ],
        "nodeInfo": {"bootID": "b0", "kernelVersion": "6"},
    },
}


def test_a_node() -> None:
    view = msgspec.json.decode(json.dumps(NODE), type=NodeView)
    assert (view.name, view.uid, view.boot_id, view.ready) == ("n0", "u0", "b0", "True")
    assert view.spec.unschedulable
    assert not hasattr(view.metadata, "managed_fields"), "not kept for a whole fleet"


def test_a_fresh_node_knows_its_managers_and_is_a_node() -> None:
    view = msgspec.json.decode(json.dumps(NODE), type=FreshNode)
    assert isinstance(view, NodeView)
    assert view.metadata.managed_fields[0].manager == "kubectl"


def test_a_taint_is_encoded_back_unchanged() -> None:
    view = msgspec.convert(NODE, NodeView)
    assert msgspec.to_builtins(view.spec.taints[0]) == NODE["spec"]["taints"][0]


def test_a_bare_node_before_its_first_report() -> None:
    view = msgspec.convert({"metadata": {"name": "n0"}}, NodeView)
    assert (view.ready, view.boot_id, view.metadata.created_at) == ("", "", 0.0)


@pytest.mark.parametrize("value", [1, "25%"])
def test_pdb_numbers_may_be_percentages(value: int | str) -> None:
    view = msgspec.convert({"metadata": {"name": "p"}, "spec": {"minAvailable": value}}, PdbView)
    assert view.spec.min_available == value


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ({"limits": {"nvidia.com/gpu": "8"}}, 8),
        ({"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}, 8),
        ({"limits": {"nvidia.com/mig-1g.10gb": "2", "cpu": "500m"}}, 2),
        ({"limits": {"cpu": "4"}}, 0),
        ({}, 0),
    ],
)
def test_gpus_of_a_pod(resources: dict[str, Any], gpus: int) -> None:
    value = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }
    assert msgspec.convert(value, PodView).gpus == gpus


def test_a_session_without_status_has_not_begun() -> None:
    value = {"metadata": {"name": "q"}, "spec": {"nodeName": "n0"}}
    assert msgspec.convert(value, QuarantineView).status.phase == ""
