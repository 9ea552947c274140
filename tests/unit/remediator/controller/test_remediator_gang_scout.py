"""Which gangs run on the nodes that wait, and what Kueue still replaces of them."""

from typing import cast

import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.resource import PODS
from remediator.controller.drain_reads import DrainReader
from remediator.controller.gangs import GangScout, KueueWorkloads
from remediator.controller.pod_groups import PodGroups
from remediator.controller.pod_watch import PodWatch
from remediator.kube.other_apis import ApiGroups
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from tests.support.cluster.made import made, with_gpus
from tests.support.remediator.edge import QUARANTINES, edge
from tests.support.remediator.edge_world import edge_world
from tests.support.remediator.scripted_server import until

POLICY = Policy(mode=Mode.ENFORCE)
DRILL = [{"source": "Human", "message": "drill"}]
JOBSET = "JobSet default/llm"


class Kueue:
    """A Kueue with replacements set by a test."""

    def __init__(self):
        self.replacing = {}

    async def unhealthy(self, gangs):
        keys = {gang.key for gang in gangs}
        return {key: nodes for key, nodes in self.replacing.items() if key in keys}


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        for name in ("n1", "n2"):
            await found.add_node(name)
        yield found


async def add_worker(cluster, name, node, gpus=8):
    meta = {
        "labels": {"jobset.sigs.k8s.io/jobset-name": "llm"},
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"},
    }
    await made(cluster.client, PODS, name, "default", meta=meta, spec=with_gpus(node, gpus))


async def open_session(setting, node, phase="Marked", causes=DRILL):
    spec = {"nodeName": node, "level": "Drain", "causes": causes}
    status = {"mode": "Enforce", "phase": phase}
    await made(setting.client, QUARANTINES, f"s-{node}", spec=spec, status=status)
    await until(lambda: any(s.status.phase == phase for s in setting.world.sessions.get(node, ())))


class Scouting:
    """A scout, its Kueue, and how often it notified the fleet rules."""

    def __init__(self, setting):
        self.kueue = Kueue()
        api, clock = setting.cluster.api, setting.cluster.clock
        self.wakeups: list[int] = []
        self.scout = GangScout(
            setting.edge(),
            DrainReader(api, clock, setting.caches),
            cast("KueueWorkloads", self.kueue),
            PodGroups(api, ApiGroups(api, clock), clock),
            follow=PodWatch(setting.edge(), lambda _: None).read_early,
            fleet_changed=lambda: self.wakeups.append(1),
        )


async def test_gangs_of_waiting_nodes_are_found_and_others_are_not_read(cluster):
    await add_worker(cluster, "w0", "n1")
    await add_worker(cluster, "w1", "n2")
    async with edge_world(cluster, POLICY) as setting:
        scouting = Scouting(setting)
        await open_session(setting, "n1")
        await open_session(setting, "n2", "Quarantined")
        await scouting.scout.sweep()
        assert {n: [g.key for g in gangs] for n, gangs in setting.world.gangs.items()} == {
            "n1": [JOBSET]
        }
        assert setting.world.gangs["n1"][0].topology_aware
        assert len(scouting.wakeups) == 1
        await scouting.scout.sweep()
        assert len(scouting.wakeups) == 1, "nothing new is no news"


async def test_what_kueue_replaces_is_news_when_it_begins_and_when_it_ends(cluster):
    await add_worker(cluster, "w0", "n1")
    async with edge_world(cluster, POLICY) as setting:
        scouting = Scouting(setting)
        await open_session(setting, "n1")
        scouting.kueue.replacing = {JOBSET: ("n2",)}
        await scouting.scout.sweep()
        assert setting.world.snapshot().kueue_unhealthy == {JOBSET: ("n2",)}
        scouting.kueue.replacing = {}
        cluster.clock.ahead_s += 6
        await scouting.scout.sweep()
        assert setting.world.snapshot().kueue_unhealthy == {}
        assert len(scouting.wakeups) == 2


async def test_a_node_that_cannot_be_read_stays_unread_and_the_next_is_read(cluster):
    await add_worker(cluster, "w1", "n2")
    async with edge_world(cluster, POLICY) as setting:
        scouting = Scouting(setting)
        for node in ("n1", "n2"):
            await open_session(setting, node)
        cluster.server.faults.fail(
            ApiError(503, "ServiceUnavailable", "x"), method="GET", path="/api/v1/pods", times=1
        )
        await scouting.scout.sweep()
        assert len(setting.world.gangs) == 1
        await scouting.scout.sweep()
        assert set(setting.world.gangs) == {"n1", "n2"}, "a turn waits 10 s for the answer"
