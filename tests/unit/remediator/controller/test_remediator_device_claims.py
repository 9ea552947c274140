"""A pod that holds its GPUs by a ResourceClaim is a GPU pod, and it is known which it holds."""

import msgspec
import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from hack.sim.proxy.faults import Fault
from remediator.controller.drain_reads import DrainReader
from remediator.controller.gpus import FreeGpus
from rules.api.quarantine import Mode
from rules.api.writes import Evicting
from rules.catalog.reason import DrainScope
from rules.drain.gangs import gangs_of
from rules.policy.policy import Policy
from tests.support.cluster.made import made, with_gpus
from tests.support.cluster.slices import gpu_device, slice_spec
from tests.support.remediator.draining import draining
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import edge_world
from tests.support.remediator.kubectl_objects import HEALTHS
from tests.support.remediator.scripted_server import until

POLICY = Policy(mode=Mode.ENFORCE)
DRIVER = "gpu.nvidia.com"


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        for name in ("sick", "other"):
            await found.add_node(name)
        yield found


async def add_claim(cluster, name, *, pool, count=1, driver=DRIVER):
    results = [
        {"request": "gpu", "driver": driver, "pool": pool, "device": f"gpu-{number}"}
        for number in range(count)
    ]
    status = {"allocation": {"devices": {"results": results}}}
    spec = {"devices": {"requests": [{"name": "gpu"}]}}
    await made(cluster.client, RESOURCE_CLAIMS, name, "default", spec=spec, status=status)


async def add_pod(cluster, name, node, claim):
    await made(
        cluster.client, PODS, name, "default",
        meta={"labels": {"jobset.sigs.k8s.io/jobset-name": "llm"}},
        spec={
            "nodeName": node, "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
        status={"phase": "Running"},
    )  # fmt: skip


async def test_it_is_a_gpu_pod_and_its_gang_is_seen(cluster):
    await add_claim(cluster, "two", pool="sick", count=2)
    await add_claim(cluster, "nic", pool="sick", driver="dra.example.com")
    await add_pod(cluster, "trains", "sick", "two")
    await add_pod(cluster, "talks", "other", "nic")
    async with edge_world(cluster, POLICY) as setting:
        look = DrainReader(cluster.api, cluster.clock, setting.caches)
        (pod,) = await look.cached_pods_on("sick")
        owners = await look.owners_of_gpu_pods([pod])
        assert pod.gpus == 2
        assert [gang.key for gang in gangs_of((pod,), owners)] == ["JobSet default/llm"]
        (pod,) = await look.cached_pods_on("other")
        owners = await look.owners_of_gpu_pods([pod])
        assert pod.gpus == 0
        assert gangs_of((pod,), owners) == ()


async def test_claims_that_may_not_be_read_are_taken_for_gpus_and_keep_no_pod(cluster):
    await add_claim(cluster, "two", pool="sick", count=2)
    await add_pod(cluster, "trains", "sick", "two")

    refusal = ApiError(403, "Forbidden", "no")
    cluster.server.faults.fail(refusal, method="GET", path="/resource.k8s.io/v1/", times=None)
    async with edge_world(cluster, POLICY) as setting:
        look = DrainReader(cluster.api, cluster.clock, setting.caches)
        pods = await look.pods_on("sick")
        assert pods[0].gpus == 1
        free = FreeGpus(cluster.api, cluster.clock, setting.caches)
        assert await free.without_room("sick", pods) == frozenset()


def listed(cluster):
    return [r for r in cluster.server.requests.all if r.resource == "resourceslices"]


async def test_the_gpus_of_claims_are_read_from_the_slices_of_the_node(cluster):
    spec = slice_spec("sick", gpu_device(0), gpu_device(1))
    await made(cluster.client, RESOURCE_SLICES, "sick", spec=spec)
    await add_claim(cluster, "shared", pool="sick")
    await add_claim(cluster, "foreign", pool="other")
    for name, claim in (("one", "shared"), ("two", "shared"), ("three", "foreign")):
        await add_pod(cluster, name, "sick", claim)
    await made(cluster.client, PODS, "cpu", "default", spec=with_gpus("other", 0))
    async with edge_world(cluster, POLICY) as setting:
        look = DrainReader(cluster.api, cluster.clock, setting.caches)
        held = {pod.metadata.name: pod.held for pod in await look.pods_on("sick")}
        assert held == {"one": {"GPU-0"}, "two": {"GPU-0"}, "three": None}
        assert [pod.held for pod in await look.pods_on("other")] == [frozenset()]
        assert len(listed(cluster)) == 1


@pytest.mark.parametrize("path", ["/resourceslices", "/resourceclaims", "^/apis$"])
async def test_what_cannot_be_read_is_unknown_and_fails_no_drain(cluster, path):
    spec = slice_spec("sick", gpu_device(0))
    await made(cluster.client, RESOURCE_SLICES, "sick", spec=spec)
    await add_claim(cluster, "one", pool="sick")
    await add_pod(cluster, "trains", "sick", "one")
    async with edge_world(cluster, POLICY) as setting:
        refusal = ApiError(500, "InternalError", "no")
        cluster.server.faults.fail(refusal, method="GET", path=path, times=None)
        look = DrainReader(cluster.api, cluster.clock, setting.caches)
        (pod,) = await look.pods_on("sick")
        assert (pod.gpus, pod.held) == (1, None)


async def test_the_list_of_the_kubelet_counts_for_this_boot_of_the_node(cluster):
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    await made(cluster.client, PODS, "trains", "default", spec=with_gpus("sick", 1), status=status)
    holders = {
        "readAt": "2026-01-01T00:01:00Z",
        "complete": True,
        "pods": [{"namespace": "default", "pod": "trains", "gpus": ["GPU-3"]}],
    }
    health = {"health": "Unhealthy", "bootID": "boot-1", "holders": holders}
    await made(cluster.client, HEALTHS, "sick", status=health)
    async with edge_world(cluster, POLICY) as setting:
        await until(lambda: "sick" in setting.caches.healths.items)
        look = DrainReader(cluster.api, cluster.clock, setting.caches)
        (pod,) = await look.pods_on("sick")
        assert pod.held == {"GPU-3"}
        earlier = {**await cluster.client.get(HEALTHS, "sick")}
        earlier["status"] = {**health, "bootID": "boot-0"}
        await cluster.client.update_status(HEALTHS, earlier)
        await until(lambda: setting.caches.healths.items["sick"].status.boot_id == "boot-0")
        (pod,) = await look.pods_on("sick")
        assert pod.held is None
        assert not listed(cluster)


async def test_a_pod_with_a_claim_is_a_gpu_pod_when_it_is_read_again_to_be_evicted(cluster):
    await add_claim(cluster, "one", pool="sick")
    await add_pod(cluster, "trains", "sick", "one")
    async with draining(cluster) as setting:
        drain = msgspec.structs.replace(setting.policy.drain, scope=DrainScope.GPU_PODS)
        setting.policy = msgspec.structs.replace(setting.policy, drain=drain)
        await setting.add_session("sick")
        slow = Fault(
            method="GET", path="/api/v1/nodes/sick$", action="delay", delay_s=2.0, times=1
        )
        cluster.server.faults.add(slow)
        setting.drains.steer("sick", Evicting.GO)
        await until(lambda: setting.memory("sick") and setting.memory("sick").evicted == 1)
        reads = [r for r in cluster.server.requests.all if r.resource == "pods"]
        assert any(r.name == "trains" and r.verb == "get" for r in reads)
