"""A session whose status the API server refuses cannot say so itself: the node's Events do."""

from __future__ import annotations

import json

import pytest

from hack.sim.cluster.resource import EVENTS
from hack.sim.proxy.faults import Fault
from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from tests.support.remediator.edge import QUARANTINES, edge
from tests.support.remediator.edge_world import cycle_of, edge_world, open_session


@pytest.fixture
async def setting(tmp_path):
    async with edge(tmp_path) as cluster:
        await cluster.add_node("n1")
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            yield found


async def told(setting):
    events, _ = await setting.client.list(EVENTS, "default")
    return [event["message"] for event in events if event["reason"] == "QuarantineNeedsHuman"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (403, "grant it patch on gpuquarantines/status"),
        (422, "update the definitions of gpuward"),
        (413, "does not let the remediator write the status"),
    ],
)
async def test_a_refused_status_is_said_on_the_node_once(setting, code, says):
    body = json.dumps({"kind": "Status", "message": "no", "code": code}).encode()
    refused = setting.cluster.server.faults.add(
        Fault(method="PATCH", path="gpuquarantines/.*/status$", times=None, status=code, body=body)
    )
    cycle = cycle_of(setting, [])
    await open_session(setting, "n1")
    for _ in range(4):
        await cycle.look("n1")
        setting.cluster.clock.ahead_s += 60
    assert refused.hits >= 3
    for _ in range(100):
        if await told(setting):
            break
    (message,) = await told(setting)
    assert "Session s-n1 of this node does not go on" in message
    assert says in message

    refused.times = refused.hits
    await cycle.look("n1")
    session = await setting.client.get(QUARANTINES, "s-n1")
    assert session["status"]["phase"] != "", "allowed again it goes on"
