"""The two own repair Jobs with their privileges: a GPU reset and a restart of the node.

They need a node whose process 1 is its own: `systemctl reboot` in its mounts boots the node, and
`/usr/bin/nvidia-smi --gpu-reset` repairs the simulated GPU (docs/real-nodes.md).
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.conftest import install
from tests.node.test_node_drain import fault
from tests.support.real_cluster import RealCluster

_BREAK = """
import yaml
path = "/gpuward-test/node.yaml"
document = yaml.safe_load(open(path))
document["gpus"][3]["recovery_action"] = 1
open(path + ".new", "w").write(yaml.safe_dump(document, sort_keys=False))
import os
os.replace(path + ".new", path)
"""


@pytest.fixture
def repairing(cluster: RealCluster, boots: None) -> Iterator[RealCluster]:
    """gpuward with both Jobs, used without asking."""
    install(cluster)
    steps = {
        "ResetGPU": {"adapter": "ResetGPUJob", "timeout": "5m"},
        "RestartNode": {"adapter": "RestartNodeJob", "timeout": "5m"},
    }
    policy: dict[str, Any] = {"repair": {"mode": "Auto", "attempts": 20, "steps": steps}}
    components = ("repair-reset-gpu-job", "repair-restart-node-job")
    cluster.apply(cluster.overlay(*components, policy=policy))
    restart = ("rollout", "restart", "-n", "gpuward", "deployment/gpuward-remediator")
    cluster.kubectl(*restart)  # reads the policy now, not within the kubelet's next minute
    cluster.kubectl(*restart[:1], "status", *restart[2:], "--timeout=120s")
    cluster.until(cluster.ready, "ready with the new policy")
    yield cluster
    cluster.apply(cluster.overlay())


def test_restart_node_job(repairing: RealCluster, record_property) -> None:
    """The restart Job asks the node's init for a reboot, and the node comes back"""
    node = repairing.nodes[0]
    before = repairing.node(node)["status"]["nodeInfo"]["bootID"]
    printed = fault(repairing, node)
    repairing.on_host(node, "rm", "/gpuward-test/ready")
    repairing.until(
        lambda: repairing.node(node)["status"]["nodeInfo"]["bootID"] != before, "a new boot", 240
    )
    record_property("kernel line to new boot", time.time() - printed)
    repairing.power_on(node)
    repairing.until(lambda: repairing.phase(node) == "Released", "back in service", 240)
    record_property("kernel line to release", time.time() - printed)


def test_reset_gpu_job(repairing: RealCluster, record_property) -> None:
    """The reset Job resets the GPU that asks for it, in the same boot, and the node comes back"""
    node = repairing.nodes[0]
    before = repairing.node(node)["status"]["nodeInfo"]["bootID"]
    sessions = len(repairing.sessions(node))
    begin = time.monotonic()
    repairing.on_host(node, "python", "-c", _BREAK)
    repairing.until(lambda: len(repairing.sessions(node)) > sessions, "a session", 120)
    repairing.until(lambda: repairing.phase(node) == "Released", "back in service", 300)
    record_property("fault to release", time.monotonic() - begin)
    steps = repairing.sessions(node)[-1]["status"]["repair"]
    assert [(each["step"], each["state"]) for each in steps] == [("ResetGPU", "Proven")]
    assert repairing.node(node)["status"]["nodeInfo"]["bootID"] == before
