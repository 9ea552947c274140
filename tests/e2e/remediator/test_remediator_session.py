"""A real remediator process on a cluster: from a health status to a drained node and back."""

import asyncio
import time

from hack.sim.cluster.controllers.pods import node_of
from hack.sim.cluster.fleet.fleet import Budget, Serving
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS, XID_79
from hack.sim.cluster.resource import EVENTS
from rules.api.timestamps import format_time
from tests.support.cluster.made import made
from tests.support.remediator.remediator_process import (
    UNTAINTED,
    RemediatorProcess,
    leads,
    not_quarantined,
    phase,
    prepare,
    running,
    sessions,
    steps,
    taints_of,
)

WEB = Serving(name="web", replicas=3, pool="gpu", gpus=8, budget=Budget(max_unavailable=1))
XID = "Xid79GPUFallenOffBus"


def remediator(cluster, folder, **options):
    return RemediatorProcess(folder, cluster.plane.kubeconfig, **options)


async def test_a_fatal_fault_quarantines_the_node_within_the_budget_and_repair_releases_it(
    fleet, tmp_path
):
    await fleet.add(WEB)
    pod = (await fleet.ready_pods("web", 3))[0]
    node = node_of(pod)
    await fleet.budget_allows("web", "serving")
    one = remediator(fleet, tmp_path)
    with running(one):
        await leads(fleet, "one")
        await fleet.health.fail(node, XID_79)
        session = await phase(fleet, node, "Quarantined")
        assert steps(session) == ["Pending", "Marked", "Draining", "Quarantined"]
        assert session["status"]["drain"]["evicted"] == 1
        assert session["status"]["evidence"]["incidents"][0]["evidence"]
        assert taints_of(await fleet.node(node)) == {
            "unschedulable": True,
            "taints": [XID],
            "label": "true",
            "session": True,
        }
        after = await fleet.ready_pods("web", 3)
        assert node not in {node_of(pod) for pod in after}

        await fleet.health.healthy(node)
        session = await phase(fleet, node, "Released")
        assert steps(session)[-2:] == ["Validating", "Released"]
        await not_quarantined(fleet, node)
        assert await asyncio.to_thread(one.stop) == 0
        events, _ = await fleet.client.list(EVENTS, "default")
        uid = (await fleet.node(node))["metadata"]["uid"]
        mine = [e for e in events if e["involvedObject"].get("uid") == uid]
        reasons = [e["reason"] for e in mine if e["reason"].startswith("Quarantine")]
        phases = ("Marked", "Quarantined", "Released")
        assert sorted(reasons) == sorted(f"Quarantine{phase}" for phase in phases)
        assert {e["type"] for e in mine} <= {"Normal", "Warning"}
        assert not [e["message"] for e in mine if "web-" in e["message"]], "no pods in Events"
        (sent,) = await reported_owners(fleet)
        about = ("Pod", "serving", pod["metadata"]["name"], pod["metadata"]["uid"])
        its = sent["involvedObject"]
        assert (its["kind"], its["namespace"], its["name"], its["uid"]) == about
        expected = f"Evicted from node {node}, which is out of service for {XID} (Fatal) on GPU "
        assert sent["message"].startswith(expected)
        assert session["metadata"]["name"] in sent["message"]


async def reported_owners(fleet):
    events, _ = await fleet.client.list(EVENTS, "serving")
    return [event for event in events if event["reason"].startswith("Quarantine")]


async def test_shadow_reports_its_steps_and_changes_no_node_and_no_pod(fleet, tmp_path):
    await fleet.add(WEB)
    pods = await fleet.ready_pods("web", 3)
    node = node_of(pods[0])
    await fleet.budget_allows("web", "serving")
    one = remediator(fleet, tmp_path)
    one.flags.append("--shadow")
    with running(one):
        await leads(fleet, "one")
        await fleet.health.fail(node, XID_79)
        session = await phase(fleet, node, "Marked")

        async def probed():
            return (await sessions(fleet, node))[-1]["status"].get("drain")

        await fleet.until(probed, "the answer of the dry run")
        assert session["status"]["mode"] == "Shadow"
        await fleet.health.healthy(node)
        await phase(fleet, node, "Released")
    assert taints_of(await fleet.node(node)) == UNTAINTED
    assert await reported_owners(fleet) == [], "nobody was evicted"
    assert {p["metadata"]["uid"] for p in await fleet.ready_pods("web", 3)} == {
        p["metadata"]["uid"] for p in pods
    }
    written = [
        entry
        for entry in fleet.plane.requests.mutations
        if entry.agent.startswith("gpuward-remediator")
    ]
    assert {e.resource for e in written} <= {"events", "leases", "gpuquarantines", "pods"}
    assert all(e.dry_run and e.subresource == "eviction" for e in written if e.resource == "pods")


async def say_unhealthy(cluster, name, pod_uid):
    """A Fatal health status of the pod that has this UID."""
    incident = {
        "id": "one", "reason": "SomethingNobodyKnows", "severity": "Fatal", "level": "Drain",
        "active": True, "firstSeen": format_time(time.time()),
    }  # fmt: skip
    status = {
        "publisher": {"pod": "default/watcher", "podUID": pod_uid},
        "bootID": (await cluster.node(name))["status"]["nodeInfo"]["bootID"],
        "health": "Unhealthy",
        "incidents": [incident],
    }
    await made(cluster.client, GPU_NODE_HEALTHS, name, status=status)


async def test_a_health_status_is_valid_while_its_agent_pod_is_ready_in_any_namespace(
    cluster, tmp_path
):
    await prepare(cluster)
    await cluster.add_nodes("gpu-1", "gpu-2", "gpu-3", **{"gpuward.io/gpus": "8"})
    pod = await cluster.add_pod("watcher", "gpu-1")
    await cluster.ready_pods("watcher", 1)
    await say_unhealthy(cluster, "gpu-1", pod["metadata"]["uid"])
    await say_unhealthy(cluster, "gpu-2", "of-an-earlier-pod")
    with running(remediator(cluster, tmp_path)):
        await phase(cluster, "gpu-1", "Quarantined")
    assert await sessions(cluster, "gpu-2") == [], "its health status is of a pod that is gone"
    assert taints_of(await cluster.node("gpu-2")) == UNTAINTED
