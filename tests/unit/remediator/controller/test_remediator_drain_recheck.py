"""Evictions that wait for their turn at a low rate: what changed meanwhile stops those not yet
sent.
"""

import asyncio

import msgspec
import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import NODES, PODS
from hack.sim.proxy.faults import Fault
from remediator.kube.clock import CallQueue
from remediator.kube.gateway import Gateway
from rules.api.nodes import FreshNode
from rules.api.quarantine_taint import quarantine_patch
from rules.api.timestamps import format_time
from rules.api.writes import DeletePod, Evicting
from rules.policy.policy import PodRule
from tests.support.remediator.draining import FORCED, LONG_AGO, POLICY, draining
from tests.support.remediator.edge import edge
from tests.support.remediator.scripted_server import until

PODS_ON_NODE = 30
"""Three seconds of evictions at this rate: what changes behind the second is in time anywhere."""
SLOW = {CallQueue.EVICT: 10}


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path, rates=SLOW) as found:
        await found.add_node("n1")
        yield found


async def low_rate_drain(setting, started_at=LONG_AGO):
    """A quarantined node with many pods, and a drain that has sent a few of its evictions."""
    cluster = setting.cluster
    node = await cluster.api.get("/api/v1/nodes/n1", FreshNode)
    patch = quarantine_patch(node, session="s-n1", reason="Xid79", parts="CordonAndTaint", now=0.0)
    patch["metadata"].pop("resourceVersion")
    patch["metadata"]["labels"]["gpuward.io/gpus"] = "8"
    await setting.client.patch(NODES, "n1", patch)
    for number in range(PODS_ON_NODE):
        await setting.add_pod(f"p{number}", "n1")
    await setting.add_session("n1", started_at=started_at)
    setting.drains.steer("n1", Evicting.GO)
    await until(lambda: setting.evictions() >= 2)


async def few_more_were_sent(setting):
    sent = setting.evictions()
    await asyncio.sleep(0.6)
    return setting.evictions() <= sent + 1 < PODS_ON_NODE


def with_phase(setting, phase):
    session = setting.world.caches.quarantines.items["s-n1"]
    status = msgspec.structs.replace(session.status, phase=phase)
    moved = msgspec.structs.replace(session, status=status)
    setting.world.caches.quarantines.items["s-n1"] = moved


async def test_nothing_is_evicted_once_the_session_validates(cluster):
    async with draining(cluster, rechecks=True) as setting:
        await low_rate_drain(setting)
        with_phase(setting, "Validating")
        assert await few_more_were_sent(setting)


async def test_nothing_is_evicted_once_its_drain_was_stopped(cluster):
    async with draining(cluster, rechecks=True) as setting:
        await low_rate_drain(setting)
        setting.drains.steer("n1", Evicting.NO)
        assert await few_more_were_sent(setting)


async def test_a_skip_rule_that_was_added_is_obeyed_at_once(cluster):
    async with draining(cluster, rechecks=True) as setting:
        await low_rate_drain(setting)
        skip = (PodRule(strategy="Skip"),)
        setting.policy = msgspec.structs.replace(setting.policy, pods=skip)
        assert await few_more_were_sent(setting)


async def test_a_pod_that_changed_while_it_waited_is_read_again(cluster):
    async with draining(cluster, rechecks=True) as setting:
        await low_rate_drain(setting, format_time(cluster.clock.now()))
        hold = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        cluster.clock.ahead_s += 2.0
        for number in range(PODS_ON_NODE):
            await setting.client.patch(PODS, f"p{number}", hold, "default")
        sent = setting.evictions()
        await asyncio.sleep(0.5)
        assert setting.evictions() <= sent + 1


async def test_a_pod_that_is_replaced_while_the_node_is_read_is_not_asked_by_its_old_uid(cluster):
    """The eviction of an old UID gets 409 and takes the PDB's place for two minutes."""
    async with draining(cluster) as setting:
        await setting.add_session("n1")
        before = await setting.add_pod("web-0", "n1")
        slow = cluster.server.faults.add(
            Fault(method="GET", path="/api/v1/nodes/n1$", action="delay", delay_s=2.0, times=1)
        )
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: slow.hits)
        await setting.client.delete(PODS, "web-0", "default", grace=0)
        await setting.add_pod("web-0", "n1")
        await until(lambda: setting.memory("n1") and setting.memory("n1").evicted == 1)
        asked = [r for r in cluster.server.requests.all if r.subresource == "eviction"]
        assert [r.code for r in asked] == [201]
        assert before["metadata"]["uid"].encode() not in asked[0].body


async def test_a_pod_read_that_outlives_its_second_is_read_again_on_a_slow_server(cluster):
    """Node and pod are read at the same time, so that a slow server lets evictions go at all."""
    async with draining(cluster) as setting:
        await setting.add_session("n1")
        await setting.add_pod("web-0", "n1")
        for path in ("/api/v1/nodes/n1$", "/pods/web-0$"):
            cluster.server.faults.add(
                Fault(method="GET", path=path, action="delay", delay_s=1.3, times=None)
            )
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.memory("n1") and setting.memory("n1").evicted == 1)


async def test_force_ends_between_the_condition_and_the_deletion(cluster):
    held: list[str] = []

    class ReportingByNow(Gateway):
        """The policy changes before the deletion of a pod is sent."""

        async def send(self, write, about=None):
            if isinstance(write, DeletePod):
                setting.policy = POLICY
            sent = await super().send(write, about)
            if isinstance(write, DeletePod):
                held.append(sent.why)
            return sent

    async with draining(cluster, gateway=ReportingByNow) as setting:
        setting.policy = FORCED
        await setting.add_budget("web", 0, minAvailable=2)
        await until(lambda: "default/web" in setting.world.caches.pdbs.items)
        await setting.add_pod("web", "n1", started_at=LONG_AGO)
        await setting.add_session("n1", started_at=LONG_AGO)
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: held)
        assert held[0] == "drain.onTimeout is Report"
        assert cluster.server.requests.count(verb="delete", resource="pods") == 0


async def test_pods_that_could_not_be_listed_for_a_minute_are_left_alone(cluster):
    async with draining(cluster, rechecks=True) as setting:
        await low_rate_drain(setting)
        cluster.server.faults.fail(
            ApiError(500, "InternalError", "x"), path="/api/v1/pods", times=None
        )
        cluster.clock.ahead_s += 61
        assert await few_more_were_sent(setting)
        assert setting.drains.plan("n1") is not None
