"""Leadership on a Lease over real HTTP, with a clock that tests move."""

import asyncio
import time
from typing import Any

import pytest
import structlog

from hack.sim.cluster.resource import LEASES
from hack.sim.proxy.faults import Fault
from remediator.kube.elector import LEASE_NAME, LEASE_S, Elector
from rules.api.timestamps import parse_time
from tests.support.remediator.edge import SteppedClock, edge
from tests.support.remediator.scripted_server import until


class Replica:
    """An elector that records what it was reported."""

    def __init__(self, cluster, name, *, ready=True, namespace="gpuward", annotations=dict):
        self.cluster = cluster
        self.events: list[Any] = []
        self.elector = Elector(
            cluster.api,
            cluster.clock,
            namespace=namespace,
            identity=name,
            ready=lambda: ready,
            time_known=lambda: not cluster.clock.skew.undecided,
            on_start=self.start,
            on_stop=lambda: self.events.append("stop"),
            annotations=annotations,
        )

    def start(self, renewed):
        self.events.append("start")
        self.started_at = self.cluster.clock.elapsed()

    async def ask(self):
        await self.elector.campaign()
        return self.elector.may_write()


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        yield found


async def holder(cluster):
    lease = await cluster.client.get(LEASES, LEASE_NAME, "gpuward")
    return lease["spec"].get("holderIdentity")


async def test_the_first_takes_the_lease_and_the_second_waits(cluster):
    one, two = Replica(cluster, "one"), Replica(cluster, "two")
    assert await one.ask()
    assert not await two.ask()
    assert await holder(cluster) == "one"
    assert (one.events, two.events) == (["start"], [])


async def test_the_lease_of_a_dead_leader_is_taken_as_soon_as_it_ends(tmp_path):
    class SkippingClock(SteppedClock):
        async def sleep(self, seconds):
            self.ahead_s += seconds
            await asyncio.sleep(0)

    async with edge(tmp_path, clock=SkippingClock()) as cluster:
        assert await Replica(cluster, "one").ask()
        seen_at, two = cluster.clock.elapsed(), Replica(cluster, "two")
        campaign = asyncio.create_task(two.elector.run())
        await until(lambda: two.events)
        campaign.cancel()
        assert LEASE_S <= two.started_at - seen_at < LEASE_S + 1


@pytest.mark.parametrize("off_s", [-600.0, 600.0], ids=["behind", "ahead"])
async def test_nobody_leads_by_a_clock_that_the_server_contradicts(tmp_path, off_s):
    """What a leader writes is dated, and healthy time and deadlines count from there."""

    class WrongClock(SteppedClock):
        def local(self):
            return super().local() + off_s

    async with edge(tmp_path, clock=WrongClock()) as cluster:
        one = Replica(cluster, "one")
        assert not await one.ask(), "one answer against this machine's clock"
        for _ in range(2):
            cluster.clock.ahead_s += 1.1
            led = await one.ask()
        assert led, "three answers that agree are the time"
        lease = await cluster.client.get(LEASES, LEASE_NAME, "gpuward")
        assert abs((parse_time(lease["spec"]["acquireTime"]) or 0.0) - time.time()) < 10


async def test_a_disruption_needs_a_renewal_within_ten_seconds_of_the_monotonic_clock(cluster):
    one = Replica(cluster, "one")
    await one.ask()
    cluster.clock.ahead_s += 9.0
    assert one.elector.may_disrupt()
    cluster.clock.ahead_s += 1.5
    assert not one.elector.may_disrupt()
    assert one.elector.may_write()
    await one.elector.campaign()
    assert one.elector.may_disrupt()


async def test_a_silent_leader_loses_the_lease_only_after_its_full_duration(cluster):
    one, two = Replica(cluster, "one"), Replica(cluster, "two")
    await one.ask()
    cluster.clock.ahead_s += 14.0
    assert not await two.ask(), "the second has only just seen the lease"
    cluster.clock.ahead_s += 14.0
    assert not await two.ask()
    cluster.clock.ahead_s += 2.0
    assert await two.ask()
    assert not one.elector.may_write()
    await one.elector.campaign()
    assert await holder(cluster) == "two"
    assert one.events == ["start", "stop"]


