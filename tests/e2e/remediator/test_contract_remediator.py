"""What a stranger may rely on: bare nodes, bare objects, and nothing set up but the
definitions.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hack.sim.cluster.resource import NODES, Resource
from tests.support.remediator.remediator_process import (
    QUARANTINES,
    UNMARKED,
    RemediatorProcess,
    marks_of,
    phase,
    prepare,
    running,
    sessions,
    unmarked,
)

HEALTHS = Resource("gpuward.io", "v1alpha1", "gpunodehealths", False, "GPUNodeHealth")
TAINT = "gpuward.io/quarantine"


async def add_bare_node(cluster: Any, name: str, **labels: str) -> None:
    """A Node that no kubelet reported: no conditions, no boot."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    await cluster.client.create(NODES, body)


async def say_unhealthy(
    cluster: Any, name: str, *, publisher: dict[str, str] | None = None, boot: str = ""
) -> None:
    """The fewest words that make a Fatal verdict."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    incident = {
        "id": "one",
        "reason": "SomethingNobodyKnows",
        "severity": "Fatal",
        "level": "Drain",
        "active": True,
        "firstSeen": now,
    }
    body = {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUNodeHealth",
        "metadata": {"name": name},
    }
    created = await cluster.client.create(HEALTHS, body)
    created["status"] = {
        "publisher": publisher or {"heartbeat": now},
        "bootID": boot,
        "health": "Unhealthy",
        "incidents": [incident],
    }
    await cluster.client.update_status(HEALTHS, created)


async def ask(cluster: Any, name: str, node: str) -> None:
    """What a person needs to write: a node and one cause."""
    body = {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GPUQuarantine",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "causes": [{"source": "Human", "message": "smells burnt"}]},
    }
    await cluster.client.create(QUARANTINES, body)


async def test_bare_nodes_are_quarantined(cluster, tmp_path):
    await prepare(cluster)
    for name in ("bare-1", "bare.2"):
        await add_bare_node(cluster, name, **{"gpuward.io/gpus": "8"})
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)
    with running(one):
        await say_unhealthy(cluster, "bare.2")
        session = await phase(cluster, "bare.2", "Quarantined")
        node = await cluster.node("bare.2")
    taint = next(item for item in node["spec"]["taints"] if item["key"] == TAINT)
    assert (taint["value"], taint["effect"]) == ("SomethingNobodyKnows", "NoSchedule")
    assert node["spec"]["unschedulable"] is True
    note = json.loads(node["metadata"]["annotations"]["gpuward.io/session"])
    assert note["session"] == session["metadata"]["name"]
    assert not one.said('"level": "error"')


async def test_a_person_may_quarantine_a_node_that_the_policy_does_not_select(cluster, tmp_path):
    await prepare(cluster)
    await add_bare_node(cluster, "plain")
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)
    with running(one):
        await ask(cluster, "mine", "plain")
        await phase(cluster, "plain", "Quarantined")
        marks = marks_of(await cluster.node("plain"))
        assert marks["unschedulable"]
        assert marks["taints"] == ["Human"], "a cause without a code says who wanted it"
        await cluster.client.delete(QUARANTINES, "mine")
        await unmarked(cluster, "plain")

        await ask(cluster, "again", "plain")
        await phase(cluster, "plain", "Quarantined")
        patch = {"spec": {"unschedulable": None}}
        await cluster.client.patch(NODES, "plain", patch)
        await phase(cluster, "plain", "Cancelled")
        await unmarked(cluster, "plain")


async def test_a_verdict_counts_while_the_pod_it_names_is_ready_wherever_that_is(
    cluster, tmp_path
):
    await prepare(cluster)
    await cluster.add_nodes("gpu-1", "gpu-2", "gpu-3", **{"gpuward.io/gpus": "8"})
    pod = await cluster.add_pod("watcher", "gpu-1")
    await cluster.ready_pods("watcher", 1)
    for name, uid in (("gpu-1", pod["metadata"]["uid"]), ("gpu-2", "of-an-earlier-pod")):
        boot = (await cluster.node(name))["status"]["nodeInfo"]["bootID"]
        await say_unhealthy(
            cluster, name, publisher={"pod": "default/watcher", "podUID": uid}, boot=boot
        )
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)
    with running(one):
        await phase(cluster, "gpu-1", "Quarantined")
    assert await sessions(cluster, "gpu-2") == [], "its verdict is of a pod that is gone"
    assert marks_of(await cluster.node("gpu-2")) == UNMARKED
