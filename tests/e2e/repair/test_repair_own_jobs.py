"""A real remediator repairs a node with a Job of our own that resets GPUs (issue 13).

With the service account of the manifests and both components, on a server that enforces RBAC (and,
where it is a real one, the admission policies).
"""

import pytest

from hack.sim.cluster.client import Object
from hack.sim.cluster.fleet.fleet import Pool
from hack.sim.cluster.fleet.fleet_health import XID_79, Fault
from hack.sim.cluster.resource import JOBS, NODES, RUNTIME_CLASSES
from hack.sim.manifests import post_manifests
from rules.api.names import ANNOTATION_RELEASE_GPU, PAUSED_BY_US, PREFIX_GPU_DEPLOY
from rules.catalog.reason import Action
from tests.e2e.repair.test_repair_by_objects import KEPT_OUT
from tests.support.cluster.either_cluster import Cluster
from tests.support.cluster.made import made
from tests.support.cluster.manifest_builds import build, one
from tests.support.remediator.remediator_process import (
    QUICK,
    RemediatorProcess,
    leads,
    not_quarantined,
    phase,
    running,
)
from tests.support.scenario.repair_world import result_json

NODE = "gpu-0000"
POLICY = """
repair:
  mode: Auto
  steps:
    ResetGPU: {adapter: ResetGPUJob, timeout: 5m}
    RestartNode: {adapter: RestartNodeJob, timeout: 5m}
"""
ASKS_FOR_A_RESET = Fault(reason=XID_79.reason, xids=(79,), gpu=3, action=Action.RESET_GPU)
OPERANDS = {
    f"{PREFIX_GPU_DEPLOY}{name}": "true"
    for name in ("device-plugin", "dcgm-exporter", "dcgm-dra", "dra-driver")
}
UNCHANGED = {f"{PREFIX_GPU_DEPLOY}dcgm": "false", f"{PREFIX_GPU_DEPLOY}driver": "true"}
COMPONENTS = ("repair-reset-gpu-job", "repair-restart-node-job", "validate")
TESTED = "validate: {provider: Job, timeout: 2m}\n"


async def standing(cluster: Cluster, *, reset_ends: int, more: str = "") -> RemediatorProcess:
    """All components, an operator's labels, and how the program that resets will end."""
    objects = [each for each in build(*COMPONENTS) if each["kind"] not in KEPT_OUT]
    reset = one(objects, "PodTemplate", "gpuward-reset-gpu")["template"]
    reset["metadata"]["annotations"] = {"sim.gpuward.io/exit-code": str(reset_ends)}
    test = one(objects, "PodTemplate", "gpuward-validate")["template"]
    test["metadata"]["annotations"] = {
        "sim.gpuward.io/finish-after": "0.3",
        "sim.gpuward.io/message": result_json("pass"),
    }
    await made(cluster.client, RUNTIME_CLASSES, "nvidia", handler="nvidia")
    await post_manifests(cluster.client, objects, namespace="gpuward")
    await cluster.add(pool=Pool(name="gpu", nodes=3))
    await cluster.health.all_healthy([f"gpu-000{n}" for n in range(3)])
    await cluster.client.patch(NODES, NODE, {"metadata": {"labels": OPERANDS | UNCHANGED}})
    access = await cluster.plane.service_account_kubeconfig("gpuward", "gpuward-remediator")
    return RemediatorProcess(cluster.plane.folder / "one", access, policy=QUICK + POLICY + more)


async def deployed(cluster: Cluster) -> tuple[dict[str, str], bool]:
    """The GPU operator's labels, and whether the agent is asked to close its handles."""
    meta = (await cluster.node(NODE))["metadata"]
    labels = {k: v for k, v in meta["labels"].items() if k.startswith(PREFIX_GPU_DEPLOY)}
    return labels, ANNOTATION_RELEASE_GPU in meta.get("annotations", {})


async def job_of(cluster: Cluster, step: str) -> Object:
    async def made() -> Object | None:
        jobs, _ = await cluster.client.list(JOBS, "gpuward")
        return next((job for job in jobs if f"-{step}-" in job["metadata"]["name"]), None)

    found: Object = await cluster.until(made, f"a Job for {step}")
    return found


async def moved_and_back(cluster: Cluster) -> None:
    """Everybody is off while the program runs, and back when it has ended."""
    job = await job_of(cluster, "resetgpu")
    assert await deployed(cluster) == (dict.fromkeys(OPERANDS, PAUSED_BY_US) | UNCHANGED, True)
    assert job["spec"]["template"]["spec"]["nodeName"] == NODE
    await cluster.programs_end("gpuward", job["metadata"]["name"])

    async def back() -> bool:
        return await deployed(cluster) == (OPERANDS | UNCHANGED, False)

    await cluster.until(back, "everybody back on the GPUs")


async def free(cluster: Cluster) -> None:
    """The node is as it was, and nothing was refused."""
    await not_quarantined(cluster, NODE)
    assert await deployed(cluster) == (OPERANDS | UNCHANGED, False)
    asked = [r for r in cluster.plane.requests.all if r.user.endswith(":gpuward-remediator")]
    assert [(r.verb, r.resource, r.code) for r in asked if r.code in {403, 422}] == []


@pytest.mark.slow
async def test_a_reset_of_our_own_is_done_on_empty_gpus_and_believed_when_seen(
    secure_cluster: Cluster,
) -> None:
    cluster = secure_cluster
    remediator = await standing(cluster, reset_ends=0)
    with running(remediator):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, ASKS_FOR_A_RESET)
        await moved_and_back(cluster)
        (asked,) = (await phase(cluster, NODE, "Repairing"))["status"]["repair"]
        assert asked["state"] == "Asked", "the end of its Job proves nothing"
        await cluster.health.healthy(NODE)
        session = await phase(cluster, NODE, "Released")
        await free(cluster)
    (attempt,) = session["status"]["repair"]
    assert (attempt["step"], attempt["state"]) == ("ResetGPU", "Proven")
    assert attempt["cleared"] == sorted(f"{key}=true" for key in OPERANDS)


@pytest.mark.slow
async def test_a_reset_that_refuses_a_reboot_and_a_test_lead_to_the_release(
    secure_cluster: Cluster,
) -> None:
    """Exit status 3 of the program that resets: somebody has a GPU open."""
    cluster = secure_cluster
    remediator = await standing(cluster, reset_ends=3, more=TESTED)
    with running(remediator):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, ASKS_FOR_A_RESET)
        await moved_and_back(cluster)
        await cluster.until(
            lambda: cluster.health.keep_evidence(NODE), "evidence of its taint and cordon"
        )
        await job_of(cluster, "restartnode")
        await cluster.plane.controllers.kubelets.reboot(NODE)
        await cluster.health.recreated(NODE)
        session = await phase(cluster, NODE, "Released")
        await free(cluster)
    ladder = [(a["step"], a["state"]) for a in session["status"]["repair"]]
    assert ladder == [("ResetGPU", "Failed"), ("RestartNode", "Proven")]
    assert [t["state"] for t in session["status"]["validation"]] == ["Passed"]
    assert "PodFailurePolicy" in session["status"]["repair"][0]["proof"], "why it gave up"
    asked = [r for r in cluster.plane.requests.all if r.user.endswith(":gpuward-remediator")]
    made = [r.code for r in asked if (r.verb, r.resource) == ("create", "jobs")]
    assert made == [201] * 3, "each Job once"
