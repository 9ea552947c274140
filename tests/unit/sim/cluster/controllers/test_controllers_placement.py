"""Where a pod may go: cordon, taints, selectors, affinity, GPUs; and what the scheduler says."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.controllers.nodes.placement import NodeRoom, refusal, tolerates
from hack.sim.cluster.controllers.nodes.scheduler import (
    choose,
    scheduling_order,
    unschedulable,
    waits_for_node,
)
from hack.sim.cluster.controllers.pods import amount, resource_requests
from tests.support.cluster.controller_objects import NOW, node, pod

TAINT = {"key": "gpuward.io/quarantine", "value": "Xid79", "effect": "NoSchedule"}


def gpu_pod(name: str, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return pod(name, node="", spec={"containers": [container], **spec})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"key": "gpuward.io/quarantine", "operator": "Exists"}, True, id="key"),
        pytest.param({"key": "gpuward.io/quarantine", "value": "Xid79"}, True, id="equal"),
        pytest.param({"key": "gpuward.io/quarantine", "value": "other"}, False, id="other value"),
        pytest.param(
            {"key": "gpuward.io/quarantine", "operator": "Exists", "effect": "NoExecute"},
            False,
            id="other effect",
        ),
        pytest.param({"key": "nvidia.com/gpu", "operator": "Exists"}, False, id="other key"),
        pytest.param({"value": "Xid79"}, False, id="Equal needs a key"),
    ],
)
def test_toleration(toleration: dict[str, Any], tolerated: bool) -> None:
    assert tolerates([toleration], TAINT) == tolerated


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


def test_init_containers_count_by_their_largest_sidecars_by_their_sum() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1")],
        "initContainers": [
            container("500m"),
            container("3"),
            container("250m", restartPolicy="Always"),
        ],
    }
    assert resource_requests(pod("a", spec=spec)) == {"cpu": 3000}


@pytest.mark.parametrize(
    ("resource", "text", "want"),
    [
        pytest.param("cpu", "250m", 250, id="millicores"),
        pytest.param("cpu", "2", 2000, id="cores"),
        pytest.param("memory", "1Gi", 1 << 30, id="binary"),
        pytest.param("memory", "1G", 10**9, id="decimal"),
        pytest.param("nvidia.com/gpu", "8", 8, id="count"),
    ],
)
def test_quantities(resource: str, text: str, want: int) -> None:
    assert amount(resource, text) == want


def test_a_quantity_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'many'"):
        amount("cpu", "many")


def test_the_emptiest_fitting_node_is_chosen() -> None:
    rooms = [NodeRoom.of(node(name)) for name in ("n1", "n2", "n3")]
    rooms[0].reserve("x", {})
    rooms[1].node["spec"]["unschedulable"] = True
    room, _, _ = choose(gpu_pod("a"), rooms, 0)
    assert room is rooms[2]


def test_nowhere_says_why_for_every_node() -> None:
    rooms = [
        NodeRoom.of(node("n1", unschedulable=True)),
        NodeRoom.of(node("n2")),
        NodeRoom.of(node("n3")),
    ]
    for room in rooms:
        room.reserve("x", {"nvidia.com/gpu": 8})
    found, _, message = choose(gpu_pod("a"), rooms, 0)
    assert found is None
    assert message == (
        "0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable."
    )


def test_a_big_fleet_is_searched_from_where_the_last_search_ended() -> None:
    rooms = [NodeRoom.of(node(f"n{i:03d}")) for i in range(200)]
    _, start, _ = choose(gpu_pod("a"), rooms, 0)
    assert start == 20
    room, start, _ = choose(gpu_pod("b"), rooms, start)
    assert (room and room.node["metadata"]["name"], start) == ("n020", 40)


def test_being_unschedulable_is_said_once() -> None:
    waiting = gpu_pod("a")
    waiting["status"] = {"phase": "Pending"}
    update, event = unschedulable(waiting, "0/1 nodes are available: 1 x.", NOW)
    assert getattr(event, "reason", None) == "FailedScheduling"
    told = getattr(update, "body", {})
    assert told["status"]["conditions"][0]["reason"] == "Unschedulable"
    assert unschedulable(told, "0/1 nodes are available: 1 x.", NOW) == []


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        pytest.param({}, True, id="unbound"),
        pytest.param({"nodeName": "n1"}, False, id="bound"),
        pytest.param({"schedulingGates": [{"name": "queue"}]}, False, id="gated"),
        pytest.param({"schedulerName": "volcano"}, False, id="another scheduler's"),
    ],
)
def test_which_pods_wait_for_a_node(change: dict[str, Any], waits: bool) -> None:
    candidate = pod("a", node="", phase="Pending", ready=False, spec=change)
    assert waits_for_node(candidate) == waits


def test_priority_goes_first() -> None:
    low, high = gpu_pod("low"), gpu_pod("high", priority=1000)
    assert [entry["metadata"]["name"] for entry in scheduling_order([low, high])] == [
        "high",
        "low",
    ]
