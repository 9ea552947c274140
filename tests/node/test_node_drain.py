"""A fault on a node with real pods: taint, cordon, drain within budgets and grace, release."""

import json
import time

import pytest

from tests.support.real_cluster import TAG, Object, RealCluster, is_ready

XID_79 = "NVRM: Xid (PCI:{}): 79, pid=1234, name=python, GPU has fallen off the bus."
WORK = "gpuward-work"
DRAINED = frozenset({"Quarantined", "Repairing"})


def workload(name: str, *, replicas: int, grace: int, stop: int) -> list[Object]:
    """A Deployment of GPU pods and its budget of one pod at a time."""
    labels = {"app": name}
    container = {
        "name": "main",
        "image": f"gpuward-agent:{TAG}",
        "command": ["sleep", "infinity"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(stop)]}}},
    }
    pod = {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": [container]},
    }
    meta = {"name": name, "namespace": WORK}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        },
    ]


def run_work(cluster: RealCluster, node: str, *objects: Object) -> None:
    """Make the objects in a namespace of their own and wait until their pods run on the node."""
    others = [name for name in cluster.nodes if name != node]
    for other in others:
        cluster.kubectl("cordon", other)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WORK}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [namespace, *objects]}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(listed).encode())
    for each in objects:
        if each["kind"] == "Deployment":
            name = each["metadata"]["name"]
            cluster.kubectl("rollout", "status", "-n", WORK, f"deploy/{name}", "--timeout=60s")
    for other in others:
        cluster.kubectl("uncordon", other)


def on(cluster: RealCluster, node: str) -> list[Object]:
    """The workload's pods on the node."""
    return [p for p in cluster.items("pods", "-n", WORK) if p["spec"].get("nodeName") == node]


def fault(cluster: RealCluster, node: str) -> float:
    """A GPU of the node falls off the bus; when the driver printed it. Another GPU each time: one
    that falls off for a third time has to be replaced.
    """
    gpus = cluster.get("gpunodehealth", node)["status"]["gpus"]
    gpu = gpus[len(cluster.sessions(node)) % len(gpus)]
    return cluster.kernel_line(node, XID_79.format(gpu["pci"].rpartition(":")[0]))


@pytest.fixture
def work(installed: RealCluster):
    yield installed
    installed.kubectl("delete", "namespace", WORK, "--ignore-not-found", "--grace-period=1")


def returned(cluster: RealCluster, node: str, record_property) -> None:
    """Boot the node with healthy GPUs; it comes back into service."""
    begin = time.monotonic()
    cluster.boot(node)
    booted = time.monotonic()
    cluster.until(lambda: cluster.phase(node) == "Released", f"{node} back in service", 240)
    record_property("boot", booted - begin)
    record_property("new boot to release", time.monotonic() - booted)
    spec = cluster.node(node)["spec"]
    assert not spec.get("unschedulable")
    assert not [t for t in spec.get("taints", ()) if t["key"].startswith("gpuward.io")]


def test_fault_drain_release(work: RealCluster, boots: None, record_property) -> None:
    """Fault, drain of pods with preStop within a budget, new boot, release"""
    node = work.nodes[0]
    run_work(work, node, *workload("serving", replicas=3, grace=60, stop=8))
    running = {p["metadata"]["name"] for p in on(work, node)}
    assert len(running) == 3

    printed = fault(work, node)
    work.until(lambda: work.quarantined(node), "taint and cordon", 60)
    record_property("kernel line to taint and cordon seen", time.time() - printed)
    left: list[float] = []
    fewest = 3

    def gone() -> bool:
        nonlocal fewest
        pods = work.items("pods", "-n", WORK)
        ready = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
        able = [
            p
            for p in ready
            if any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in p["status"].get("conditions", ())
            )
        ]
        fewest = min(fewest, len(able))
        leaving = [p for p in pods if p["metadata"].get("deletionTimestamp")]
        if leaving:
            left.append(time.time())
        return not [p for p in pods if p["metadata"]["name"] in running]

    work.until(gone, "all pods gone", 180)
    record_property("kernel line to first eviction seen", min(left) - printed)
    assert fewest >= 2, "the budget allows one pod less at a time"
    work.until(lambda: work.phase(node) in DRAINED, "the drained node", 60)
    returned(work, node, record_property)


def test_gang(work: RealCluster, boots: None, record_property) -> None:
    """The pods of a gang on a failing node are evicted together"""
    node = work.nodes[0]
    deployment, _ = workload("training", replicas=3, grace=30, stop=1)
    deployment["kind"], deployment["apiVersion"] = "Job", "batch/v1"
    spec = deployment["spec"]
    template = spec["template"]
    template["metadata"]["labels"]["training.kubeflow.org/job-name"] = "training"
    template["spec"]["restartPolicy"] = "Never"
    deployment["spec"] = {"parallelism": 3, "completions": 3, "template": template}
    run_work(work, node, deployment)
    work.until(lambda: len(on(work, node)) == 3, "three pods of the gang")
    running = {p["metadata"]["name"] for p in on(work, node)}
    fault(work, node)
    times: dict[str, float] = {}

    def asked() -> bool:
        for pod in work.items("pods", "-n", WORK):
            if pod["metadata"].get("deletionTimestamp"):
                times.setdefault(pod["metadata"]["name"], time.time())
        present = {p["metadata"]["name"] for p in work.items("pods", "-n", WORK)}
        for name in running - present:
            times.setdefault(name, time.time())
        return running <= set(times)

    work.until(asked, "all pods of the gang evicted", 120)
    evicted = [times[name] for name in running]
    record_property("first to last eviction", max(evicted) - min(evicted))
    assert max(evicted) - min(evicted) < 10
    work.until(lambda: work.phase(node) in DRAINED, "the drained node", 60)
    returned(work, node, record_property)


def test_both_replicas_on_the_failing_node(
    work: RealCluster, boots: None, record_property
) -> None:
    """Both replicas of the remediator run on the node that fails: it is drained all the same"""
    node, other = work.nodes[:2]
    work.kubectl("cordon", other)
    work.kubectl("rollout", "restart", "-n", "gpuward", "deployment/gpuward-remediator")
    work.until(lambda: replicas_on(work, node) == 2, "both replicas on one node", 120)
    work.kubectl("uncordon", other)
    run_work(work, node, *workload("serving", replicas=2, grace=10, stop=1))
    printed = fault(work, node)
    work.until(lambda: work.phase(node) in DRAINED, "the drained node", 180)
    record_property("kernel line to drained", time.time() - printed)
    returned(work, node, record_property)


def replicas_on(cluster: RealCluster, node: str) -> int:
    """Ready replicas of the remediator on the node; 0 while others run elsewhere."""
    pods = cluster.pods("remediator")
    here = [p for p in pods if p["spec"].get("nodeName") == node and is_ready(p)]
    return len(here) if len(here) == len(pods) else 0
