"""Programs and parts of the node that die or hang: what gpuward does meanwhile, and afterwards."""

import signal
import time

import pytest

from tests.node.test_node_drain import DRAINED, fault, returned
from tests.support.real_cluster import Object, RealCluster

LEASE = ("lease", "-n", "gpuward", "gpuward-remediator")


def restarts(pod: Object) -> int:
    """How often the pod's container was started again."""
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def leader(cluster: RealCluster) -> Object:
    """The pod that holds the Lease."""
    holder = cluster.get(*LEASE)["spec"].get("holderIdentity") or ""
    return next(p for p in cluster.pods("remediator") if p["metadata"]["name"] in holder)


def quiet(cluster: RealCluster) -> dict[str, int]:
    """How many sessions each node has had."""
    return {node: len(cluster.sessions(node)) for node in cluster.nodes}


@pytest.mark.parametrize(
    ("number", "within_s"),
    [(signal.SIGKILL, 60), (signal.SIGSTOP, 180)],
    ids=["killed", "stopped"],
)
def test_agent(
    installed: RealCluster, record_property, number: signal.Signals, within_s: float
) -> None:
    """The agent is killed or hangs: the kubelet replaces it and no session opens"""
    node, before = installed.nodes[0], quiet(installed)
    pod = installed.agent(node)
    installed.signal(pod, number, "gpuward-agent")
    took = installed.until(
        lambda: restarts(installed.agent(node)) > restarts(pod) and installed.ready(),
        "the agent replaced",
        within_s,
    )
    record_property(f"{number.name} to ready", took)
    assert quiet(installed) == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_leader_amid_a_session(
    installed: RealCluster, boots: None, record_property, number: signal.Signals
) -> None:
    """The leading remediator is killed or hangs amid a session: it is carried on to its end"""
    node = installed.nodes[0]
    lead = leader(installed)
    fault(installed, node)
    installed.signal(lead, number, "gpuward-remediator")
    begin = time.monotonic()
    installed.until(lambda: installed.phase(node) in DRAINED, "the drained node", 180)
    record_property(f"{number.name} to drained", time.monotonic() - begin)
    assert len([s for s in installed.sessions(node) if s["status"]["phase"] in DRAINED]) == 1
    returned(installed, node, record_property)


def test_agents_rolled_out_amid_a_session(
    installed: RealCluster, boots: None, record_property
) -> None:
    """A rollout of the agents amid a session changes nothing about it"""
    node = installed.nodes[0]
    fault(installed, node)
    installed.until(lambda: installed.quarantined(node), "taint and cordon")
    installed.kubectl("rollout", "restart", "-n", "gpuward", "daemonset/gpuward-agent")
    status = ("rollout", "status", "-n", "gpuward", "daemonset/gpuward-agent", "--timeout=240s")
    installed.kubectl(*status)
    assert installed.phase(node) in DRAINED
    assert installed.health(node) == "Unhealthy"
    returned(installed, node, record_property)


@pytest.mark.parametrize("part", ["kubelet", "containerd"])
def test_node_part_stopped(
    installed: RealCluster, control: None, record_property, part: str
) -> None:
    """kubelet or containerd is stopped for a minute and a half: no session opens"""
    node, before = installed.nodes[0], quiet(installed)
    pod = installed.agent(node)
    installed.control(node, f"{part}-stop")
    try:
        time.sleep(90)
        assert installed.health(node) == "Healthy"
    finally:
        installed.control(node, f"{part}-start")
    record_property("started to ready", installed.until(installed.ready, "ready again", 180))
    assert quiet(installed) == before
    assert restarts(installed.agent(node)) == restarts(pod), "the agent went on"
