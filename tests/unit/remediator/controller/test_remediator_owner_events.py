"""Owners of evicted pods find an Event in their own namespace; no drain waits or fails for it."""

import asyncio

import pytest
import structlog

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import EVENTS
from hack.sim.proxy.faults import Fault
from rules.api.writes import Evicting
from tests.support.remediator.draining import draining
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
async def test_where_events_are_refused_the_drain_continues_and_logs_it_once(
    cluster, refusal, remedy
):
    fault = cluster.server.faults.fail(
        ApiError(403, "Forbidden", refusal), method="POST", path=".*/events", times=None
    )
    with structlog.testing.capture_logs() as logs:
        async with draining(cluster) as setting:
            await setting.add_session("n1")
            for number in range(30):
                await setting.add_pod(f"p{number}", "n1")
            setting.drains.steer("n1", Evicting.GO)
            await until(lambda: setting.memory("n1") and setting.memory("n1").evicted == 30)
            await until(lambda: any(line["event"] == "events" for line in logs))
    problems = [line["problem"] for line in logs if line["event"] == "events"]
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
