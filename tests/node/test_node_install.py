"""Install, upgrade, roll back and uninstall gpuward on real kubelets."""

import json
import shutil
from typing import Any

import pytest

from tests.node.conftest import install
from tests.support.real_cluster import ClusterError, Object, RealCluster

CHART = ("helm", "--namespace", "gpuward", "upgrade", "--install", "gpuward", "daemonset/chart")


def lasting(cluster: RealCluster) -> dict[str, Any]:
    """What of each node outlives heartbeats and could be ours."""
    found = {}
    for name in cluster.nodes:
        node = cluster.node(name)
        conditions = {c["type"] for c in node["status"]["conditions"]}
        found[name] = (
            dict(node["metadata"]["labels"]),
            {k: v for k, v in node["metadata"]["annotations"].items() if "gpuward" in k},
            node["spec"].get("taints", []),
            node["spec"].get("unschedulable", False),
            conditions,
        )
    return found


def remove(cluster: RealCluster) -> None:
    """The two commands of docs/install.md, where gpuward is installed."""
    if not cluster.kubectl("get", "namespace", "gpuward", "--ignore-not-found", "-o", "name"):
        return
    cluster.gpuward("uninstall", "--yes")
    cluster.kubectl("delete", "--ignore-not-found", "-k", str(cluster.overlay()))


def roll_out(cluster: RealCluster) -> None:
    """Wait until the rollouts of both workloads are over."""
    for workload in ("daemonset/gpuward-agent", "deployment/gpuward-remediator"):
        cluster.kubectl("rollout", "status", "-n", "gpuward", workload, "--timeout=180s")


def memory_mib(cluster: RealCluster, pod: Object) -> float:
    """What the cgroup of the pod's container counts, without the page cache that can go."""
    usage, stat = "memory.usage_in_bytes", "memory.stat"
    script = (
        f"cd /sys/fs/cgroup; cat memory.current 2>/dev/null || cat memory/{usage};"
        f"cat {stat} 2>/dev/null || cat memory/{stat}"
    )
    name = pod["metadata"]["name"]
    lines = cluster.kubectl("exec", "-n", "gpuward", name, "--", "sh", "-c", script).splitlines()
    inactive = next(int(x.split()[1]) for x in lines if x.split()[0].endswith("inactive_file"))
    return (int(lines[0]) - inactive) / 2**20


def test_install_by_kustomize(cluster: RealCluster, record_property) -> None:
    """Install by kustomize: agents, both replicas and every node's health are ready"""
    remove(cluster)
    record_property("ready", install(cluster))
    for node in cluster.nodes:
        labels = cluster.node(node)["metadata"]["labels"]
        assert labels["gpuward.io/health"] == "healthy"
        conditions = {c["type"]: c["status"] for c in cluster.node(node)["status"]["conditions"]}
        assert conditions["GPUHealthy"] == "True"
    for pod in (*cluster.pods("agent"), *cluster.pods("remediator")):
        restarts = [each["restartCount"] for each in pod["status"]["containerStatuses"]]
        assert restarts == [0], pod["metadata"]["name"]


def test_pods_run_as_shipped(installed: RealCluster, record_property) -> None:
    """Pods run as shipped: read-only root, users, logs, memory within the limits"""
    for component, uid, limit in (("agent", "0", 192), ("remediator", "65532", 512)):
        pod = installed.pods(component)[0]
        name = pod["metadata"]["name"]
        within = ("exec", "-n", "gpuward", name, "--")
        assert installed.kubectl(*within, "id", "-u").strip() == uid
        with pytest.raises(ClusterError, match="Read-only file system"):
            installed.kubectl(*within, "touch", "/opt/gpuward/new")
        assert installed.kubectl("logs", "-n", "gpuward", name).strip()
        used = memory_mib(installed, pod)
        record_property(f"{component} MiB", used)
        assert used < limit / 2


