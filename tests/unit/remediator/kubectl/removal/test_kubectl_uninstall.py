"""`kubectl gpuward uninstall`: every node as it was before, whatever others did meanwhile."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.clients.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from hack.sim.cluster.http.threaded import HostedServer
from remediator.kubectl.command import CommandError
from remediator.kubectl.removal import node_cleaning, uninstall
from rules.api.mark import mark_patch
from rules.api.names import CONDITION_VALIDATED
from rules.api.nodes import FreshNode, NodeView
from rules.api.repair.out_of_service import taint_patch
from rules.api.timestamps import format_micro_time
from rules.repair.adapter import REPAIR_CONDITIONS
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_objects import (
    BLOCKED,
    HEALTHS,
    NOW,
    QUARANTINES,
    ago,
    node,
    session,
    verdict,
)
from tests.support.remediator.record_objects import RECORDS, records

Object = dict[str, Any]
FOREIGN = {"key": "example.com/mine", "value": "x", "effect": "NoExecute"}
LATER = {"key": "example.com/later", "effect": "NoSchedule"}
BEFORE: dict[str, Object] = {
    "plain": {},
    "tainted": {
        "spec": {"taints": [FOREIGN]},
        "labels": {"nvidia.com/gpu.deploy.dcgm": "true"},
    },
    "cordoned": {"spec": {"unschedulable": True, "taints": [FOREIGN]}},
    "annotated": {
        "annotations": {
            "gpuward.io/hold": "by hand, before",
            "gpuward.io/expected-gpus": "8",
            "cluster-autoscaler.kubernetes.io/scale-down-disabled": "false",
            "karpenter.sh/do-not-disrupt": "true",
            "example.com/note": "keep",
        },
        "labels": {"gpuward.io/opt-out": "true", "example.com/rack": "a17"},
    },
}
OURS = {"gpuward.io/gpus", "gpuward.io/health", "gpuward.io/product", "gpuward.io/driver",
        "gpuward.io/interconnect"}  # fmt: skip

ASKED = {
    "metadata": {
        "labels": {"oke.oraclecloud.com/node_operation": "gpuward-reboot"},
        "annotations": {"gpuward.io/repair": "s-restartnode-1 RestartNode OKE"},
    }
}
"""What asked for a repair of a node: nobody may follow it when gpuward is gone."""
MOVED = {
    "metadata": {
        "labels": {"nvidia.com/gpu.deploy.dcgm": "paused-for-gpuward"},
        "annotations": {
            "gpuward.io/release-gpu": "gpuward-remediator: tainted-1-resetgpu-1",
            "gpuward.io/moved": '{"nvidia.com/gpu.deploy.dcgm":"true"}',
        },
    }
}
"""Whoever was moved off the GPUs for a reset that was under way comes back."""
SAID = "s-restartnode-1: RestartNode of a drained node is asked for because of Xid 79."
NOT_ASKED = "No repair of this kind is asked for."
ASKS = {"status": {"conditions": [{"type": "GPUNeedsRestart", "status": "True", "message": SAID}]}}


def bare(name: str, **changes: Any) -> Object:
    """A node before the installation: none of our labels."""
    found = node(name, **changes)
    labels = found["metadata"]["labels"]
    found["metadata"]["labels"] = {k: v for k, v in labels.items() if k not in OURS}
    return found


def fill(hosted: HostedServer) -> None:
    load(
        hosted,
        r.NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuward"}},
    )
    load(hosted, r.NODES, *(bare(name, **changes) for name, changes in BEFORE.items()))


def picture(kubectl: Kubectl, name: str) -> Object:
    """What must be as before, byte for byte."""
    found = kubectl.get(r.NODES, name)
    return {
        "labels": found["metadata"].get("labels", {}),
        "annotations": found["metadata"].get("annotations", {}),
        "taints": found["spec"].get("taints", []),
        "unschedulable": found["spec"].get("unschedulable", False),
        "conditions": found["status"]["conditions"],
    }


def pictures(kubectl: Kubectl) -> str:
    return json.dumps({name: picture(kubectl, name) for name in BEFORE}, indent=1, sort_keys=True)


def written(kubectl: Kubectl, path: str, manager: str, patch: Object, kind: str) -> None:
    """A patch as a program sends it, with the name that managedFields keeps."""
    request = urllib.request.Request(
        f"{kubectl.hosted.url}{path}?fieldManager={manager}",
        data=json.dumps(patch).encode(),
        headers={"Content-Type": kind},
        method="PATCH",
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def storm(kubectl: Kubectl) -> None:
    """Every node labelled by its agent and marked by the remediator, as they write it."""
    condition = {"type": "GPUHealthy", "status": "False", "reason": "Xid79", "message": "m"}
    degraded = {"type": "GPUDegraded", "status": "True", "reason": "Xid79", "message": "m"}
    labels = {"gpuward.io/gpus": "8", "gpuward.io/health": "unhealthy", "gpuward.io/numa": "4-4"}
    others = [
        {"type": kind, "status": "True", "reason": "x", "message": NOT_ASKED}
        for kind in (CONDITION_VALIDATED, *REPAIR_CONDITIONS)
    ]
    conditions = [condition, degraded, *others]
    body = {"metadata": {"labels": labels}, "status": {"conditions": conditions}}
    for name in BEFORE:
        path = f"/api/v1/nodes/{name}"
        written(kubectl, f"{path}/status", "gpuward-agent", body, STRATEGIC_MERGE_PATCH)
        fresh = msgspec.convert(kubectl.get(r.NODES, name), FreshNode)
        mark = mark_patch(fresh, session=f"{name}-0badcafe", reason="Xid79", phase="Draining",
                          mark="CordonAndTaint", now=NOW - 60)  # fmt: skip
        written(kubectl, path, "gpuward-remediator", mark, MERGE_PATCH)
        written(kubectl, path, "gpuward-remediator", ASKED, MERGE_PATCH)
        fresh = msgspec.convert(kubectl.get(r.NODES, name), FreshNode)
        off = taint_patch(fresh, f"{name}-0badcafe-powercycle-1")
        written(kubectl, path, "gpuward-remediator", off, MERGE_PATCH)
        written(kubectl, f"{path}/status", "gpuward-remediator", ASKS, STRATEGIC_MERGE_PATCH)
    written(kubectl, "/api/v1/nodes/tainted", "gpuward-remediator", MOVED, MERGE_PATCH)


def test_s50_after_a_storm_every_node_is_byte_for_byte_as_before(tmp_path: Path) -> None:
    """With foreign taints, a prior cordon, people's annotations, and holds by our own command."""
    with cluster(tmp_path, fill) as kubectl:
        before = pictures(kubectl)
        storm(kubectl)
        assert kubectl("hold", "plain", "--reason", "in the storm")[0] == 0
        assert kubectl("repaired", "tainted", "--reason", "in the storm")[0] == 0
        assert pictures(kubectl) != before

        code, out, err = kubectl("uninstall", "--yes")

        assert code == 0
        assert "4 nodes cleaned; now: kubectl delete --ignore-not-found -k YOUR-OVERLAY" in out
        assert "cordoned: mark taken off; it stays cordoned: it was cordoned before" in err
        assert pictures(kubectl) == before
        people = "gpuward.io/hold, gpuward.io/expected-gpus, gpuward.io/opt-out"
        assert f"annotated: left as others set it: {people}" in out
        assert "cordoned: left as others set it: its cordon" in out

        code, out, err = kubectl("uninstall", "--yes")
        assert (code, err) == (0, "")
        assert out.startswith("0 nodes cleaned")
        assert pictures(kubectl) == before


