"""Where a pod may go: cordon, taints, selectors, affinity, GPUs; and what the scheduler says."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.controllers.nodes.placement import NodeRoom, refusal
from hack.sim.cluster.controllers.pods import resource_requests
from tests.support.cluster.controller_objects import node, pod

TAINT = {"key": "gpuward.io/quarantine", "value": "Xid79", "effect": "NoSchedule"}


def gpu_pod(name: str, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return pod(name, node="", spec={"containers": [container], **spec})


def affinity(**term: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [term]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("spec", "node_spec", "want"),
    [
        pytest.param({}, {}, None, id="fits"),
        pytest.param({}, {"unschedulable": True}, "node(s) were unschedulable", id="cordoned"),
        pytest.param(
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            {"unschedulable": True},
            None,
            id="tolerates the cordon",
        ),
        pytest.param(
            {},
            {"taints": [TAINT]},
            "node(s) had untolerated taint {gpuward.io/quarantine: Xid79}",
            id="tainted",
        ),
        pytest.param(
            {}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, None, id="a preference only"
        ),
        pytest.param({"nodeSelector": {"zone": "b"}}, {}, NOT_SELECTED, id="selector"),
        pytest.param(
            affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n1"]}]),
            {},
            None,
            id="this node by name",
        ),
        pytest.param(
            affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n2"]}]),
            {},
            NOT_SELECTED,
            id="another node by name",
        ),
        pytest.param(
            affinity(
                matchExpressions=[
                    {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}
                ]
            ),
            {},
            NOT_SELECTED,
            id="affinity expression",
        ),
    ],
)
def test_may_a_pod_go_there(
    spec: dict[str, Any], node_spec: dict[str, Any], want: str | None
) -> None:
    candidate = gpu_pod("a", **spec)
    room = NodeRoom.of(node("n1", **node_spec))
    assert refusal(candidate["spec"], resource_requests(candidate), room) == want


def test_gpus_are_counted_against_other_pods_and_given_back() -> None:
    room = NodeRoom.of(node())
    running = gpu_pod("a", 6)
    running["spec"]["nodeName"] = "n1"
    room.take(running)
    wants = gpu_pod("b", 4)
    assert refusal(wants["spec"], resource_requests(wants), room) == "Insufficient nvidia.com/gpu"
    running["status"]["phase"] = "Succeeded"
    room.take(running)
    assert refusal(wants["spec"], resource_requests(wants), room) is None