def test_upgrade_and_rollback(installed: RealCluster, record_property) -> None:
    """Upgrade and roll back both workloads: no node loses its health, no session opens"""
    before = {node: len(installed.sessions(node)) for node in installed.nodes}
    change = {"spec": {"template": {"metadata": {"annotations": {"example.com/version": "2"}}}}}
    for workload in ("daemonset/gpuward-agent", "deployment/gpuward-remediator"):
        installed.kubectl("patch", "-n", "gpuward", workload, "-p", json.dumps(change))
    roll_out(installed)
    record_property("upgraded", installed.until(installed.ready, "ready after the upgrade"))
    for workload in ("daemonset/gpuward-agent", "deployment/gpuward-remediator"):
        installed.kubectl("rollout", "undo", "-n", "gpuward", workload)
    roll_out(installed)
    record_property("rolled back", installed.until(installed.ready, "ready after the rollback"))
    assert {node: len(installed.sessions(node)) for node in installed.nodes} == before


def test_uninstall(cluster: RealCluster) -> None:
    """Uninstall amid a quarantine: no label, annotation, taint, cordon or condition is left"""
    remove(cluster)
    before = lasting(cluster)
    install(cluster)
    node = cluster.nodes[0]
    cluster.gpuward("quarantine", node, "--reason", "suite", "--yes")
    cluster.until(lambda: cluster.quarantined(node), "the quarantine")
    remove(cluster)
    cluster.until(lambda: lasting(cluster) == before, "every node as before", 120)


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
def test_chart(cluster: RealCluster, record_property) -> None:
    """Install, upgrade, roll back and uninstall by the Helm chart"""
    remove(cluster)
    before = lasting(cluster)
    cluster.until(
        lambda: not cluster.kubectl("get", "ns", "gpuward", "--ignore-not-found", "-o", "name"),
        "the namespace gone",
        120,
    )
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "gpuward",
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(namespace).encode())
    cluster.run(*CHART, "--wait", "--timeout=120s")
    assert {cluster.health(node) for node in cluster.nodes} == {"Unknown"}
    cluster.run(*CHART, "--set", "mode=Enforce", "--wait", "--timeout=120s")
    roll_out(cluster)
    cluster.run("helm", "rollback", "gpuward", "1", "-n", "gpuward", "--wait", "--timeout=120s")
    roll_out(cluster)
    cluster.gpuward("uninstall", "--yes")
    cluster.run("helm", "uninstall", "gpuward", "-n", "gpuward")
    cluster.kubectl("delete", "-k", "daemonset/crds")
    cluster.kubectl("delete", "namespace", "gpuward")
    cluster.until(lambda: lasting(cluster) == before, "every node as before", 120)


def test_profile_full(installed: RealCluster, record_property) -> None:
    """Profile full: privileged, with the host's processes and devices, and ready"""
    installed.apply(installed.overlay("full"))
    roll_out(installed)
    record_property("ready", installed.until(installed.ready, "ready with profile full"))
    name = installed.pods("agent")[0]["metadata"]["name"]
    within = ("exec", "-n", "gpuward", name, "--", "python", "-c")
    assert "'kmsg'" in installed.kubectl(*within, "import os; print(os.listdir('/dev'))")
    processes = "import os; print(sum(name.isdecimal() for name in os.listdir('/proc')))"
    assert int(installed.kubectl(*within, processes)) > 10, "the host's processes are in sight"


def test_profile_nvml_without_its_runtime_class(installed: RealCluster) -> None:
    """Profile nvml without RuntimeClass nvidia: one node at a time waits, the others go on"""
    installed.kubectl("delete", "runtimeclass", "nvidia", "--ignore-not-found")
    installed.apply(installed.overlay("nvml"))
    refused = ("events", "-n", "gpuward", "--field-selector", "reason=FailedCreate")

    def named() -> bool:
        return any("RuntimeClass" in event["message"] for event in installed.items(*refused))

    installed.until(named, "an Event that names the RuntimeClass", 150)
    assert len(installed.pods("agent")) == len(installed.nodes) - 1
    handler = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    runtime = {**handler, "metadata": {"name": "nvidia"}}
    installed.kubectl("apply", "-f", "-", stdin=json.dumps(runtime).encode())
    roll_out(installed)
    installed.until(installed.ready, "ready with profile nvml")
    installed.kubectl("delete", "runtimeclass", "nvidia")
