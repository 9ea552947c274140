"""`plan` for what it is easily wrong about: sessions nobody checked yet, strangers, full
fleets.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.sim.cluster.client import Object
from hack.sim.cluster.resource import CONFIGMAPS, NAMESPACES, NODES, PODS, RESOURCE_SLICES
from hack.sim.cluster.server import HostedServer
from hack.sim.manifests import post_manifests
from tests.support.cluster.slices import NEURON, neuron_slice, taint
from tests.support.remediator.kubectl_cluster import cluster, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    QUARANTINES,
    ago,
    node,
    policy_map,
    session,
    sick,
)

BY_HAND = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ann"}


def asked(on: str, **spec: Any) -> Object:
    """An operator's session that no remediator has checked."""
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

    with cluster(folder, fill, led=True) as kubectl:
        code, out, err = kubectl("plan", "-o", "json")
    assert (code, err) == (0, "")
    (only,) = json.loads(out)["items"]
    return dict(only)


@pytest.mark.parametrize("severity", ["Degraded", "Fatal"])
def test_a_degraded_pod_that_fits_no_other_node_stays(tmp_path: Path, severity: str) -> None:
    cause = {**BY_HAND, "severity": severity}
    pods = [gpu_pod(name, on) for name, on in (("a", "sick"), ("b", "other"), ("c", "third"))]
    found = planned(tmp_path, [asked("sick", causes=[cause])], pods)
    assert found["evictable"] == (severity == "Fatal")
    assert any("no other node has 8 free GPUs" in b for b in found["blocked"]) == (
        severity == "Degraded"
    )


def test_what_drains_have_in_common_is_read_once_and_nothing_is_written(tmp_path: Path) -> None:
    """A list of every pod per drained node would keep the API server of a large fleet busy."""
    names = [f"n{number}" for number in range(6)]

    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, *map(gpu_node, names))
        load(hosted, QUARANTINES, *map(asked, names[:4]))
        load(hosted, PODS, *(gpu_pod(f"p-{name}", name) for name in names[:4]))

    with cluster(tmp_path, fill, led=True) as kubectl:
        before = len(kubectl.hosted.server.requests.all)
        code, out, err = kubectl("plan", "-o", "json")
        asked_for = list(kubectl.hosted.server.requests.all)[before:]
        kept = [kubectl.get(QUARANTINES, f"{name}-by-hand")["status"] for name in names[:4]]
    assert (code, err, [one["would"] for one in json.loads(out)["items"]]) == (
        0,
        "",
        ["drain"] * 4,
    )
    counted = Counter(one.resource for one in asked_for if one.verb != "create")
    assert counted["daemonsets"] == counted["poddisruptionbudgets"] == 1
    assert counted["pods"] == 4 + 1 + 1, "of each node, of the agents, and of the entire fleet"
    assert "secrets" not in counted
    assert {one.verb for one in asked_for} - {"create"} == {"get", "list"}
    assert kept == [{}] * 4


def test_one_session_of_a_newer_release_does_not_end_the_plan_of_all(tmp_path: Path) -> None:
    """A phase that this release does not know: its node reports it, the others are planned."""
    newer = session("sick-1", "sick", "Hibernating", "Asleep.")
    with cluster(tmp_path, lambda hosted: _two(hosted, newer), led=True) as kubectl:
        code, out, err = kubectl("plan", "-o", "json")
        first, second = json.loads(out)["items"]
    assert (code, err) == (0, "")
    assert (first["metadata"]["name"], first["would"]) == ("other", "drain")
    assert (second["would"], second["blockedBy"]) == ("stay Hibernating", "SessionUnreadable")


def _two(hosted: HostedServer, other: Object) -> None:
    load(hosted, NODES, gpu_node("sick"), gpu_node("other"), gpu_node("third"))
    load(hosted, QUARANTINES, other, asked("other"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "-l", "rack=a17"), "no node that the policy selects has the labels rack=a17"),
        (("plan", "-l", "rack=a1"), "gpuward would do nothing"),
    ],
)
def test_labels_that_no_node_has_are_reported(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, gpu_node("well", rack="a1"), gpu_node("sick"))
        load(hosted, QUARANTINES, asked("sick"))

    with cluster(tmp_path, fill, led=True) as kubectl:
        code, out, _ = kubectl(*arguments)
    assert (code, out.splitlines()[-1]) == (0, message)


def test_pools_have_a_column_with_the_policy_of_each_node(tmp_path: Path) -> None:
    pools = (
        {"mode": "Enforce"},
        {"metadata": {"name": "trial"}, "nodeSelector": "team=t", "mode": "Shadow"},
        {"metadata": {"name": "zone"}, "nodeSelector": "zone=z"},
    )
    labels: dict[str, dict[str, str]] = {
        "n1": {},
        "n2": {"team": "t"},
        "n3": {"team": "t", "zone": "z"},
    }
    expected = ["default", "trial", "trial and zone"]

    def fill(hosted: HostedServer) -> None:
        load(hosted, NODES, *(gpu_node(name, **its) for name, its in labels.items()))
        load(hosted, HEALTHS, *map(sick, labels))
        load(hosted, NAMESPACES, {"metadata": {"name": "gpuward"}})
        load(hosted, CONFIGMAPS, policy_map(yaml.safe_dump_all(pools)))

    with cluster(tmp_path, fill, led=True) as kubectl:
        code, out, _ = kubectl("plan")
        assert code == 0
        assert "mode Enforce (pools: trial Shadow, zone Enforce); 3 nodes selected" in out
        rows = [
            line for line in out.splitlines() if line.startswith(("NODE", "n1 ", "n2 ", "n3 "))
        ]
        assert [re.split(r" {2,}", row)[1] for row in rows] == ["POLICY", *expected]
        items = json.loads(kubectl("plan", "-o", "json")[1])["items"]
        assert [one["policy"] for one in items] == expected


@pytest.mark.parametrize("node", ["n0", "n1"])
def test_a_tainted_device_is_a_cause_in_plan_and_why(tmp_path: Path, node: str) -> None:
    trigger = {"match": f"deviceTaint {NEURON} a", "reason": "NeuronTainted", "level": "Drain"}
    policy = json.dumps({"mode": "Enforce", "external": [trigger]})

    def fill(hosted: HostedServer) -> None:
        load(hosted, NAMESPACES, {"metadata": {"name": "gpuward"}})
        hosted.run(post_manifests(hosted.server.client, [policy_map(policy)], namespace="gpuward"))
        load(hosted, NODES, gpu_node("n0"), gpu_node("n1"))
        for name, taints in (("n0", [taint("a", timeAdded=ago(30))]), ("n1", [])):
            spec = neuron_slice(name, {"name": "d", "taints": taints})
            load(hosted, RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})

    with cluster(tmp_path, fill, led=True) as kubectl:
        _, out, _ = kubectl("plan", "-o", "json")
        _, why, _ = kubectl("why", node)
    planned = [one["metadata"]["name"] for one in json.loads(out)["items"]]
    assert planned == ["n0"]
    assert ("NeuronTainted" in why) is (node == "n0")
