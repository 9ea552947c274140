"""The leader's sweeps: nodes whose agent is gone become Unknown, old history goes."""

import asyncio
from functools import partial

import pytest

from hack.sim.cluster.fleet.fleet_health import GPU_EVIDENCES, GPU_NODE_HEALTHS
from hack.sim.cluster.resource import NODES, PODS
from remediator.controller.housekeeping import Housekeeping
from remediator.kube.caches import PublisherPods
from rules.api.quarantine import Mode
from rules.api.timestamps import format_time
from rules.policy.policy import Policy
from rules.session.history import MAX_PER_NODE
from tests.support.cluster.made import made
from tests.support.remediator.edge import QUARANTINES, NoSkew, edge
from tests.support.remediator.edge_world import edge_world
from tests.support.remediator.scripted_server import until

POLICY = Policy(mode=Mode.ENFORCE)
MINUTE = 60.0


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        await found.add_node("n1")
        # These tests move both clocks on: the server's date is no correction here.
        found.clock.skew = NoSkew()
        yield found


def housekeeping(setting, **options):
    publishers = PublisherPods(setting.cluster.api, setting.cluster.clock, setting.caches)
    return Housekeeping(setting.edge(), publishers=publishers, **options)


async def publish(cluster, publisher):
    node = await cluster.client.get(NODES, "n1")
    status = {
        "publisher": publisher,
        "nodeUID": node["metadata"]["uid"],
        "bootID": "boot-1",
        "observedAt": format_time(cluster.clock.now()),
        "health": "Healthy",
    }
    await made(cluster.client, GPU_NODE_HEALTHS, "n1", status=status)


async def written_an_hour_ago(cluster):
    """By an agent without a pod, by the API server's clock."""
    await publish(cluster, {"heartbeat": format_time(cluster.clock.now())})
    cluster.clock.ahead_s += 60 * MINUTE


