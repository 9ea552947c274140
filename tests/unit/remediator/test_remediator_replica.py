"""One replica put together: what it knows without leading, and when it is not ready."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import PODS
from remediator.kube.access import Access
from remediator.kube.answer import Rejection
from remediator.kube.clock import CallQueue
from remediator.replica import Replica
from remediator.settings import make_parser, run_settings
from tests.support.cluster.made import made, with_gpus
from tests.support.remediator.edge import QUARANTINES, edge
from tests.support.remediator.scripted_server import until

WORKER = {"labels": {"jobset.sigs.k8s.io/jobset-name": "llm"}}
CAUSES = [{"source": "Human", "message": "drill"}]
SESSION = {"nodeName": "n1", "level": "Drain", "causes": CAUSES}


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        await found.add_node("n1")
        yield found


@asynccontextmanager
async def standby(tmp_path):
    """A replica that watches and never campaigns."""
    arguments = make_parser({}).parse_args(["run", "--kubeconfig", str(tmp_path / "kubeconfig")])
    access = Access(arguments.kubeconfig)
    await access.load()
    replica = Replica(run_settings(arguments, {}), access)
    await replica.api.open()
    parts = [*(cache.run() for cache in replica.caches.all), replica.scout.run()]
    tasks = [asyncio.create_task(part) for part in (*parts, replica.maintenance.run())]
    try:
        yield replica
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await replica.api.close()


async def test_a_replica_that_does_not_lead_knows_the_gangs_too(cluster, tmp_path):
    await made(cluster.client, PODS, "w0", "default", meta=WORKER, spec=with_gpus("n1"))
    await made(cluster.client, QUARANTINES, "s-n1", spec=SESSION)
    async with standby(tmp_path) as replica:
        await until(lambda: replica.world.gangs.get("n1"))
        assert [gang.key for gang in replica.world.gangs["n1"]] == ["JobSet default/llm"]
        assert not replica.may_act()


@pytest.mark.parametrize("plural", ["gpuwardpauses", "gpuquarantines", "nodes", "pods"])
async def test_readyz_names_the_view_that_is_too_old(cluster, tmp_path, plural):
    async with standby(tmp_path) as replica:
        await until(lambda: not replica.ready())
        cluster.server.faults.fail(
            ApiError(500, "InternalError", "etcd is away"), path=f".*/{plural}", times=None
        )
        cluster.server.faults.drop_watches()
        broken = [c for c in replica.caches.all if c.resource.path.endswith(f"/{plural}")]
        await until(lambda: all("etcd is away" in cache.problem for cache in broken))
        assert replica.ready() == "", "a moment without a watch is normal"
        for cache in broken:
            cache.unfollowed_since -= 30
        assert broken[0].resource.name in replica.ready()
        assert "etcd is away" in replica.ready()
        assert replica.world.snapshot().doubt in replica.ready()[0].lower() + replica.ready()[1:]
        shown = await replica.page_source().state()
        assert shown.replica.problem == replica.ready(), "the page shows it, too"
        cluster.server.faults.clear()
        await until(lambda: not replica.ready())


async def test_a_replica_without_a_certain_time_is_not_ready(cluster, tmp_path):
    async with standby(tmp_path) as replica:
        await until(lambda: not replica.ready())
        now = replica.clock.local()
        for n in range(15):
            replica.clock.skew.add(now + 3600 * (n % 3), now + 2 * n, now + 2 * n)
        assert "The time is not certain" in replica.ready()


async def test_a_replica_that_the_server_rejects_for_long_asks_to_be_restarted(cluster, tmp_path):
    async with standby(tmp_path) as replica:
        await until(lambda: not replica.ready())
        now = replica.loop.ticked_at = replica.clock.elapsed()
        replica.api.rejection = Rejection(now - 700)
        assert replica.healthy() == "", "a server that is down is no reason"
        replica.api.rejection.answered(401, now)
        assert "a restart reads them again" in replica.healthy()
        await replica.api.call(CallQueue.READ, "GET", "/api/v1/nodes/n1")
        assert replica.healthy() == ""
