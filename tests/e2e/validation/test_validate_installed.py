"""Component validate as kustomize builds it: its rights and its admission policies let a test be
made.
"""

from __future__ import annotations

import pytest

from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79
from hack.sim.cluster.resource import JOBS, RUNTIME_CLASSES
from hack.sim.manifests import post_manifests
from tests.support.cluster.either_cluster import a_cluster
from tests.support.cluster.manifest_builds import build, one
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    phase,
    running,
)
from tests.support.scenario.repair_world import says

REMEDIATOR = "gpuward-remediator"
NODES = [f"gpu-000{n}" for n in range(3)]
SAID = says("pass")


@pytest.mark.slow
async def test_what_the_component_installs_is_enough_for_a_test_and_its_record(
    tmp_path,
):
    objects = build("validate")
    template = one(objects, "PodTemplate", "gpuward-validate")["template"]
    template["metadata"]["annotations"] = {
        "sim.gpuward.io/finish-after": "0.3",
        "sim.gpuward.io/message": SAID,
    }
    async with a_cluster(secure=True) as cluster:
        runtime = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "nvidia"},
            "handler": "nvidia",
        }
        await cluster.client.create(RUNTIME_CLASSES, runtime)
        await post_manifests(cluster.client, objects, namespace="gpuward")
        await cluster.add(pool=Pool(name="gpu", nodes=len(NODES)))
        await cluster.health.all_healthy(NODES)
        access = await cluster.plane.service_account_kubeconfig("gpuward", REMEDIATOR)
        remediator = RemediatorProcess(tmp_path, access, policy=QUICK)
        remediator.flags.append("--builtin-validation")
        with running(remediator):
            await leads(cluster, "one")
            await cluster.health.fail(NODES[0], XID_79)
            await phase(cluster, NODES[0], "Quarantined")
            await cluster.health.healthy(NODES[0])
            session = await phase(cluster, NODES[0], "Released")
        assert [t["state"] for t in session["status"]["validation"]] == ["Passed"]
        (job,), _ = await cluster.client.list(JOBS, "gpuward")
        spec = job["spec"]["template"]["spec"]
        assert (spec["serviceAccountName"], spec["nodeName"]) == ("gpuward-validate", NODES[0])
        conditions = (await cluster.node(NODES[0]))["status"]["conditions"]
        assert [c["status"] for c in conditions if c["type"] == "GPUValidated"] == ["True"]
        refused = [
            (r.verb, r.resource)
            for r in cluster.plane.requests.all
            if r.user.endswith(f":{REMEDIATOR}") and r.code == 403
        ]
        assert refused == []
