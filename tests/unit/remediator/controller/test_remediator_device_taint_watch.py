"""ResourceSlices of drivers that triggers name are watched, one watch per driver."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import RESOURCE_SLICES
from remediator.controller.device_taint_watch import DeviceTaintWatch
from rules.policy.reader import load_policy
from tests.support.cluster.made import made
from tests.support.cluster.slices import NEURON, neuron_slice, taint
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import some_edge
from tests.support.remediator.scripted_server import until


class World:
    def __init__(self):
        self.known = {}

    def note_device_taints(self, node, driver, taints):
        before = self.known.get(node)
        self.known[node] = taints
        return before != taints

    def keys(self, node):
        known = self.known.get(node)
        return [each.taint.key for each in known.tainted] if known and known.complete else None


def policy_with(match):
    return load_policy({"external": [{"match": match, "reason": "R"}]})


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        for node, driver in (("n0", NEURON), ("n1", "gpu.example.com")):
            tainted = {"name": "d", "taints": [taint("a")]}
            spec = neuron_slice(node, tainted, driver=driver)
            await made(found.client, RESOURCE_SLICES, node, spec=spec)
        yield found


@asynccontextmanager
async def watching(cluster, match):
    world = World()
    woken: list[str] = []
    parts = {"api": cluster.api, "world": world, "metrics": cluster.metrics}
    watch = DeviceTaintWatch(
        some_edge(cluster.clock, policy=lambda: policy_with(match), **parts),
        changed=woken.append,
        sweep_s=0.02,
    )
    task = asyncio.create_task(watch.run())
    try:
        yield world, woken
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def reads(cluster):
    return [r for r in cluster.server.requests.all if r.resource == "resourceslices"]


def synced(cluster):
    labels = {"resource": f"resourceslices of {NEURON}"}
    return cluster.metrics.registry.get_sample_value("gpuward_watch_synced", labels)


async def test_only_the_slices_of_the_driver_are_followed(cluster):
    async with watching(cluster, f"deviceTaint {NEURON} a") as (world, woken):
        await until(lambda: world.keys("n0") == ["a"])
        assert synced(cluster) == 1
        await cluster.client.delete(RESOURCE_SLICES, "n0")
        await until(lambda: world.keys("n0") is None)
        assert set(woken) == {"n0"}
    assert set(world.known) == {"n0"}
    assert synced(cluster) is None, "no watch is left"


async def test_without_such_a_trigger_nothing_is_read(cluster):
    before = len(cluster.server.requests.all)
    async with watching(cluster, "condition GpuBroken"):
        await asyncio.sleep(0.2)
    assert len(cluster.server.requests.all) == before


async def test_slices_that_may_not_be_read_are_unknown(cluster):
    refusal = ApiError(403, "Forbidden", "no")
    cluster.server.faults.fail(refusal, method="GET", path="/resourceslices", times=None)
    async with watching(cluster, f"deviceTaint {NEURON} a") as (world, _):
        await until(lambda: reads(cluster) and synced(cluster) == 0)
        assert not world.known