def test_who_was_moved_comes_back_by_the_record_of_a_session(tmp_path: Path) -> None:
    """The Node's own record went, or an older release wrote none."""
    moved = "nvidia.com/gpu.deploy.dcgm"
    step = {
        "step": "ResetGPU", "adapter": "ResetGPUJob", "attempt": 1, "object": "s-resetgpu-1",
        "startedAt": ago(5), "state": "Asked", "cleared": [f"{moved}=true"],
    }  # fmt: skip
    copied = {"metadata": {"labels": {moved: "paused-for-gpuward"}}}
    with cluster(tmp_path, fill) as kubectl:
        load(kubectl.hosted, QUARANTINES, session("s", "tainted", "Repairing", "m", repair=[step]))
        for name in ("tainted", "plain"):
            written(kubectl, f"/api/v1/nodes/{name}", "x", copied, MERGE_PATCH)
        code, out, _ = kubectl("uninstall", "--yes")
        assert code == 0
        assert picture(kubectl, "tainted")["labels"] == {moved: "true"}
        assert picture(kubectl, "plain")["labels"] == {moved: "paused-for-gpuward"}
    assert f"plain: left as others set it: label {moved}=paused-for-gpuward" in out
    assert "tainted: left" not in out


def test_what_others_add_in_the_storm_stays(tmp_path: Path) -> None:
    with cluster(tmp_path, fill) as kubectl:
        storm(kubectl)
        marked = kubectl.get(r.NODES, "plain")["spec"]["taints"]
        body = {
            "metadata": {"labels": {"example.com/new": "1"}},
            "spec": {"taints": [*marked, LATER]},
        }
        kubectl.hosted.run(kubectl.hosted.server.client.patch(r.NODES, "plain", body))
        assert kubectl("uninstall", "--yes")[0] == 0
        after = picture(kubectl, "plain")
    assert after["labels"] == {"example.com/new": "1"}
    assert [
        taint for taint in after["taints"] if taint["key"] != "node.kubernetes.io/unschedulable"
    ] == [LATER]


