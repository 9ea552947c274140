"""Our own repair Jobs on a real API server: made from their PodTemplate, and nothing else.

The simulator stores admission policies and does not enforce them; what they decide is shown there
by tests/unit/daemonset/test_job_components.py. These need KUBEBUILDER_ASSETS.
"""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hack.sim.cluster.resource import JOBS, NODES, POD_TEMPLATES
from hack.sim.control_plane import ASSETS
from hack.sim.manifests import post_manifests
from rules.api import names
from rules.repair.adapter import ADAPTERS, NewObject, RequestFacts, filled
from rules.repair.objects import merged
from tests.e2e.admission.test_admission_policies import NODE, Installed, answer
from tests.support.cluster.either_cluster import a_cluster
from tests.support.cluster.manifest_builds import build

OWN = "gpuward"
FACTS = RequestFacts(
    node=NODE, node_uid="u", session="s", boot_id="b", gpu_uuids=("GPU-1",), reason="Xid79",
    step="ResetGPU",
)  # fmt: skip
Object = dict[str, Any]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get(ASSETS),
        reason=f"admission policies need a real API server: set {ASSETS}",
    ),
]


@pytest.fixture
async def installed() -> AsyncIterator[Installed]:
    """With both components; the two nodes are there."""
    objects = build("repair-reset-gpu-job", "repair-restart-node-job")
    async with a_cluster(secure=True) as cluster:
        await post_manifests(cluster.client, objects, namespace=OWN)
        await cluster.add_nodes(NODE)
        found = Installed(cluster, OWN)

        async def in_force() -> bool:
            async with found.remediator() as client:
                made = await job(found, "ResetGPUJob", "wrong")
                made["spec"]["template"]["spec"]["hostNetwork"] = True
                unknown = copy.deepcopy(made)
                labels = unknown["spec"]["template"]["metadata"]["labels"]
                labels["app.kubernetes.io/component"] = "miner"
                said = [
                    await answer(client.create(JOBS, each, OWN, dry_run=True))
                    for each in (made, unknown)
                ]
                foreign = {"metadata": {"labels": {"pool": "x"}}}
                said.append(await answer(client.patch(NODES, NODE, foreign, dry_run=True)))
            return all("ValidatingAdmissionPolicy" in each for each in said)

        await cluster.until(in_force, "the policies on Jobs in force")
        yield found


async def job(installed: Installed, adapter: str, name: str) -> Object:
    """As the remediator makes it: what the adapter says, over the PodTemplate that it read."""
    (action,) = ADAPTERS[adapter].steps.values()
    assert isinstance(action, NewObject)
    template = await installed.cluster.client.get(POD_TEMPLATES, action.pod, OWN)
    made: Object = merged(
        {"spec": {"template": template["template"]}}, filled(action.object, FACTS)
    )
    head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": OWN}}
    return merged(made, head)


async def test_a_job_of_ours_is_taken_and_none_that_is_anything_else(
    installed: Installed,
) -> None:
    async with installed.remediator() as client:
        for adapter in ("ResetGPUJob", "RestartNodeJob"):
            made = await job(installed, adapter, f"{adapter.lower()}-1")
            assert await answer(client.create(JOBS, made, OWN)) == ""
            for wrong in (
                {"containers": [{"name": "x", "image": "miner"}]},
                {"hostNetwork": True},
                {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]},
                {"serviceAccountName": "gpuward-remediator"},
            ):
                other = merged(made, {"metadata": {"name": "other"}})
                other["spec"]["template"]["spec"] = {**made["spec"]["template"]["spec"], **wrong}
                assert "nothing but PodTemplate" in await answer(client.create(JOBS, other, OWN))


async def test_without_a_mark_nobody_is_paused_and_who_is_may_be_let_back(
    installed: Installed,
) -> None:
    label = f"{names.PREFIX_GPU_DEPLOY}device-plugin"
    note = f"{names.COMPONENT_REMEDIATOR}: s-resetgpu-1"
    admin = installed.cluster.client
    paused = {
        "labels": {label: names.PAUSED_BY_US},
        "annotations": {names.ANNOTATION_RELEASE_GPU: note},
    }
    back = {
        "labels": {label: names.DEPLOYED},
        "annotations": {names.ANNOTATION_RELEASE_GPU: None},
    }
    async with installed.remediator() as client:
        await admin.patch(NODES, NODE, {"metadata": {"labels": {label: names.DEPLOYED}}})
        said = await answer(client.patch(NODES, NODE, {"metadata": paused}))
        assert "only of a node that carries its mark" in said
        await admin.patch(NODES, NODE, {"metadata": paused})
        assert await answer(client.patch(NODES, NODE, {"metadata": back})) == ""
