"""`kubectl gpuward uninstall`: every node as it was before, whatever others did meanwhile."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Caller
from hack.sim.cluster.server import HostedServer
from rules.api import names
from rules.api.nodes import FreshNode
from rules.api.quarantine_taint import quarantine_patch
from rules.repair.adapter import REPAIR_CONDITIONS
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, lease, load, uninstalled
from tests.support.remediator.kubectl_objects import NOW, QUARANTINES, ago, node, session

Object = dict[str, Any]
FOREIGN = {"key": "example.com/mine", "value": "x", "effect": "NoExecute"}
BEFORE: dict[str, Object] = {
    "plain": {},
    "tainted": {"spec": {"taints": [FOREIGN]}, "labels": {"nvidia.com/gpu.deploy.dcgm": "true"}},
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

NOT_ASKED = "No repair of this kind is asked for."


def bare(name: str, **changes: Any) -> Object:
    """A node before the installation: none of our labels."""
    found = node(name, **changes)
    labels = found["metadata"]["labels"]
    found["metadata"]["labels"] = {k: v for k, v in labels.items() if k not in OURS}
    return found


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def fill(hosted: HostedServer) -> None:
    load(hosted, r.NAMESPACES, namespace("gpuward"))
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


TEST, RESET = "tested-0badcafe-validate-1", "reset-0badcafe-resetgpu-1"


def labels(component: str) -> Object:
    return {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": component}


def job(name: str, node: str, component: str) -> Object:
    template = {
        "metadata": {"labels": labels(component)},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "gpuward-agent:1"}],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name, "namespace": "gpuward",
            "labels": labels(component),
        },
        "spec": {"template": template},
    }  # fmt: skip


def pod(of: Object) -> Object:
    """The pod that the Job controller made."""
    meta = of["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-x", "namespace": "gpuward", "labels": meta["labels"],
            "ownerReferences": [{**owner, "name": meta["name"], "uid": meta["uid"]}],
        },
        "spec": of["spec"]["template"]["spec"],
        "status": {"phase": "Running"},
    }  # fmt: skip


def running(name: str, namespace: str, component: str) -> Object:
    """A pod of gpuward on node `plain`."""
    meta = {"name": name, "namespace": namespace, "labels": labels(component)}
    spec = {"nodeName": "plain", "containers": [{"name": "main", "image": "gpuward:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


RUNNING = (job(TEST, "tested", "validate"), job(RESET, "reset", "reset-gpu"))


def storm(kubectl: Kubectl) -> None:
    """Every node labelled by its agent and quarantined by the remediator, as they write it."""
    condition = {"type": "GPUHealthy", "status": "False", "reason": "Xid79", "message": "m"}
    degraded = {"type": "GPUDegraded", "status": "True", "reason": "Xid79", "message": "m"}
    labels = {"gpuward.io/gpus": "8", "gpuward.io/health": "unhealthy", "gpuward.io/numa": "4-4"}
    others = [
        {"type": kind, "status": "True", "reason": "x", "message": NOT_ASKED}
        for kind in (names.CONDITION_VALIDATED, *REPAIR_CONDITIONS)
    ]
    reasons = (names.REASON_QUARANTINE, names.REASON_QUARANTINE, names.REASON_WITHDRAWN)
    drains = [
        {"type": kind, "status": str(reason == names.REASON_QUARANTINE), "reason": reason}
        for kind, reason in zip(names.DRAIN_CONDITIONS, reasons, strict=True)
    ]
    conditions = [condition, degraded, *others, *drains]
    body = {"metadata": {"labels": labels}, "status": {"conditions": conditions}}
    for name in BEFORE:
        path = f"/api/v1/nodes/{name}"
        written(kubectl, f"{path}/status", "gpuward-agent", body, STRATEGIC_MERGE_PATCH)
        fresh = msgspec.convert(kubectl.get(r.NODES, name), FreshNode)
        patch = quarantine_patch(
            fresh,
            session=f"{name}-0badcafe",
            reason="Xid79",
            parts="CordonAndTaint",
            now=NOW - 60,
        )
        written(kubectl, path, "gpuward-remediator", patch, MERGE_PATCH)


def test_s50_after_a_storm_every_node_is_byte_for_byte_as_before(tmp_path: Path) -> None:
    """With foreign taints, a prior cordon and people's annotations."""
    with cluster(tmp_path, fill) as kubectl:
        before = pictures(kubectl)
        storm(kubectl)
        assert pictures(kubectl) != before

        code, out, err = kubectl("uninstall", "--yes")

        assert code == 0
        assert "4 nodes cleaned; now: kubectl delete --ignore-not-found -k YOUR-OVERLAY" in out
        assert (
            "cordoned: taint and cordon removed; it stays cordoned: it was cordoned before" in err
        )
        assert pictures(kubectl) == before

        code, out, err = kubectl("uninstall", "--yes")
        assert (code, err) == (0, "")
        assert out.startswith("0 nodes cleaned")
        assert pictures(kubectl) == before


