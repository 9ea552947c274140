"""Deployment, ReplicaSet and DaemonSet: one look at the state, the right writes."""

from __future__ import annotations

from typing import Any

import pytest

from hack.sim.cluster.controllers.workloads import daemonset, replicaset
from tests.support.cluster.controller_objects import (
    NOW,
    created,
    deleted,
    node,
    owner,
    pod,
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


def test_rolling_daemon_set_replaces_one_node_at_a_time() -> None:
    ds = owner("DaemonSet")
    pods = [
        pod(f"p{i}", ds, node=f"n{i}", labels={daemonset.REVISION_LABEL: "old"}) for i in (1, 2)
    ]
    assert deleted(daemonset.reconcile(ds, pods, [node("n1"), node("n2")], NOW)) == ["p1"]
