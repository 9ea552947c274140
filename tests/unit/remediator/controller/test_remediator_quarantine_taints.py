"""A taint and cordon rests on the node as its watch shows it; where that was behind, the node is
read first.
"""

import pytest

from hack.sim.cluster.resource import NODES
from remediator.kube.gateway import Gateway
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from tests.support.remediator.edge import QUARANTINES, NoSkew, edge
from tests.support.remediator.edge_world import Leader, cycle_of, edge_world, open_session
from tests.support.remediator.scripted_server import until


@pytest.fixture
async def setting(tmp_path):
    async with edge(tmp_path) as cluster:
        await cluster.add_node("n1")
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            found.gateway = Gateway(
                cluster.api,
                cluster.clock,
                Leader(),
                cluster.metrics,
                mode=lambda _: Mode.ENFORCE,
                recheck=lambda write, node: "",
                watched=found.caches.nodes.items.get,
            )
            yield found


def reads(setting):
    return setting.cluster.server.requests.count(verb="get", resource="nodes")


async def test_a_node_is_quarantined_without_a_read(setting):
    await open_session(setting, "n1")
    before = reads(setting)
    await cycle_of(setting, []).check("n1")
    assert (await setting.client.get(NODES, "n1"))["spec"]["unschedulable"]
    assert reads(setting) == before


async def test_a_node_with_another_version_is_read_and_then_quarantined(setting):
    behind = setting.caches.nodes.items["n1"]
    await setting.client.patch(NODES, "n1", {"metadata": {"labels": {"rack": "a"}}})
    await until(lambda: setting.caches.nodes.items["n1"].labels.get("rack") == "a")
    setting.caches.nodes.items["n1"] = behind
    await open_session(setting, "n1")
    cycle = cycle_of(setting, [])
    await cycle.check("n1")
    assert "unschedulable" not in (await setting.client.get(NODES, "n1"))["spec"]
    await cycle.check("n1")
    node = await setting.client.get(NODES, "n1")
    assert node["spec"]["unschedulable"]
    assert node["metadata"]["labels"]["rack"] == "a"
    assert (await setting.client.get(QUARANTINES, "s-n1"))["status"]["phase"] == "Draining"


async def test_an_outage_is_credited_once(setting):
    """The credit for an outage is stored before the next round."""
    setting.cluster.clock.skew = NoSkew()
    # The clock is moved past what the watches heard: that is another story.
    setting.world.doubts.clear()
    cycle = cycle_of(setting, [])
    await open_session(setting, "n1")
    await cycle.check("n1")
    uid = setting.world.open_sessions("n1")[0].metadata.uid
    first = setting.world.active.get(uid)
    assert first is not None
    setting.cluster.clock.ahead_s += 3600
    await cycle.check("n1")
    drain = (await setting.client.get(QUARANTINES, "s-n1"))["status"]["drain"]
    assert (setting.world.active.get(uid) or 0.0) >= first + 3600
    for _ in range(3):
        setting.cluster.clock.ahead_s += 2
        await cycle.check("n1")
    again = (await setting.client.get(QUARANTINES, "s-n1"))["status"]["drain"]
    assert drain["suspendedSeconds"] >= 3590
    assert again["suspendedSeconds"] == drain["suspendedSeconds"]