def test_a_dry_run_lists_the_actions(tmp_path: Path) -> None:
    """Also of a cordon of gpuward: it is there still, and nobody else's."""
    with cluster(tmp_path, fill) as kubectl:
        storm(kubectl)
        quarantined = pictures(kubectl)
        code, would, err = kubectl("uninstall", "--dry-run")
        question, first, *_ = err.splitlines()
        assert question.startswith("This stops gpuward")
        assert (
            first
            == "dry run: each line is an action that uninstall would take; nothing is changed"
        )
        assert code == 0, err
        assert pictures(kubectl) == quarantined
        _, does, _ = kubectl("uninstall", "--yes")
        assert would.splitlines()[1].strip() == does.strip()


def test_a_pod_that_does_not_end_stops_it_before_any_node(tmp_path: Path) -> None:
    with cluster(tmp_path, fill) as kubectl:
        storm(kubectl)
        quarantined = pictures(kubectl)
        load(kubectl.hosted, r.PODS, running("agent-0", "gpuward", "agent"))
        code, _, err = uninstalled(kubectl, pods_gone_within_s=0.0)
        assert code == 1
        assert "gpuward/agent-0: still there" in err
        assert pictures(kubectl) == quarantined


def test_another_namespace_is_named_at_once_and_nothing_is_deleted(tmp_path: Path) -> None:
    """A missing -n must not wait for pods that were not deleted."""

    def elsewhere(hosted: HostedServer) -> None:
        fill(hosted)
        load(hosted, r.NAMESPACES, namespace("other"))
        load(hosted, r.PODS, running("gpuward-remediator-0", "other", "remediator"))

    with cluster(tmp_path, elsewhere) as kubectl:
        code, out, err = kubectl("uninstall", "--yes")
        asked = {one.verb for one in kubectl.hosted.server.requests.all}
    assert (code, out) == (1, "")
    assert "nothing was done: no remediator has ever led in namespace gpuward" in err
    assert "name it with -n other" in err
    assert asked <= {"get", "list"}


def with_jobs(hosted: HostedServer) -> None:
    fill(hosted)
    load(hosted, r.JOBS, *RUNNING)
    client = hosted.server.client
    made = [hosted.run(client.get(r.JOBS, one["metadata"]["name"], "gpuward")) for one in RUNNING]
    load(hosted, r.PODS, *map(pod, made))


def named(kubectl: Kubectl, resource: r.Resource) -> set[str]:
    found, _ = kubectl.hosted.run(kubectl.hosted.server.client.list(resource, "gpuward"))
    return {each["metadata"]["name"] for each in found}


@contextmanager
def meanwhile(act: Any) -> Iterator[None]:
    """Another thread acts once a twentieth of a second until the command has ended."""
    over = threading.Event()

    def again() -> None:
        while not over.wait(0.05):
            act()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_gpuward_jobs_end_with_their_pods_before_nodes_are_cleaned(tmp_path: Path) -> None:
    with cluster(tmp_path, with_jobs) as kubectl:
        storm(kubectl)
        client, seen = kubectl.hosted.server.client, []

        def kubelet() -> None:
            if not named(kubectl, r.JOBS):
                seen.append(picture(kubectl, "plain")["unschedulable"])
                for one in named(kubectl, r.PODS):
                    kubectl.hosted.run(client.delete(r.PODS, one, "gpuward", grace=0))

        with meanwhile(kubelet):
            code, out, err = uninstalled(kubectl)
        assert code == 0, err
    assert seen[0] is True, "its pod had not ended"
    assert f"Job {RESET} ended" in err
    assert f"Job {TEST} ended" in err
    assert "4 nodes cleaned" in out


