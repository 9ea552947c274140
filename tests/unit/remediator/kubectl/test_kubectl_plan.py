"""`plan` for what it is easily wrong about: sessions nobody looked at yet, strangers, full
fleets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.http.threaded import HostedServer
from hack.sim.cluster.resource import NODES, PODS
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import QUARANTINES, node, session

BY_HAND = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ann"}


def asked(on: str, **spec: Any) -> Object:
    """A person's session that no remediator has looked at."""
    made = session(f"{on}-by-hand", on, "", "", spec={"causes": [BY_HAND], **spec})
    return {**made, "status": {}}


def gpu_node(name: str, **labels: str) -> Object:
    made = node(name, labels=labels)
    made["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    return made


def gpu_pod(name: str, on: str) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "u-w"}
    resources = {"limits": {"nvidia.com/gpu": "8"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": on,
            "containers": [{"name": "main", "image": "w:1", "resources": resources}],
        },
        "status": {"phase": "Running"},
    }  # fmt: skip


def planned(folder: Path, sessions: list[Object], pods: list[Object]) -> dict[str, Any]:
    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, gpu_node("sick"), gpu_node("other"), gpu_node("third"))
        stranger = gpu_node("stranger")
        del stranger["metadata"]["labels"]["gpuward.io/gpus"]
        load(hosted, NODES, stranger)
        load(hosted, QUARANTINES, *sessions)
        load(hosted, PODS, *pods)

    with cluster(folder, fill) as kubectl:
        code, out, err = kubectl("plan", "-o", "json")
    assert (code, err) == (0, "")
    (only,) = json.loads(out)
    return dict(only)


def test_a_request_that_nobody_looked_at_yet_is_planned(tmp_path: Path) -> None:
    found = planned(tmp_path, [asked("sick")], [gpu_pod("a", "sick")])
    assert (found["would"], found["evictable"]) == ("drain", 1)


def test_a_node_that_the_policy_does_not_select_is_planned_for_a_person(tmp_path: Path) -> None:
    found = planned(tmp_path, [asked("stranger", level="Cordon")], [])
    assert (found["node"], found["would"]) == ("stranger", "cordon and taint")


def test_a_release_that_was_asked_for_is_what_would_be_done(tmp_path: Path) -> None:
    asks = {"release": {"by": "ann", "reason": "tested"}}
    assert planned(tmp_path, [asked("sick", **asks)], [])["would"] == "release"


@pytest.mark.parametrize("severity", ["Degraded", "Fatal"])
def test_a_degraded_pod_that_fits_no_other_node_stays(tmp_path: Path, severity: str) -> None:
    cause = {**BY_HAND, "severity": severity}
    pods = [gpu_pod(name, on) for name, on in (("a", "sick"), ("b", "other"), ("c", "third"))]
    found = planned(tmp_path, [asked("sick", causes=[cause])], pods)
    assert found["evictable"] == (severity == "Fatal")
    assert any("no other node has 8 free GPUs" in b for b in found["blocked"]) == (
        severity == "Degraded"
    )
