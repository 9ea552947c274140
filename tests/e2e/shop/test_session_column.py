"""REASON of `kubectl get gq` on either cluster, with this release's definitions and older ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, NODES
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import (
    QUARANTINES,
    RemediatorProcess,
    leads,
    phase,
    prepare,
    running,
    sessions,
)

DEFINITION = "gpuquarantines.gpuward.io"
MILD = {"source": "Human", "reason": "Requested", "severity": "Degraded", "message": "it hums"}
GRAVE = {"source": "Human", "reason": "OnFire", "severity": "Fatal", "message": "smoke"}
TOUCHES = 5


async def use_older_definitions(cluster: Cluster) -> None:
    definition = copy.deepcopy(await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION))
    version = definition["spec"]["versions"][0]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["reason"]
    for column in version["additionalPrinterColumns"]:
        if column["name"] == "Reason":
            column["jsonPath"] = ".spec.causes[0].reason"
    await cluster.client.update(CUSTOM_RESOURCE_DEFINITIONS, definition)

    async def dropped() -> bool:
        """The API server takes new definitions up a moment after it has taken them."""
        body: dict[str, Any] = {
            "apiVersion": "gpuward.io/v1alpha1",
            "kind": "GPUQuarantine",
            "metadata": {"name": "probe"},
            "spec": {"nodeName": "nowhere", "causes": [MILD]},
        }
        made = await cluster.client.create(QUARANTINES, body)
        made["status"] = {"phase": "NodeGone", "reason": "Probe"}
        made = await cluster.client.update_status(QUARANTINES, made)
        await cluster.client.delete(QUARANTINES, "probe")
        return "reason" not in made["status"]

    await cluster.until(dropped, "a definition that drops status.reason")


@pytest.mark.parametrize(("older", "reason"), [(False, "OnFire"), (True, "Requested")])
async def test_reason_is_the_gravest_cause_and_older_definitions_cost_no_write_for_ever(
    cluster: Cluster, tmp_path: Path, older: bool, reason: str
) -> None:
    await prepare(cluster)
    await cluster.add_nodes("n1", "n2", "n3")
    await cluster.health.all_healthy(["n1", "n2", "n3"])
    if older:
        await use_older_definitions(cluster)
    one = RemediatorProcess(tmp_path, cluster.plane.kubeconfig)
    with running(one):
        await leads(cluster, "one")
        body = {
            "apiVersion": "gpuward.io/v1alpha1",
            "kind": "GPUQuarantine",
            "metadata": {"name": "drill"},
            "spec": {"nodeName": "n1", "causes": [MILD, GRAVE], "hold": True},
        }
        await cluster.client.create(QUARANTINES, body)
        await phase(cluster, "n1", "Quarantined")
        status, out, err = await cluster.kubectl("get", "gq", "--no-headers")
        assert status == 0, err
        (line,) = out.splitlines()
        assert line.split()[:4] == ["drill", "Quarantined", "Enforce", reason]

        (session,) = await sessions(cluster, "n1")
        written = session["metadata"]["resourceVersion"]
        sent = len(statuses(cluster))
        assert sent > 0
        for touch in range(TOUCHES):
            note = {"metadata": {"labels": {"example.com/touch": str(touch)}}}
            await cluster.client.patch(NODES, "n1", note)
        # Once another node's session is marked, what the touches asked for was looked at.
        other = {**body, "metadata": {"name": "other"}}
        other["spec"] = {"nodeName": "n2", "causes": [MILD], "level": "Cordon"}
        await cluster.client.create(QUARANTINES, other)
        await phase(cluster, "n2", "Marked")
        (session,) = await sessions(cluster, "n1")
        assert session["metadata"]["resourceVersion"] == written
        assert len(statuses(cluster)) == sent


def statuses(cluster: Cluster) -> list[Any]:
    return [
        call
        for call in cluster.plane.requests.all
        if (call.name, call.subresource, call.verb) == ("drill", "status", "patch")
    ]