def leading(hosted: HostedServer) -> None:
    """A remediator leads, and a session of it has asked for a repair."""
    fill(hosted)
    load(hosted, r.LEASES, lease(NOW))
    asked(hosted)


def asked(hosted: HostedServer) -> None:
    step = {
        "step": "RestartNode", "adapter": "GKE", "attempt": 1, "object": "s-restartnode-1",
        "startedAt": ago(5), "askedAt": ago(5), "state": "Asked",
    }  # fmt: skip
    load(hosted, QUARANTINES, session("s", "plain", "Repairing", "m", repair=[step]))


def test_a_leader_gives_its_nodes_back_before_it_is_stopped(tmp_path: Path) -> None:
    with cluster(tmp_path, leading) as kubectl:
        client = kubectl.hosted.server.client
        kubectl.hosted.call(lambda: kubectl.hosted.server.requests.all.clear())

        def remediator() -> None:
            if kubectl.get(QUARANTINES, "s")["spec"].get("release"):
                ended = {"status": {"phase": "Released"}}
                kubectl.hosted.run(client.patch(QUARANTINES, "s", ended, subresource="status"))

        with meanwhile(remediator):
            code, _, err = uninstalled(kubectl)
        release = kubectl.get(QUARANTINES, "s")["spec"]["release"]
        writes = [one for one in kubectl.hosted.server.requests.all if one.verb != "get"]
    assert code == 0, err
    assert "waiting for the remediator to release plain" in err
    assert (release["by"], release["reason"]) == ("kubernetes-admin", "gpuward is uninstalled")
    order = [(one.verb, one.resource) for one in writes]
    assert order.index(("patch", "gpuquarantines")) < order.index(("delete", "deployments"))


def test_a_leader_that_gives_nothing_back_keeps_everything_as_it_is(tmp_path: Path) -> None:
    with cluster(tmp_path, leading) as kubectl:
        storm(kubectl)
        quarantined = pictures(kubectl)
        code, _, err = uninstalled(kubectl, released_within_s=0.1)
        verbs = {one.verb for one in kubectl.hosted.server.requests.all}
        assert pictures(kubectl) == quarantined
    assert code == 1
    assert "plain: the remediator does not release it; see kubectl gpuward why NODE" in err
    assert "delete" not in verbs


def test_without_a_leader_nobody_takes_a_request_back_and_nothing_is_done(
    tmp_path: Path,
) -> None:
    def no_leader(hosted: HostedServer) -> None:
        fill(hosted)
        asked(hosted)

    with cluster(tmp_path, no_leader) as kubectl:
        storm(kubectl)
        quarantined = pictures(kubectl)
        code, _, err = kubectl("uninstall", "--yes")
        verbs = {one.verb for one in kubectl.hosted.server.requests.all}
        assert pictures(kubectl) == quarantined
    assert code == 1
    assert "open repair requests for plain can only be withdrawn by gpuward-remediator" in err
    assert "delete" not in verbs


def test_who_may_not_see_jobs_stops_nothing(tmp_path: Path) -> None:
    tokens = {"secret": Caller("ann", ("system:authenticated",))}
    with cluster(tmp_path, fill, authorization="RBAC", tokens=tokens) as kubectl:
        code, _, err = kubectl("uninstall", "--yes")
        verbs = {one.verb for one in kubectl.hosted.server.requests.all}
    assert code == 1
    assert "this is for cluster administrators" in err
    assert verbs <= {"get", "list", "create"}


def test_device_taints_of_sessions_without_a_leader_are_deleted(tmp_path: Path) -> None:
    spec = {"taint": {"key": "gpuward.io/quarantine", "effect": "NoSchedule"}}
    ours = {"metadata": {"name": "gpuward-1", "labels": {"gpuward.io/session-uid": "u"}}}
    other = {"metadata": {"name": "gpuward-other"}}

    def devices(hosted: HostedServer) -> None:
        fill(hosted)
        load(hosted, r.DEVICE_TAINT_RULES, {**ours, "spec": spec}, {**other, "spec": spec})

    with cluster(tmp_path, devices) as kubectl:
        code, _, err = kubectl("uninstall", "--yes")
        assert code == 0, err
        assert "DeviceTaintRule gpuward-1 deleted" in err
        left, _ = kubectl.hosted.run(kubectl.hosted.server.client.list(r.DEVICE_TAINT_RULES))
    assert [each["metadata"]["name"] for each in left] == ["gpuward-other"]
