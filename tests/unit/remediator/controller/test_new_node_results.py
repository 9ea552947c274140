"""A sweep over new nodes uses its own writes at once, before any watch event."""

import asyncio
import json

import pytest

from hack.sim.cluster.resource import JOBS, NODES, POD_TEMPLATES, PODS
from remediator.controller.housekeeping import NewNodeTests
from rules.api.nodes import NodeView
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.session.validation.jobs import LABEL_JOB
from tests.support.cluster.made import made
from tests.support.remediator.edge import SteppedClock, edge
from tests.support.remediator.edge_world import EdgeWorld
from tests.support.remediator.scripted_server import until

CONTAINER = {"name": "validate", "image": "gpuward:1"}
CHECK = {"id": "memory", "gpu": "GPU-0", "verdict": "pass", "value": 0.0, "unit": "errors"}
PASS = json.dumps({"verdict": "pass", "message": "It is well.", "checks": [CHECK]})


class SweepClock(SteppedClock):
    """A clock whose sleeps end when the test wants the next sweep."""

    def __init__(self):
        super().__init__()
        self.sleeps = 0
        self._next = asyncio.Event()

    async def sleep(self, seconds):
        self.sleeps += 1
        await self._next.wait()
        self._next.clear()

    async def sweep(self):
        """Run one sweep to its end."""
        before = self.sleeps
        self._next.set()
        await until(lambda: self.sleeps > before)


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path, clock=SweepClock()) as found:
        node = await found.add_node("n1")
        node["metadata"]["labels"] = {"gpuward.io/gpus": "8"}
        node = await found.client.update(NODES, node)
        node["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
        await found.client.update_status(NODES, node)
        template = {"spec": {"containers": [CONTAINER]}}
        await made(found.client, POD_TEMPLATES, "gpuward-validate", "gpuward", template=template)
        yield found


async def passes(cluster, job):
    """The Job's pod ran, and reports it."""
    name = job["metadata"]["name"]
    spec = {"nodeName": "n1", "containers": [CONTAINER], "restartPolicy": "Never"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
    meta = {"labels": {LABEL_JOB: name}, "ownerReferences": [{**owner, "controller": True}]}
    ended = {"exitCode": 0, "reason": "Completed", "message": PASS}
    state = {"name": "validate", "state": {"terminated": ended}}
    status = {"phase": "Succeeded", "containerStatuses": [state]}
    await made(cluster.client, PODS, name, "gpuward", meta=meta, spec=spec, status=status)
    job["status"] = {"conditions": [{"type": "Complete", "status": "True", "reason": "x"}]}
    await cluster.client.update_status(JOBS, job, "gpuward")


async def test_the_sweep_that_writes_a_result_starts_no_second_test(cluster):
    policy = load_policy(
        {
            "mode": "Enforce",
            "validate": {"provider": "Job", "newNodes": True},
        }
    )
    assert isinstance(policy, Policy)
    setting = EdgeWorld(cluster, policy)
    # Nothing is watched here: what is known of the node is what was read and written.
    setting.world.doubts.clear()
    setting.caches.nodes.items["n1"] = await cluster.api.get("/api/v1/nodes/n1", NodeView)
    sweeps = asyncio.create_task(NewNodeTests(setting.edge()).run())
    await until(lambda: cluster.clock.sleeps)
    await cluster.clock.sweep()
    ((job,), _) = await cluster.client.list(JOBS, "gpuward")
    await passes(cluster, job)
    await cluster.clock.sweep()
    sweeps.cancel()
    known = setting.caches.nodes.items["n1"].condition("GPUValidated")
    assert known is not None
    assert known.status == "True"
    assert cluster.writes().count(("create", "jobs")) == 1
