"""Deployment, ReplicaSet and DaemonSet: one look at the state, the right writes."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.controllers.pods import template_hash
from hack.sim.cluster.controllers.workloads import daemonset, deployment, replicaset
from tests.support.cluster.controller_objects import (
    NOW,
    created,
    deleted,
    node,
    owner,
    patched,
    pod,
    status,
    with_new_status,
)


@pytest.mark.parametrize(
    ("replicas", "there", "makes", "ends"),
    [
        pytest.param(3, [], 3, [], id="from nothing"),
        pytest.param(2, [{}, {}], 0, [], id="enough"),
        pytest.param(2, [{}, {"terminating": True}], 1, [], id="terminating is replaced at once"),
        pytest.param(2, [{}, {"phase": "Failed"}], 1, [], id="failed is replaced"),
        pytest.param(1, [{}, {"ready": False}], 0, ["p1"], id="unready goes first"),
        pytest.param(1, [{}, {"node": "", "ready": False}], 0, ["p1"], id="unbound goes first"),
        pytest.param(0, [{}, {}], 0, ["p0", "p1"], id="to nothing"),
    ],
)
def test_replica_set_keeps_its_count(
    replicas: int, there: list[dict[str, Any]], makes: int, ends: list[str]
) -> None:
    rs = owner("ReplicaSet", replicas=replicas)
    outcome = replicaset.reconcile(
        rs, [pod(f"p{i}", rs, **entry) for i, entry in enumerate(there)], NOW
    )
    assert len(created(outcome)) == makes
    assert sorted(deleted(outcome)) == ends
    for body in created(outcome):
        assert body["metadata"]["ownerReferences"][0]["uid"] == rs["metadata"]["uid"]
        assert body["metadata"]["generateName"] == "web-"


def test_replica_set_counts_ready_and_available_apart() -> None:
    rs = owner("ReplicaSet", replicas=3, minReadySeconds=400)
    there = [pod("a", rs), pod("b", rs, ready=False), pod("c", rs)]
    outcome = replicaset.reconcile(rs, there, NOW)
    found = status(outcome)
    assert (found["replicas"], found["readyReplicas"], "availableReplicas" in found) == (
        3,
        2,
        False,
    )
    assert outcome.again_in_s == 400
    assert replicaset.reconcile(with_new_status(rs, outcome), there, NOW).writes == ()


def replica_set_of(dep: dict[str, Any], size: int, available: int, *, old: str = "") -> Any:
    name = old or template_hash(dep["spec"]["template"])
    rs = owner("ReplicaSet", f"web-{name}", replicas=size)
    rs["metadata"]["labels"] = {deployment.HASH_LABEL: name}
    rs["metadata"]["annotations"] = {deployment.REVISION: "1" if old else "2"}
    rs["status"] = {"replicas": size, "readyReplicas": available, "availableReplicas": available}
    return rs


def test_deployment_makes_a_replica_set_that_selects_its_own_pods() -> None:
    dep = owner("Deployment", replicas=4)
    outcome = deployment.reconcile(dep, [], NOW)
    (rs,) = created(outcome)
    hash_ = template_hash(dep["spec"]["template"])
    assert rs["metadata"]["name"] == f"web-{hash_}"
    assert rs["spec"]["replicas"] == 4
    assert rs["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": hash_}
    assert rs["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] == hash_


@pytest.mark.parametrize(
    ("strategy", "old", "new", "want"),
    [
        pytest.param({}, (4, 4), (0, 0), {"new": 1, "old": 3}, id="surge one, one may be out"),
        pytest.param({}, (3, 3), (1, 0), {"new": 2}, id="the new pod is not available yet"),
        pytest.param({}, (3, 3), (2, 2), {"old": 1}, id="old ones make room"),
        pytest.param(
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            (4, 4),
            (0, 0),
            {"old": 3},
            id="no surge: an old one leaves first",
        ),
        pytest.param(
            {"type": "Recreate"}, (4, 4), (0, 0), {"old": 0}, id="recreate empties first"
        ),
    ],
)
def test_deployment_rolls_within_surge_and_outage(
    strategy: dict[str, Any],
    old: tuple[int, int],
    new: tuple[int, int],
    want: dict[str, int],
) -> None:
    dep = owner("Deployment", replicas=4, strategy=strategy)
    sets = [replica_set_of(dep, *new), replica_set_of(dep, *old, old="older")]
    outcome = deployment.reconcile(dep, sets, NOW)
    sizes = {
        "old" if name == "web-older" else "new": patch["spec"]["replicas"]
        for name, patch in patched(outcome)
    }
    assert sizes == want


def test_deployment_reports_availability() -> None:
    dep = owner("Deployment", replicas=4)
    found = status(deployment.reconcile(dep, [replica_set_of(dep, 4, 2)], NOW))
    assert (found["availableReplicas"], found["unavailableReplicas"]) == (2, 2)
    available = {entry["type"]: entry["status"] for entry in found["conditions"]}
    assert available == {"Available": "False", "Progressing": "True"}


GPU_ONLY = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
OUR_TAINT = {"key": "gpuward.io/quarantine", "value": "Xid79", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def daemon_set(tolerations: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    ds = owner("DaemonSet", updateStrategy={"type": "OnDelete"})
    ds["spec"]["template"]["spec"] |= {"tolerations": tolerations, **spec}
    return ds


@pytest.mark.parametrize(
    ("spec", "comes", "stays"),
    [
        pytest.param({}, True, True, id="free node"),
        pytest.param({"unschedulable": True, "taints": [CORDON]}, True, True, id="cordoned"),
        pytest.param({"taints": [OUR_TAINT]}, False, True, id="our taint keeps new pods away"),
        pytest.param(
            {"taints": [{**OUR_TAINT, "effect": "NoExecute"}]},
            False,
            False,
            id="NoExecute ends it",
        ),
        pytest.param(
            {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
            True,
            True,
            id="tolerated",
        ),
        pytest.param(
            {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
            True,
            True,
            id="unreachable is tolerated by every DaemonSet",
        ),
    ],
)
def test_daemon_set_and_taints(spec: dict[str, Any], comes: bool, stays: bool) -> None:
    ds = daemon_set(GPU_ONLY)
    assert bool(created(daemonset.reconcile(ds, [], [node(**spec)], NOW))) == comes
    running = pod("here", ds, labels={daemonset.REVISION_LABEL: "any"})
    ends = deleted(daemonset.reconcile(ds, [running], [node(**spec)], NOW))
    assert ends == ([] if stays else ["here"])


def test_daemon_pod_is_pinned_to_its_node_and_carries_the_added_tolerations() -> None:
    (body,) = created(daemonset.reconcile(daemon_set(GPU_ONLY), [], [node("n7")], NOW))
    required = body["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert required["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["n7"]
    keys = {entry["key"] for entry in body["spec"]["tolerations"]}
    assert "node.kubernetes.io/unschedulable" in keys
    assert "nvidia.com/gpu" in keys
    assert "gpuward.io/quarantine" not in keys


def test_daemon_set_counts_what_it_wants_and_has() -> None:
    ds = daemon_set(GPU_ONLY)
    nodes = [node("n1"), node("n2"), node("n3", taints=[OUR_TAINT])]
    found = status(
        daemonset.reconcile(ds, [pod("a", ds, node="n1"), pod("c", ds, node="n3")], nodes, NOW)
    )
    assert found["desiredNumberScheduled"] == 2
    assert found["currentNumberScheduled"] == 1
    assert found["numberMisscheduled"] == 1


def test_daemon_set_waits_for_a_terminating_pod_before_making_the_next() -> None:
    ds = daemon_set(GPU_ONLY)
    outcome = daemonset.reconcile(ds, [pod("a", ds, terminating=True)], [node()], NOW)
    assert created(outcome) == []


def test_rolling_daemon_set_replaces_one_node_at_a_time() -> None:
    ds = owner("DaemonSet")
    pods = [
        pod(f"p{i}", ds, node=f"n{i}", labels={daemonset.REVISION_LABEL: "old"}) for i in (1, 2)
    ]
    assert deleted(daemonset.reconcile(ds, pods, [node("n1"), node("n2")], NOW)) == ["p1"]
