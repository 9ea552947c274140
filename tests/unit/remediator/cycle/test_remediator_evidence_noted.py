"""What an agent kept is on record of its session soon after, not with the next minute's look."""

from __future__ import annotations

import pytest

from hack.sim.cluster.fleet.fleet_health import GPU_EVIDENCES
from rules.api.evidence.wire import digest
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from rules.session.repair.evidence import recorded
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import cycle_of, edge_world, open_session
from tests.support.remediator.scripted_server import until


@pytest.fixture
async def setting(tmp_path):
    async with edge(tmp_path) as cluster:
        await cluster.add_node("n1")
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            yield found


async def test_evidence_is_noted_seconds_after_it_is_kept(setting) -> None:
    await open_session(setting, "n1")
    cycle = cycle_of(setting, [])

    async def marked() -> bool:
        await cycle.look("n1")
        (session,) = setting.world.open_sessions("n1")
        return session.status.phase not in {"", "Pending"}

    while not await marked():
        pass
    looked = await cycle.look("n1")
    assert looked.again_in_s is not None
    assert looked.again_in_s <= 5.0
    node = setting.caches.nodes.items["n1"]
    spec = {"session": "s-n1", "nodeName": "n1", "nodeUID": node.uid, "kernelLog": "x"}
    body = {
        "apiVersion": "gpuward.io/v1alpha1", "kind": "GPUEvidence",
        "metadata": {"name": "s-n1"}, "spec": {**spec, "sha256": digest(spec)},
    }  # fmt: skip
    await setting.client.create(GPU_EVIDENCES, body)
    setting.cluster.clock.ahead_s += 5.0
    await cycle.look("n1")

    def noted() -> bool:
        (session,) = setting.world.open_sessions("n1")
        return recorded(session.status) == digest(spec)

    await until(noted)
