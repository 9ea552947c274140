"""`fleet`, `why` and the pages call a node's GPUs by one word, whatever its label still says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.sim.cluster import resource as r
from hack.sim.cluster.server import HostedServer
from remediator.kube.resources import AgentPodObject
from remediator.view.fleet_view import node_row
from remediator.view.node_view import node_page
from rules.api.nodes import HealthView, NodeView
from tests.support.remediator.kubectl_cluster import Kubectl, cluster, load
from tests.support.remediator.kubectl_objects import (
    HEALTHS,
    HEALTHY,
    Object,
    ago,
    node,
    verdict,
)
from tests.support.remediator.page_fleet import state


def agent(ready: str) -> Object:
    labels = {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "agent"}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": ago(1)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "agent-7",
            "namespace": "gpuward",
            "labels": labels,
            "uid": "agent-7",
        },
        "spec": {"nodeName": HEALTHY, "containers": [{"name": "agent", "image": "gpuward:1"}]},
        "status": {"conditions": [condition]},
    }


DOWN = [{"name": "nvml", "state": "Down"}]


def of_pod(**changes: Any) -> Object:
    return verdict(HEALTHY, publisher={"pod": "gpuward/agent-7", "podUID": "agent-7"}, **changes)


@pytest.mark.parametrize(
    ("pods", "verdicts", "word", "reason"),
    [
        pytest.param([agent("True")], [of_pod()], "Healthy", "", id="its agent lives"),
        pytest.param([agent("False")], [of_pod()], "Unknown", "AgentSilent", id="not Ready"),
        pytest.param([], [of_pod()], "Unknown", "AgentSilent", id="its pod is gone"),
        pytest.param(
            [agent("True")], [of_pod(bootID="before")], "Unknown", "OtherBoot", id="booted since"
        ),
        pytest.param(
            [], [verdict(HEALTHY, publisher={"heartbeat": ago(50)})], "Unknown", "AgentSilent",
            id="no heartbeat",
        ),
        pytest.param([], [verdict(HEALTHY)], "Healthy", "", id="no pod, and it beats"),
        pytest.param(
            [agent("True")], [of_pod(health="Degraded", reason="Slow")], "Degraded", "Slow",
            id="the label lags",
        ),
        pytest.param(
            [agent("True")], [of_pod(health="Unhealthy", reason="GPULost", sources=DOWN)],
            "Unhealthy", "GPULost", id="blind, having seen it go wrong",
        ),
        pytest.param([agent("True")], [], "Unknown", "NoVerdict", id="no verdict"),
    ],
)  # fmt: skip
def test_fleet_why_and_the_pages_agree(
    tmp_path: Path, pods: list[Object], verdicts: list[Object], word: str, reason: str
) -> None:
    def fill(hosted: HostedServer) -> None:
        load(hosted, r.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace",
                                    "metadata": {"name": "gpuward"}})  # fmt: skip
        load(hosted, r.NODES, node(HEALTHY))
        load(hosted, r.PODS, *pods)
        made = hosted.run(hosted.server.client.list(r.PODS))[0]
        for one in verdicts:
            status = {**one["status"], "publisher": dict(one["status"]["publisher"])}
            if made and "podUID" in status["publisher"]:
                status["publisher"]["podUID"] = made[0]["metadata"]["uid"]
            load(hosted, HEALTHS, {**one, "status": status})

    with cluster(tmp_path, fill) as kubectl:
        (row,) = json.loads(kubectl("fleet", "-o", "json")[1])["items"]
        told = kubectl("why", HEALTHY)[1]
        paged = _pages(kubectl)
    assert (row["health"], row["reason"]) == (word, reason)
    said = re.search(r"^health +(\w+)", told, re.MULTILINE)
    assert said is not None
    assert said[1] == word
    assert set(paged) == ({word.lower()} if verdicts else {"healthy"}), "whatever was read"


def _pages(kubectl: Kubectl) -> tuple[str, ...]:
    """The words of the front page and of the node's own, of a replica that read the verdict."""
    (on,) = kubectl.hosted.run(kubectl.hosted.server.client.list(r.NODES))[0]
    pods, _ = kubectl.hosted.run(kubectl.hosted.server.client.list(r.PODS))
    listed, _ = kubectl.hosted.run(kubectl.hosted.server.client.list(HEALTHS))
    agents = [msgspec.convert(pod, AgentPodObject).as_agent() for pod in pods]
    of = state(
        [msgspec.convert(on, NodeView)],
        read={one["metadata"]["name"]: msgspec.convert(one, HealthView) for one in listed},
    )
    of = replace(of, snapshot=replace(of.snapshot, agents={pod.uid: pod for pod in agents}))
    seen = of.snapshot.nodes[HEALTHY]
    page = node_page(HEALTHY, of)
    assert page is not None
    assert page.node is not None
    return node_row(seen, of).health, page.node.health