async def agent_pod(cluster, *, ready):
    labels = {"app.kubernetes.io/name": "gpuward", "app.kubernetes.io/component": "agent"}
    now = format_time(cluster.clock.now())
    health = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}
    return await made(
        cluster.client, PODS, "agent-n1", "gpuward", meta={"labels": labels},
        spec={"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        status={"phase": "Running", "conditions": [health]},
    )  # fmt: skip


async def health(cluster):
    node = await cluster.client.get(NODES, "n1")
    condition = next(
        (c for c in node["status"]["conditions"] if c["type"] == "GPUHealthy"), {"status": ""}
    )
    return condition["status"], node["metadata"].get("labels", {}).get("gpuward.io/health")


@pytest.mark.parametrize(
    ("kind", "early_min", "late_min"),
    [pytest.param("pod", 4, 6, id="pod"), pytest.param("heartbeat", 11, 13, id="heartbeat")],
)
async def test_an_agent_that_is_gone_makes_the_node_unknown_after_its_time(
    cluster, kind, early_min, late_min
):
    if kind == "pod":
        pod = await agent_pod(cluster, ready=False)
        publisher = {"pod": "gpuward/agent-n1", "podUID": pod["metadata"]["uid"]}
    else:
        publisher = {"heartbeat": format_time(cluster.clock.now())}
    await publish(cluster, publisher)
    async with edge_world(cluster, POLICY) as setting:
        keeper = housekeeping(setting)
        cluster.clock.ahead_s = early_min * MINUTE
        await keeper.sweep()
        assert await health(cluster) == ("", None)
        cluster.clock.ahead_s = late_min * MINUTE
        await keeper.sweep()
        assert await health(cluster) == ("Unknown", "unknown")
        writes = len(cluster.writes())
        await until(
            lambda: setting.caches.nodes.items["n1"].labels.get("gpuward.io/health") == "unknown"
        )
        cluster.clock.ahead_s += 2 * MINUTE
        await keeper.sweep()
        assert len(cluster.writes()) == writes, "written once"
        assert "gpuward_agents_silent 1.0" in cluster.metrics.page().decode()


async def test_a_ready_agent_is_left_alone_for_ever(cluster):
    pod = await agent_pod(cluster, ready=True)
    await publish(cluster, {"pod": "gpuward/agent-n1", "podUID": pod["metadata"]["uid"]})
    async with edge_world(cluster, POLICY) as setting:
        cluster.clock.ahead_s = 600 * MINUTE
        await housekeeping(setting).sweep()
        assert cluster.writes() == []
        reads = cluster.server.requests.count(verb="get", resource="gpunodehealths")
        assert reads == 0, "a Ready pod needs no look"


SPEC = {"nodeName": "n1", "causes": [{"source": "Human", "message": "drill"}]}


async def ended_session(cluster, name, *, age_s):
    since = format_time(cluster.clock.now() - age_s)
    status = {"mode": "Enforce", "phase": "Released", "phaseSince": since}
    await made(cluster.client, QUARANTINES, name, spec=SPEC, status=status)


async def test_history_is_kept_by_age_and_number_and_open_sessions_always(cluster):
    day = 86400
    young = [(f"young-{number}", day / 2) for number in range(MAX_PER_NODE - 1)]
    old = [("two-days", 2 * day), ("three-days", 3 * day), ("ancient", 40 * day)]
    for name, age_s in (*young, *old):
        await ended_session(cluster, name, age_s=age_s)
    await made(cluster.client, QUARANTINES, "open", spec=SPEC)
    async with edge_world(cluster, POLICY) as setting:
        await housekeeping(setting).sweep()
        kept, _ = await cluster.client.list(QUARANTINES)
        assert {s["metadata"]["name"] for s in kept} == {
            "two-days",
            "open",
            *(name for name, _ in young),
        }


async def test_evidence_is_deleted_after_its_session_by_the_watch(cluster):
    await made(cluster.client, GPU_EVIDENCES, "old", spec={"session": "old", "nodeName": "n1"})
    async with edge_world(cluster, POLICY) as setting:
        keeper, kept = housekeeping(setting), setting.caches.evidences
        cluster.clock.ahead_s += 29 * 24 * 60 * MINUTE
        await keeper.sweep()
        assert cluster.writes() == [], "without a watch nothing is known"
        watch = asyncio.create_task(kept.run())
        await until(lambda: kept.synced)
        cluster.clock.ahead_s += MINUTE
        await keeper.sweep()
        await until(lambda: not kept.items)
        watch.cancel()
    assert cluster.server.requests.count(verb="list", resource="gpuevidences") == 1


async def test_the_fleet_is_not_judged_by_sessions_that_ended_long_ago(cluster):
    for name, age_s in (("just-now", 60), ("long-ago", 2 * 86400)):
        await ended_session(cluster, name, age_s=age_s)
    async with edge_world(cluster, POLICY) as setting:
        snapshot = setting.world.snapshot()
        assert set(snapshot.quarantines) == {"just-now", "long-ago"}
        assert set(snapshot.counted) == {"just-now"}


async def reads(cluster, keeper, minutes):
    """How often health statuses were asked for while so many minutes pass, a sweep every 20 s."""
    before = cluster.server.requests.count(resource="gpunodehealths")
    for _ in range(minutes * 3):
        cluster.clock.ahead_s += 20
        await keeper.sweep()
    return cluster.server.requests.count(resource="gpunodehealths") - before


async def test_nodes_without_a_health_status_are_read_rarely(cluster):
    for number in range(2, 60):
        await cluster.add_node(f"n{number}")
    async with edge_world(cluster, POLICY) as setting:
        await until(lambda: len(setting.caches.nodes.items) == 59)
        assert await reads(cluster, housekeeping(setting), minutes=30) <= 4 * 59


async def test_a_node_with_a_silent_agent_is_read_rarely(cluster):
    await written_an_hour_ago(cluster)
    async with edge_world(cluster, POLICY) as setting:
        keeper = housekeeping(setting)
        cluster.clock.ahead_s += 6 * MINUTE
        await keeper.sweep()
        await until(
            lambda: setting.caches.nodes.items["n1"].labels.get("gpuward.io/health") == "unknown"
        )
        cluster.clock.ahead_s += 12 * MINUTE
        await keeper.sweep()
        assert await reads(cluster, keeper, minutes=30) <= 3


async def test_a_changed_node_is_checked_in_the_next_sweep(cluster):
    async with edge_world(cluster, POLICY) as setting:
        keeper = housekeeping(setting)
        await keeper.sweep()
        pod = await agent_pod(cluster, ready=False)
        await publish(cluster, {"pod": "gpuward/agent-n1", "podUID": pod["metadata"]["uid"]})
        cluster.clock.ahead_s = 6 * MINUTE
        await keeper.sweep()
        assert await health(cluster) == ("", None), "there was no health status a moment ago"
        keeper.check_soon("n1")
        await keeper.sweep()
        assert await health(cluster) == ("Unknown", "unknown")


def knows(setting, sessions):
    """Whether the cache holds so many sessions."""
    return len(setting.caches.quarantines.items) == sessions


async def test_pruning_keeps_up_with_what_is_made(cluster):
    for number in range(5):
        await ended_session(cluster, f"ancient-{number}", age_s=40 * 86400)
    async with edge_world(cluster, POLICY) as setting:
        keeper = housekeeping(setting, deletions_per_sweep=2)
        for left in (3, 1, 0):
            await keeper.sweep()
            kept, _ = await cluster.client.list(QUARANTINES)
            assert len(kept) == left
            await until(partial(knows, setting, left))


async def silent(cluster):
    found = await cluster.client.get(GPU_NODE_HEALTHS, "n1")
    return found["status"].get("silentSince", "")


@pytest.mark.parametrize("restarted", [False, True], ids=["the same process", "a later process"])
async def test_the_health_status_has_silent_since_until_its_agent_returns(cluster, restarted):
    """What `kubectl get gnh` shows; the agent came back without a new health status."""
    pod = await agent_pod(cluster, ready=False)
    await publish(cluster, {"pod": "gpuward/agent-n1", "podUID": pod["metadata"]["uid"]})
    async with edge_world(cluster, POLICY) as setting:
        keeper = housekeeping(setting)
        cluster.clock.ahead_s = 4 * MINUTE
        await keeper.sweep()
        assert await silent(cluster) == ""
        cluster.clock.ahead_s = 6 * MINUTE
        await keeper.sweep()
        assert await silent(cluster) == pod["status"]["conditions"][0]["lastTransitionTime"]
        cluster.clock.ahead_s = 20 * MINUTE
        before = await cluster.client.get(GPU_NODE_HEALTHS, "n1")
        await keeper.sweep()
        assert await cluster.client.get(GPU_NODE_HEALTHS, "n1") == before, "written once"
        pod = await cluster.client.get(PODS, "agent-n1", "gpuward")
        pod["status"]["conditions"][0]["status"] = "True"
        await cluster.client.update_status(PODS, pod, "gpuward")
        await until(lambda: any(agent.ready for agent in setting.caches.agents.values()))
        if restarted:
            keeper = housekeeping(setting)
        await keeper.sweep()
        assert await silent(cluster) == ""
