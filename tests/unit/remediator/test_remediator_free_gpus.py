"""Whether a degraded pod would find GPUs elsewhere."""

import pytest
from edge import edge
from edge_world import edge_world

from hack.sim.cluster.resource import NODES, PODS
from remediator.free_gpus import FreeGpus
from rules.pod_view import PodView
from rules.policy import Policy
from rules.quarantine_object import Mode

POLICY = Policy(mode=Mode.ENFORCE)


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
    pod = await cluster.client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
                    }
                ],
            },
        },
        "default",
    )
    pod["status"] = {"phase": phase}
    await cluster.client.update_status(PODS, pod, "default")
    return await cluster.api.get(f"/api/v1/namespaces/default/pods/{name}", PodView)


async def without_room(cluster, *pods):
    async with edge_world(cluster, POLICY) as setting:
        free = FreeGpus(cluster.api, cluster.clock, setting.caches)
        uids = await free.without_room("sick", pods)
    return {pod.metadata.name for pod in pods if pod.uid in uids}


async def test_what_fits_on_the_emptiest_other_node_has_room(cluster):
    await add_pod(cluster, "busy", "full", 8)
    await add_pod(cluster, "half", "roomy", 4)
    small = await add_pod(cluster, "small", "sick", 4)
    big = await add_pod(cluster, "big", "sick", 5)
    assert await without_room(cluster, small, big) == {"big"}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param({"spec": {"unschedulable": True}}, id="cordoned"),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, id="lost"
        ),
    ],
)
async def test_a_node_that_takes_no_pods_has_no_room(cluster, spoil):
    await add_pod(cluster, "busy", "full", 8)
    for part, value in spoil.items():
        await cluster.client.patch(
            NODES, "roomy", {part: value}, subresource="status" if part == "status" else None
        )
    pod = await add_pod(cluster, "p", "sick", 1)
    assert await without_room(cluster, pod) == {"p"}


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


async def test_two_pods_do_not_get_the_same_place(cluster):
    await add_pod(cluster, "busy", "full", 8)
    first, second = [await add_pod(cluster, name, "sick", 8) for name in ("a", "b")]
    assert await without_room(cluster, first, second) == {"b"}


async def test_who_left_a_moment_ago_still_needs_its_place(cluster):
    await add_pod(cluster, "busy", "full", 8)
    first, second = [await add_pod(cluster, name, "sick", 8) for name in ("a", "b")]
    async with edge_world(cluster, POLICY) as setting:
        free = FreeGpus(cluster.api, cluster.clock, setting.caches)
        assert await free.without_room("sick", [first, second]) == {second.uid}
        # The first was evicted; where it went is not counted yet.
        assert await free.without_room("sick", [second]) == {second.uid}