async def test_a_lease_that_others_took_for_a_day_is_named_and_taken_after_a_minute(
    cluster,
):
    spec = {"holderIdentity": "other-tool", "leaseDurationSeconds": 86_400}
    metadata = {"name": LEASE_NAME, "namespace": "gpuward"}
    await cluster.client.create(LEASES, {"metadata": metadata, "spec": spec})
    one = Replica(cluster, "one")
    with structlog.testing.capture_logs() as logged:
        assert not await one.ask()
        cluster.clock.ahead_s += 59.0
        assert not await one.ask()
    problems = [line["problem"] for line in logged if line["event"] == "election"]
    assert len(problems) == 1
    assert "held by other-tool for 86400 s" in problems[0]
    cluster.clock.ahead_s += 2.0
    assert await one.ask()
    assert await holder(cluster) == "one"


@pytest.mark.parametrize("doing", ["campaign", "release"])
async def test_who_was_stopped_behind_its_read_of_the_lease_does_not_write_it(cluster, doing):
    """The server would refuse it, but a deposed leader is to keep quiet altogether."""
    one = Replica(cluster, "one")
    await one.ask()
    written = cluster.server.requests.count("update", "leases")

    def stop() -> None:
        cluster.clock.ahead_s += 16.0

    cluster.server.faults.add(Fault(method="GET", path="/leases/", action="delay", then=stop))
    await getattr(one.elector, doing)()
    assert cluster.server.requests.count("update", "leases") == written
    assert await one.ask(), "what it reads now counts"


async def test_a_released_lease_is_taken_at_once(cluster):
    one, two = Replica(cluster, "one"), Replica(cluster, "two")
    await one.ask()
    await two.ask()
    await one.elector.release()
    assert not one.elector.may_write()
    assert await two.ask()


async def test_who_is_not_ready_does_not_campaign(cluster):
    one = Replica(cluster, "one", ready=False)
    assert not await one.ask()


async def test_stepping_aside_gives_the_other_its_chance(cluster):
    one, two = Replica(cluster, "one"), Replica(cluster, "two")
    await one.ask()
    one.elector.step_aside()
    assert not await one.ask()
    assert await two.ask()
    cluster.clock.ahead_s += 11.0
    assert not await one.ask()
    assert not one.elector.no_other_replica


async def test_an_offer_that_nobody_took_is_remembered(cluster):
    one = Replica(cluster, "one")
    await one.ask()
    one.elector.step_aside()
    await one.ask()
    cluster.clock.ahead_s += 11.0
    assert await one.ask()
    assert one.elector.no_other_replica
    assert await one.ask()
    assert one.elector.no_other_replica


async def test_an_unreadable_lease_is_named(cluster):
    from hack.sim.cluster.errors import ApiError

    forbidden = ApiError(403, "Forbidden", "leases is forbidden")
    cluster.server.faults.fail(forbidden, path="/leases", times=None)
    one = Replica(cluster, "one")
    assert not await one.ask()
    assert "leases is forbidden" in one.elector.problem


async def test_a_missing_namespace_is_named_with_a_remedy(cluster):
    one = Replica(cluster, "one", namespace="nowhere")
    assert not await one.ask()
    assert "no namespace nowhere for the lease; create it, or pass" in one.elector.problem


async def test_the_leader_publishes_its_problem_on_the_lease_and_removes_it(cluster):
    status = {"gpuward.io/unable": "2026-11-23T21:11:00Z the list of nodes was refused"}
    one = Replica(cluster, "one", annotations=lambda: status)
    assert await one.ask()

    async def annotations():
        lease = await cluster.client.get(LEASES, LEASE_NAME, "gpuward")
        return lease["metadata"].get("annotations", {})

    assert await annotations() == status
    two = Replica(cluster, "two")
    assert not await two.ask()
    assert two.elector.leader_status.unable == "the list of nodes was refused", (
        "who stands by knows, too"
    )
    status = {}
    assert await one.ask()
    assert await annotations() == {}
    status = {"gpuward.io/policy-unread": "budgit"}
    assert await one.ask()
    await one.elector.release()
    assert await annotations() == {}, "nobody who is gone is unable"