def lease(renewed: float) -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "gpuward-remediator", "namespace": "gpuward"},
        "spec": {"holderIdentity": "laptop", "renewTime": format_micro_time(renewed)},
    }


def test_records_that_go_with_the_definitions_are_named(tmp_path: Path) -> None:
    def recorded(hosted: HostedServer) -> None:
        fill(hosted)
        load(hosted, RECORDS, *records())

    with cluster(tmp_path, recorded) as kubectl:
        code, out, _ = kubectl("uninstall", "--yes")
    assert code == 0
    assert "3 records of what failed before go with the definitions" in out
    assert "kubectl get gpurecords -o yaml" in out


def test_a_lease_that_nobody_renews_is_no_leader(tmp_path: Path) -> None:
    with cluster(tmp_path, fill) as kubectl:
        load(kubectl.hosted, r.LEASES, lease(NOW - 120))
        assert kubectl("uninstall", "--yes")[0] == 0


def test_a_dry_run_says_what_the_real_one_will(tmp_path: Path) -> None:
    """Also of a cordon of ours: it is there still, and nobody else's."""
    with cluster(tmp_path, fill) as kubectl:
        storm(kubectl)
        marked = pictures(kubectl)
        code, would, err = kubectl("uninstall", "--dry-run")
        question, first, *_ = err.splitlines()
        assert question.startswith("This ends gpuward")
        assert first == "dry run: each line says what would be done, and nothing is changed"
        assert code == 0, err
        assert pictures(kubectl) == marked
        _, does, _ = kubectl("uninstall", "--yes")
        assert [line[2:] for line in would.splitlines()[1:]] == does.splitlines()


def test_without_yes_nothing_is_done(tmp_path: Path) -> None:
    with cluster(tmp_path, fill) as kubectl:
        storm(kubectl)
        marked = pictures(kubectl)
        code, out, err = kubectl("uninstall")
        assert (code, out) == (1, "")
        assert "agree with --yes" in err
        assert pictures(kubectl) == marked


def test_agents_outside_the_cluster_are_named(tmp_path: Path) -> None:
    with cluster(tmp_path, fill) as kubectl:
        load(kubectl.hosted, HEALTHS, verdict("plain", publisher={"heartbeat": ago(1)}),
             verdict("tainted", publisher={"heartbeat": ago(60)}))  # fmt: skip
        _, out, _ = kubectl("uninstall", "--yes")
    assert "agents outside the cluster (systemd?) published lately on plain: stop them" in out


def test_a_pod_that_does_not_end_stops_it_before_any_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remediator.kubectl.removal.uninstall.PODS_GONE_WITHIN_S", 0.0)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "agent-0", "namespace": "gpuward",
            "labels": {"app.kubernetes.io/name": "gpuward"},
        },
        "spec": {"nodeName": "plain", "containers": [{"name": "a", "image": "gpuward:1"}]},
    }  # fmt: skip
    with cluster(tmp_path, fill) as kubectl:
        storm(kubectl)
        marked = pictures(kubectl)
        load(kubectl.hosted, r.PODS, pod)
        code, _, err = kubectl("uninstall", "--yes")
        assert code == 1
        assert (
            "1 pod of gpuward still there, such as gpuward/agent-0; nothing was taken off" in err
        )
        assert pictures(kubectl) == marked


def test_one_node_that_cannot_be_cleaned_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = node_cleaning.clean

    async def stubborn(
        server: Any, node: FreshNode, recorded: tuple[str, ...]
    ) -> tuple[str, NodeView | None]:
        if node.name == "plain":
            raise CommandError("it changes too fast to be cleaned")
        return await real(server, node, recorded)

    monkeypatch.setattr(uninstall, "clean", stubborn)
    with cluster(tmp_path, fill) as kubectl:
        storm(kubectl)
        code, _, err = kubectl("uninstall", "--yes")
        assert code == 1
        assert "1 node could not be cleaned: plain" in err
        assert "gpuward.io/health" not in picture(kubectl, "tainted")["labels"]
        assert BLOCKED not in err


def test_walk_another_namespace_is_named_at_once_and_nothing_is_deleted(
    tmp_path: Path,
) -> None:
    """A forgotten -n must not wait two minutes for pods that nobody told to end."""
    labels = {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "remediator"}

    def elsewhere(hosted: HostedServer) -> None:
        fill(hosted)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        load(hosted, r.NAMESPACES, space)
        meta = {"name": "gpuward-remediator-0", "namespace": "other", "labels": labels}
        spec = {"nodeName": "plain", "containers": [{"name": "main", "image": "r:1"}]}
        load(hosted, r.PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    with cluster(tmp_path, elsewhere) as kubectl:
        code, out, err = kubectl("uninstall", "--yes")
        asked = {one.verb for one in kubectl.hosted.server.requests.all}
    assert (code, out) == (1, "")
    assert "its pods run in other; nothing was done, name it with -n other" in err
    assert asked <= {"get", "list"}
