"""A pod that holds its GPUs by a ResourceClaim is a GPU pod: for drain, room and gangs."""

import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import PODS, RESOURCE_CLAIMS
from remediator.controller.drain_reads import DrainReader
from remediator.controller.gpus import FreeGpus
from rules.api.quarantine import Mode
from rules.drain.gangs import gangs_of
from rules.policy.policy import Policy
from tests.support.cluster.made import made
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import edge_world

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
        (pod,), owners = await look.pods_and_owners("sick")
        assert pod.gpus == 2
        assert [gang.key for gang in gangs_of((pod,), owners)] == ["JobSet default/llm"]
        (pod,), owners = await look.pods_and_owners("other")
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
