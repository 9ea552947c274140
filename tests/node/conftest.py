"""The cluster of the suite: skipped without GPUWARD_NODE_KUBECONFIG. Each step's seconds go to the
table in the file that GPUWARD_NODE_TABLE names.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.real_cluster import CONTROL, GPU_LABEL, KUBECONFIG, RealCluster

_TABLE = os.environ.get("GPUWARD_NODE_TABLE", "")
_rows: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not KUBECONFIG:
            item.add_marker(pytest.mark.skip(reason="GPUWARD_NODE_KUBECONFIG is not set"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.skipped:
        step = (item.function.__doc__ or item.name).strip().splitlines()[0]
        if (bracket := item.name.find("[")) > 0:
            step += f" ({item.name[bracket + 1 : -1]})"
        measured = ", ".join(f"{name} {value:.1f}" for name, value in item.user_properties)
        _rows.append(f"| {step} | {report.duration:.0f} | {measured} | {report.outcome} |")
    return report


def pytest_sessionfinish() -> None:
    if _TABLE and _rows:
        head = "| step | seconds | measured (s, memory in MiB) | result |\n|---|---|---|---|\n"
        Path(_TABLE).write_text(head + "\n".join(_rows) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def cluster() -> RealCluster:
    """The cluster and its nodes that may carry agents."""
    one = RealCluster()
    one.nodes = tuple(
        node["metadata"]["name"]
        for node in one.items("nodes")
        if "node-role.kubernetes.io/control-plane" not in node["metadata"].get("labels", {})
    )
    assert len(one.nodes) >= 2, "the suite needs two nodes"
    return one


@pytest.fixture
def installed(cluster: RealCluster) -> RealCluster:
    """gpuward in Enforce by kustomize, both nodes healthy and without a session."""
    install(cluster)
    return cluster


@pytest.fixture
def control() -> None:
    """For steps that stop a kubelet or containerd."""
    if not CONTROL:
        pytest.skip("GPUWARD_NODE_CONTROL is not set")


@pytest.fixture
def boots(cluster: RealCluster, control: None) -> None:
    """For steps that need a node with a boot of its own."""
    if not cluster.boots():
        pytest.skip("the nodes of this cluster cannot be booted")


def install(cluster: RealCluster) -> float:
    """Install what is missing and repair the simulated hardware; seconds until all is ready."""
    for node in cluster.nodes:
        cluster.kubectl("label", "node", node, f"{GPU_LABEL}=true", "--overwrite")
        patch = (
            '{"status":{"capacity":{"nvidia.com/gpu":"8"},"allocatable":{"nvidia.com/gpu":"8"}}}'
        )
        cluster.kubectl("patch", "node", node, "--subresource=status", "-p", patch)
    cluster.apply(cluster.overlay())
    for node in cluster.nodes:
        if cluster.health(node) == "Unhealthy" and cluster.boots():
            # What an earlier step that failed left.
            cluster.boot(node)
        else:
            cluster.power_on(node)
    return cluster.until(cluster.ready, "gpuward ready and every node Healthy", 120)
