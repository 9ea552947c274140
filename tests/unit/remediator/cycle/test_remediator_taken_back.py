"""What a deleted session asked for is kept in mind until it is off, or said."""

from __future__ import annotations

import pytest

from hack.sim.proxy.faults import Fault
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import cycle_of, edge_world
from tests.support.scenario.provider_world import power_cycle


@pytest.fixture
def asked():
    """Made before the test's own loop runs: this world runs on a loop in virtual time."""
    return power_cycle()


async def test_a_failed_read_forgets_no_deleted_session(tmp_path, asked):
    gone = asked.session("n0")
    async with edge(tmp_path) as cluster:
        await cluster.add_node("n0")
        async with edge_world(cluster, asked.policy) as setting:
            failing = Fault(method="GET", path="rebootnodes", times=None, status=500, body=b"{}")
            cluster.server.faults.add(failing)
            setting.world.deleted["n0"] = (gone,)
            cycle = cycle_of(setting, [])
            looked = await cycle.look("n0")
            assert failing.hits
            assert looked.again_in_s is not None
            assert looked.again_in_s <= 10
            assert setting.world.deleted["n0"] == (gone,)
            failing.times = failing.hits
            cluster.clock.ahead_s += 20
            await cycle.look("n0")
            assert "n0" not in setting.world.deleted, "there is no such object any more"
