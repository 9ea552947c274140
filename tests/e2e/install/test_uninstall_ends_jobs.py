"""`kubectl gpuward uninstall` while a Job of ours resets GPUs: it ends, then the node is free."""

from __future__ import annotations

import asyncio

import pytest

from hack.sim.cluster.resource import JOBS, PODS
from tests.e2e.install.test_uninstall import gpuward
from tests.e2e.repair.test_repair_own_jobs import (
    ASKS_FOR_A_RESET,
    HELD_BACK,
    NODE,
    OPERANDS,
    deployed,
    job_of,
    standing,
)
from tests.support.cluster.either_cluster import Cluster
from tests.support.remediator.remediator_process import UNMARKED, leads, marks_of, running


@pytest.mark.slow
async def test_a_reset_that_runs_ends_before_its_node_is_given_back(
    secure_cluster: Cluster,
) -> None:
    cluster = secure_cluster
    remediator = await standing(cluster, reset_ends=0)
    with running(remediator):
        await leads(cluster, "one")
        await cluster.health.fail(NODE, ASKS_FOR_A_RESET)
        job = await job_of(cluster, "resetgpu")

        async def begun() -> bool:
            pods, _ = await cluster.client.list(PODS, "gpuward")
            return any(pod["metadata"]["name"].startswith(job["metadata"]["name"]) for pod in pods)

        await cluster.until(begun, "the pod that resets")
        code, _, err = await gpuward(cluster.plane.kubeconfig, "uninstall", "--yes")
        assert code == 1
        assert f"waiting for the remediator to release {NODE}" in err
        assert "still leads" in err
        assert await asyncio.to_thread(remediator.stop) == 0

    code, out, err = await gpuward(cluster.plane.kubeconfig, "uninstall", "--yes")

    assert code == 0, err
    assert "cleaned; now" in out
    assert marks_of(await cluster.node(NODE)) == UNMARKED
    assert await deployed(cluster) == (OPERANDS | HELD_BACK, False)
    jobs, _ = await cluster.client.list(JOBS, "gpuward")
    assert jobs == []
    pods, _ = await cluster.client.list(PODS, "gpuward")
    assert [pod for pod in pods if "resetgpu" in pod["metadata"]["name"]] == []
