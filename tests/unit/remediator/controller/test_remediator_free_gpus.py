"""Whether a degraded pod would find GPUs elsewhere."""

from contextlib import asynccontextmanager

import pytest

from hack.sim.cluster.resource import NODES, PODS
from remediator.controller.gpus import FreeGpus
from rules.api.pods import PodView
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from tests.support.cluster.made import made, with_gpus
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import edge_world

POLICY = Policy(mode=Mode.ENFORCE)


def free_gpus(cluster, setting):
    return FreeGpus(cluster.api, cluster.clock, setting.caches)


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        for name in ("sick", "full", "roomy"):
            await found.add_node(name)
            node = await found.client.get(NODES, name)
            node["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
            await found.client.update_status(NODES, node)
        yield found


async def add_pod(cluster, name, node, gpus, phase="Running"):
    spec = with_gpus(node, gpus)
    await made(cluster.client, PODS, name, "default", spec=spec, status={"phase": phase})
    return await cluster.api.get(f"/api/v1/namespaces/default/pods/{name}", PodView)


async def without_room(cluster, *pods):
    async with edge_world(cluster, POLICY) as setting:
        free = free_gpus(cluster, setting)
        uids = await free.without_room("sick", pods)
    return {pod.metadata.name for pod in pods if pod.uid in uids}


async def test_finished_pods_hold_no_gpus(cluster):
    await add_pod(cluster, "busy", "full", 8)
    await add_pod(cluster, "done", "roomy", 8, phase="Succeeded")
    pod = await add_pod(cluster, "p", "sick", 8)
    assert await without_room(cluster, pod) == set()


async def test_without_gpu_pods_nobody_is_asked(cluster):
    pod = await add_pod(cluster, "web", "sick", 0)
    before = cluster.server.requests.count(verb="list", resource="pods")
    assert await without_room(cluster, pod) == set()
    # The watch of the agents' pods lists once.
    assert cluster.server.requests.count(verb="list", resource="pods") <= before + 1


async def test_who_left_a_moment_ago_still_needs_its_place(cluster):
    await add_pod(cluster, "busy", "full", 8)
    first, second = [await add_pod(cluster, name, "sick", 8) for name in ("a", "b")]
    async with edge_world(cluster, POLICY) as setting:
        free = free_gpus(cluster, setting)
        assert await free.without_room("sick", [first, second]) == {second.uid}
        # The first was evicted; where it went is not counted yet.
        assert await free.without_room("sick", [second]) == {second.uid}


@asynccontextmanager
async def asking(cluster):
    async with edge_world(cluster, POLICY) as setting:
        yield free_gpus(cluster, setting)


async def test_two_nodes_do_not_get_the_same_place_in_one_second(cluster):
    await add_pod(cluster, "busy", "full", 8)
    await cluster.client.patch(NODES, "full", {"spec": {"unschedulable": True}})
    first = await add_pod(cluster, "a", "sick", 8)
    second = await add_pod(cluster, "b", "full", 8)
    async with asking(cluster) as free:
        assert await free.without_room("sick", [first]) == set()
        assert await free.without_room("full", [second]) == {second.uid}
        assert await free.without_room("sick", [first]) == set(), "it keeps what it was promised"


async def test_a_pod_that_cannot_leave_keeps_no_place_for_ever(cluster):
    await cluster.client.patch(NODES, "full", {"spec": {"unschedulable": True}})
    first = await add_pod(cluster, "a", "sick", 8)
    second = await add_pod(cluster, "b", "full", 8)
    async with asking(cluster) as free:
        assert await free.without_room("sick", [first]) == set()
        cluster.clock.ahead_s += 40
        assert await free.without_room("sick", [first]) == set()
        cluster.clock.ahead_s += 55
        assert await free.without_room("full", [second]) == set()


async def test_a_pod_that_finished_needs_no_place_elsewhere(cluster):
    await add_pod(cluster, "busy", "full", 8)
    first, second = [await add_pod(cluster, name, "sick", 8) for name in ("a", "b")]
    async with asking(cluster) as free:
        assert await free.without_room("sick", [first, second]) == {second.uid}
        done = await cluster.client.get(PODS, "a", "default")
        done["status"] = {"phase": "Succeeded"}
        await cluster.client.update_status(PODS, done, "default")
        ended = await cluster.api.get("/api/v1/namespaces/default/pods/a", PodView)
        assert await free.without_room("sick", [ended, second]) == set()
