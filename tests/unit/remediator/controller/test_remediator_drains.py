"""Drains against the simulated API server: who is asked to go, how often, and what is learned."""

import asyncio

import msgspec
import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import NODES, PODS
from rules.api.writes import Evicting
from rules.drain.eviction import EvictionKind
from tests.support.cluster.made import made, with_gpus
from tests.support.remediator.draining import FORCED, LONG_AGO, draining
from tests.support.remediator.edge import edge
from tests.support.remediator.scripted_server import until
from tests.support.remediator.watched_cache import RecordingClock


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        for name in ("n1", "n2"):
            await found.add_node(name)
        yield found


async def test_nobody_is_asked_before_it_is_on_record(cluster):
    async with draining(cluster) as setting:
        await setting.add_session("n1", on_record=False)
        await setting.add_pod("p", "n1")
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.drains.plan("n1") and setting.drains.plan("n1").waiting)
        assert setting.evictions() == 0
        session = setting.world.open_sessions("n1")[0]
        drain = setting.drains.plan("n1").status(session.status.drain)
        status = msgspec.structs.replace(session.status, drain=drain)
        setting.world.learn_session(msgspec.structs.replace(session, status=status))
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.evictions() == 1)


async def test_a_drained_node_is_watched_and_nothing_on_it_is_asked_to_go(cluster):
    async with draining(cluster) as setting:
        await setting.add_session("n1")
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.drains.plan("n1") and setting.drains.plan("n1").drained)
        plan = setting.drains.plan("n1")
        assert (plan.arrived, plan.listed_at is not None) == ((), True)
        setting.drains.steer("n1", Evicting.WATCH)
        assert setting.drains.plan("n1").listed_at == plan.listed_at
        setting.drains.steer("n1", Evicting.NO)
        await setting.add_pod("by-name", "n1")
        await setting.add_pod("elsewhere", "n2")
        setting.woken.clear()
        before = len(cluster.server.requests.all)
        setting.drains.steer("n1", Evicting.WATCH)
        await until(lambda: setting.drains.plan("n1") and setting.drains.plan("n1").arrived)
        assert setting.drains.plan("n1").arrived == ("default/by-name",)
        later = (r.path for r in list(cluster.server.requests.all)[before:])
        (asked,) = {path for path in later if "nodeName%3Dn1" in path}
        # For weeks, on every quarantined node: from the server's cache, never past every pod in
        # etcd.
        assert "resourceVersion=0" in asked
        assert "limit=" not in asked
        assert setting.woken == ["n1"]
        assert setting.evictions() == 0


async def test_many_events_are_one_check_of_the_common_queue(tmp_path):
    clock = RecordingClock()
    checks = clock.slept  # a pause follows each check
    async with edge(tmp_path, clock=clock) as cluster, draining(cluster) as setting:
        await asyncio.sleep(0.1)
        checks.clear()
        for _ in range(200):
            setting.drains.pdb_changed("default/keep")
            await asyncio.sleep(0)
        await until(lambda: checks)
        assert len(checks) < 20


async def test_the_node_wakes_when_a_blocker_of_its_repair_ends(cluster):
    async with draining(cluster, listed_again_s=lambda plan: (0.02, 0.05)) as setting:
        await setting.add_session("n1")
        spec = with_gpus("n1", 1) | {"tolerations": [{"operator": "Exists"}]}
        pod = await made(setting.client, PODS, "helps-itself", "default", spec=spec)
        setting.drains.steer("n1", Evicting.WATCH)
        await until(lambda: setting.drains.plan("n1") and setting.drains.plan("n1").using_gpus)
        await until(lambda: setting.woken)
        setting.woken.clear()
        pod["status"] = {"phase": "Succeeded"}
        await setting.client.update_status(PODS, pod, "default")
        await until(lambda: not setting.drains.plan("n1").using_gpus)
        await until(lambda: setting.woken == ["n1"])


async def test_an_answer_that_got_lost_is_asked_for_again_and_counted_once(cluster):
    async with draining(cluster) as setting:
        cluster.server.faults.fail(
            ApiError(504, "Timeout", "lost"), method="POST", path="/eviction", after=True
        )
        await setting.add_session("n1")
        await setting.add_pod("p", "n1")
        setting.drains.steer("n1", Evicting.GO)

        async def gone():
            pods, _ = await setting.client.list(PODS)
            return all("deletionTimestamp" in pod["metadata"] for pod in pods)

        await until(lambda: setting.evictions() >= 1)
        assert await gone()
        await until(lambda: 'result="Unknown"' in cluster.metrics.page().decode())
        await setting.client.delete(PODS, "p", "default", grace=0)
        await until(lambda: setting.drains.plan("n1") and setting.drains.plan("n1").drained)
        assert setting.evictions() == 1


async def test_a_node_that_vanished_is_not_drained(cluster):
    async with draining(cluster) as setting:
        await setting.add_session("n1")
        await setting.add_pod("p", "n1")
        await setting.client.delete(NODES, "n1")
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: setting.memory("n1") and setting.memory("n1").outcomes)
        (outcome,) = setting.memory("n1").outcomes.values()
        assert outcome.kind is EvictionKind.UNKNOWN
        assert "not read before the write: 404" in outcome.message
        assert setting.evictions() == 0


async def test_force_deletes_nothing_whose_condition_could_not_be_set(cluster):
    async with draining(cluster) as setting:
        setting.policy = FORCED
        cluster.server.faults.fail(
            ApiError(403, "Forbidden", "no pods/status"),
            method="PATCH",
            path=".*/status",
            times=None,
        )
        await setting.add_budget("web", 0, minAvailable=2)
        await until(lambda: "default/web" in setting.world.caches.pdbs.items)
        await setting.add_pod("web", "n1", started_at=LONG_AGO)
        await setting.add_session("n1", started_at=LONG_AGO)
        setting.drains.steer("n1", Evicting.GO)
        await until(lambda: 'kind="SetDisruptionTarget"' in cluster.metrics.page().decode())
        await until(lambda: (plan := setting.drains.plan("n1")) and plan.force_refused)
        assert cluster.server.requests.count(verb="delete", resource="pods") == 0
        plan = setting.drains.plan("n1")
        assert "no pods/status" in plan.force_refused.why
        await until(lambda: setting.drains.plan("n1").blocked)
        (block,) = setting.drains.plan("n1").blocked
        assert (block.pdb, block.pods.names) == ("default/web", ("default/web",))
