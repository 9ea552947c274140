"""What a stranger may rely on: bare nodes, bare objects, and nothing set up but the
definitions.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

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


async def unmarked(cluster: Any, node: str) -> None:
    async def clean() -> bool:
        return marks_of(await cluster.node(node)) == UNMARKED

    await cluster.until(clean, f"{node} as it was")


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


async def test_a_mark_left_on_an_unselected_node_is_taken_off_after_a_restart(cluster, tmp_path):
    await prepare(cluster)
    await add_bare_node(cluster, "once-gpu", **{"gpuward.io/gpus": "8"})
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)
    with running(one):
        await ask(cluster, "mine", "once-gpu")
        await phase(cluster, "once-gpu", "Quarantined")
        one.kill()
        await cluster.client.delete(QUARANTINES, "mine")
        patch = {"metadata": {"labels": {"gpuward.io/gpus": None}}}
        await cluster.client.patch(NODES, "once-gpu", patch)
        one.start()
        await unmarked(cluster, "once-gpu")


@pytest.mark.slow  # scenarios of session/sight hold the same in virtual time
async def test_a_marked_node_whose_labels_are_gone_is_not_forgotten(cluster, tmp_path):
    """In neither watch: beside the selection, and without the label that marked ones carry."""
    await prepare(cluster)
    await add_bare_node(cluster, "once-gpu", **{"gpuward.io/gpus": "8"})
    gone = {"metadata": {"labels": {"gpuward.io/gpus": None, "gpuward.io/quarantine": None}}}

    async def labelled():
        return marks_of(await cluster.node("once-gpu"))["label"] == "quarantined"

    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)
    with running(one):
        await ask(cluster, "mine", "once-gpu")
        await phase(cluster, "once-gpu", "Quarantined")
        await cluster.client.patch(NODES, "once-gpu", gone)
        await cluster.until(labelled, "our label back")
        await cluster.client.patch(NODES, "once-gpu", {"spec": {"unschedulable": None}})
        await phase(cluster, "once-gpu", "Cancelled")
        await unmarked(cluster, "once-gpu")

        await ask(cluster, "again", "once-gpu")
        await phase(cluster, "once-gpu", "Quarantined")
        await cluster.client.patch(NODES, "once-gpu", gone)
        await cluster.client.delete(NODES, "once-gpu")
        await add_bare_node(cluster, "once-gpu")
        await phase(cluster, "once-gpu", "NodeGone")
    assert marks_of(await cluster.node("once-gpu")) == UNMARKED


@pytest.mark.slow  # scenarios of session/people hold the same in virtual time
async def test_a_released_fault_that_comes_to_another_gpu_is_asked_about_once(cluster, tmp_path):
    await prepare(cluster)
    for name in ("gpu-1", "gpu-2"):
        await add_bare_node(cluster, name, **{"gpuward.io/gpus": "8"})
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)

    async def publish(*gpus: str) -> None:
        health = await cluster.client.get(HEALTHS, "gpu-1")
        health["status"]["incidents"][0]["gpus"] = list(gpus)
        await cluster.client.update_status(HEALTHS, health)

    async def release() -> None:
        name = (await phase(cluster, "gpu-1", "Quarantined"))["metadata"]["name"]
        patch = {"spec": {"release": {"by": "ada", "reason": "let it"}}}
        await cluster.client.patch(QUARANTINES, name, patch)
        await unmarked(cluster, "gpu-1")

    with running(one):
        await say_unhealthy(cluster, "gpu-1")
        await publish("GPU-0")
        await release()
        await publish("GPU-0", "GPU-1")
        await release()
        await publish("GPU-1")
        await asyncio.sleep(1)
    first, second = await sessions(cluster, "gpu-1")
    seen = [session["status"]["evidence"]["seenWhenEnded"] for session in (first, second)]
    assert [each["gpus"] for (each,) in seen] == [["GPU-0"], ["GPU-0", "GPU-1"]]
    opened = second["status"]["timeline"][0]["message"]
    assert opened.endswith(
        f"after a person ended {first['metadata']['name']}, SomethingNobodyKnows came to GPU-1"
    )


async def test_in_shadow_nodes_stay_as_they_are_and_an_old_mark_still_comes_off(cluster, tmp_path):
    await prepare(cluster)
    for name in ("bare-1", "bare-2"):
        await add_bare_node(cluster, name, **{"gpuward.io/gpus": "8"})
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)
    with running(one):
        await ask(cluster, "real", "bare-1")
        await phase(cluster, "bare-1", "Quarantined")
        # In a thread, so that the cluster in this process can take the lease back meanwhile.
        assert await asyncio.to_thread(one.stop) == 0
    untouched = await cluster.node("bare-2")
    two = RemediatorProcess(tmp_path, cluster.plane.kubeconfig, name="two")
    two.flags.append("--shadow")
    with running(two):
        await say_unhealthy(cluster, "bare-2")
        session = await phase(cluster, "bare-2", "Marked")
        patch = {"spec": {"release": {"by": "alice", "reason": "drill over"}}}
        await cluster.client.patch(QUARANTINES, "real", patch)
        await phase(cluster, "bare-1", "Released")
        await unmarked(cluster, "bare-1")
    assert session["status"]["mode"] == "Shadow"
    assert await cluster.node("bare-2") == untouched


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
