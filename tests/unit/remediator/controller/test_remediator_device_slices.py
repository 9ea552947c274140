"""The devices of a node are read from its ResourceSlices when asked, and cached for seconds."""

import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import RESOURCE_SLICES
from remediator.controller.gpus import DeviceSlices
from remediator.kube.other_apis import ApiGroups
from tests.support.cluster.made import made
from tests.support.cluster.slices import gpu_device, slice_spec
from tests.support.remediator.edge import edge


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        for name in ("n0", "n1"):
            spec = slice_spec(name, gpu_device(0, f"GPU-{name}"))
            await made(found.client, RESOURCE_SLICES, name, spec=spec)
        yield found


def reader(cluster):
    return DeviceSlices(cluster.api, cluster.clock, ApiGroups(cluster.api, cluster.clock))


def reads(cluster):
    return [r for r in cluster.server.requests.all if r.resource == "resourceslices"]


async def test_only_the_slices_of_the_node_are_read(cluster):
    slices = reader(cluster)
    devices = await slices.of("n0")
    assert devices.complete
    assert [device.gpu for device in devices.by_address.values()] == ["GPU-n0"]
    assert await slices.of("n0") == devices
    assert len(reads(cluster)) == 1


async def test_a_fresh_answer_shows_a_renamed_device(cluster):
    slices = reader(cluster)
    await slices.of("n0")
    await cluster.client.delete(RESOURCE_SLICES, "n0")
    spec = slice_spec("n0", gpu_device(1, "GPU-n0"), generation=2)
    await made(cluster.client, RESOURCE_SLICES, "again", spec=spec)
    (before,) = (await slices.of("n0")).of_gpu("GPU-n0")
    (after,) = (await slices.of("n0", fresh=True)).of_gpu("GPU-n0")
    assert (before.address.device, after.address.device) == ("gpu-0", "gpu-1")


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_slices_that_cannot_be_read_are_no_devices(cluster, code):
    refusal = ApiError(code, "Forbidden", "no")
    cluster.server.faults.fail(refusal, method="GET", path="/resourceslices", times=None)
    devices = await reader(cluster).of("n0")
    assert not devices.complete
    assert devices.of_gpu("GPU-n0") is None
