"""Owners of evicted pods find an Event in their own namespace; no drain waits or fails for it."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import EVENTS, PODS
from hack.sim.proxy.faults import Fault
from rules.api.writes import Evicting
from tests.support.remediator.draining import FORCED, LONG_AGO, draining
from tests.support.remediator.edge import edge
from tests.support.remediator.scripted_server import until


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        await found.add_node("n1")
        yield found


async def events(setting, count):
    """The Events about pods, once there are so many."""
    for _ in range(500):
        found, _ = await setting.client.list(EVENTS)
        found = [one for one in found if one["involvedObject"]["kind"] == "Pod"]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(found)} Events, {count} wanted")


async def test_each_evicted_pod_has_one_event_in_its_namespace(cluster):
    async with draining(cluster) as setting:
        await setting.add_session("n1")
        uids = {(await setting.add_pod(f"p{n}", "n1"))["metadata"]["uid"] for n in range(3)}
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.memory("n1") and setting.memory("n1").evicted == 3)
        found = await events(setting, 3)
        assert {one["involvedObject"]["uid"] for one in found} == uids
        assert len(found) == 3
        assert {one["metadata"]["namespace"] for one in found} == {"default"}
        assert {one["reason"] for one in found} == {"QuarantineEvicted"}
        assert all("Xid79 (Fatal), GPUQuarantine s-n1; more:" in one["message"] for one in found)


async def test_a_dry_run_and_a_refused_eviction_are_no_event(cluster):
    async with draining(cluster) as setting:
        await setting.add_session("n1")
        await setting.add_pod("p", "n1")
        setting.drains.steer("n1", Evicting.PROBE)
        await until(lambda: setting.drains.plan("n1") and setting.drains.plan("n1").probed)
        setting.drains.steer("n1", Evicting.NO)
        await setting.add_budget("web", 0, minAvailable=2)
        await until(lambda: "default/web" in setting.world.caches.pdbs.items)
        await setting.add_pod("web", "n1")
        await setting.client.delete(PODS, "p", "default", grace=0)
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.evictions(code=429) >= 1)
        assert await events(setting, 0) == []
        assert cluster.server.requests.count(resource="events") <= 1, "the test's own list"


async def test_a_pod_deleted_by_force_has_a_warning(cluster):
    async with draining(cluster) as setting:
        setting.policy = FORCED
        await setting.add_budget("web", 0, minAvailable=2)
        await until(lambda: "default/web" in setting.world.caches.pdbs.items)
        await setting.add_pod("web", "n1", started_at=LONG_AGO)
        await setting.add_session("n1", started_at=LONG_AGO)
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.memory("n1") and setting.memory("n1").forced)
        (told,) = await events(setting, 1)
        assert (told["type"], told["reason"]) == ("Warning", "QuarantineDeleted")
        assert told["message"].startswith("Deleted by force (drain.onTimeout: Force) from node n1")


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        pytest.param(
            'events is forbidden: User "x" cannot create resource "events"',
            "grant it create on events",
            id="no right",
        ),
        pytest.param(
            'events "p" is forbidden: exceeded quota: few, requested: count/events=1',
            "ask who runs the quota",
            id="quota",
        ),
    ],
)
async def test_where_events_are_refused_the_drain_goes_on_and_that_is_said_once(
    cluster, refusal, remedy
):
    fault = cluster.server.faults.fail(
        ApiError(403, "Forbidden", refusal), method="POST", path=".*/events", times=None
    )
    with structlog.testing.capture_logs() as said:
        async with draining(cluster) as setting:
            await setting.add_session("n1")
            for number in range(30):
                await setting.add_pod(f"p{number}", "n1")
            setting.drains.steer("n1", Evicting.GO)
            await until(lambda: setting.memory("n1") and setting.memory("n1").evicted == 30)
            await until(lambda: any(line["event"] == "events" for line in said))
    problems = [line["problem"] for line in said if line["event"] == "events"]
    assert len(problems) == 1
    assert remedy in problems[0]
    assert refusal in problems[0]
    assert fault.hits < 30, "the others heard of it"


async def test_an_event_that_gets_no_answer_holds_no_eviction_up(cluster):
    cluster.server.faults.add(Fault(method="POST", path=".*/events", times=None, delay_s=60.0))
    async with draining(cluster) as setting:
        await setting.add_session("n1")
        for number in range(40):
            await setting.add_pod(f"p{number}", "n1")
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.memory("n1") and setting.memory("n1").evicted == 40)
