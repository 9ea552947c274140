"""A real remediator process on a cluster: from a verdict to a drained node and back."""

from __future__ import annotations

import asyncio

from hack.sim.cluster.controllers.pods import node_of
from hack.sim.cluster.fleet.fleet import Budget, Serving
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import EVENTS
from tests.support.remediator.remediator_process import (
    UNMARKED,
    RemediatorProcess,
    condition_of,
    leads,
    marks_of,
    phase,
    running,
    sessions,
    steps,
    unmarked,
)

WEB = Serving(name="web", replicas=3, pool="gpu", gpus=8, budget=Budget(max_unavailable=1))
XID = "Xid79GPUFallenOffBus"


def remediator(cluster, folder, **options):
    return RemediatorProcess(folder, cluster.plane.kubeconfig, **options)


async def test_a_fatal_verdict_takes_the_node_out_within_the_budget_and_repair_brings_it_back(
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
        assert marks_of(await fleet.node(node)) == {
            "unschedulable": True,
            "taints": [XID],
            "label": "quarantined",
            "session": True,
        }
        after = await fleet.ready_pods("web", 3)
        assert node not in {node_of(pod) for pod in after}

        await fleet.health.healthy(node)
        session = await phase(fleet, node, "Released")
        assert steps(session)[-2:] == ["Validating", "Released"]
        await unmarked(fleet, node)
        assert await asyncio.to_thread(one.stop) == 0
        events, _ = await fleet.client.list(EVENTS, "default")
        uid = (await fleet.node(node))["metadata"]["uid"]
        mine = [e for e in events if e["involvedObject"].get("uid") == uid]
        reasons = [e["reason"] for e in mine if e["reason"].startswith("Quarantine")]
        phases = ("Marked", "Draining", "Quarantined", "Validating", "Released")
        assert sorted(reasons) == sorted(f"Quarantine{phase}" for phase in phases)
        assert {e["type"] for e in mine} <= {"Normal", "Warning"}
        assert not [e["message"] for e in mine if "web-" in e["message"]], "no pods in Events"
        (told,) = await told_owners(fleet)
        about = ("Pod", "serving", pod["metadata"]["name"], pod["metadata"]["uid"])
        its = told["involvedObject"]
        assert (its["kind"], its["namespace"], its["name"], its["uid"]) == about
        said = f"Evicted from node {node}, which is taken out of service for {XID} (Fatal) on GPU "
        assert told["message"].startswith(said)
        assert session["metadata"]["name"] in told["message"]


async def told_owners(fleet):
    events, _ = await fleet.client.list(EVENTS, "serving")
    return [event for event in events if event["reason"].startswith("Quarantine")]


async def test_shadow_says_what_it_would_do_and_touches_no_node_and_no_pod(fleet, tmp_path):
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
    assert marks_of(await fleet.node(node)) == UNMARKED
    assert await told_owners(fleet) == [], "nobody was evicted"
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


async def test_a_permanently_blocking_pdb_is_named_on_the_first_pass_and_kept(fleet, tmp_path):
    alone = Serving(name="solo", replicas=1, pool="gpu", gpus=8, budget=Budget(min_available=1))
    await fleet.add(alone)
    pod = (await fleet.ready_pods("solo", 1))[0]
    node = node_of(pod)
    with running(remediator(fleet, tmp_path)):
        await leads(fleet, "one")
        await fleet.health.fail(node, XID_79)
        await phase(fleet, node, "Draining")

        async def blocked():
            session = (await sessions(fleet, node))[-1]
            return session if condition_of(session, "Blocked").get("status") == "True" else None

        session = await fleet.until(blocked, "condition Blocked")
        found = session["status"]["drain"]["blocked"][0]
        assert found["pdb"] == "serving/solo"
        assert found["permanent"] is True
        assert [one["name"] for one in found["pods"]["named"]] == [
            f"serving/{pod['metadata']['name']}"
        ]
        assert "Deployment" in found["owner"]
        assert "solo" in found["owner"]
        assert condition_of(session, "NeedsHuman")["status"] == "True"
        assert (await fleet.ready_pods("solo", 1))[0]["metadata"]["uid"] == pod["metadata"]["uid"]
