"""Definitions of an older release drop what they do not know from a session's status."""

from __future__ import annotations

import pytest

from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, EVENTS
from rules.api import writes as d
from rules.api.quarantine import Mode, QuarantineStatus, RepairAttempt
from rules.policy.policy import Policy
from rules.session.refused import lost_fields
from tests.support.remediator.edge import QUARANTINES, edge
from tests.support.remediator.edge_world import cycle_of, edge_world, open_session

LATER_FIELDS = ("evidence", "message", "reason")


@pytest.fixture
async def setting(tmp_path):
    async with edge(tmp_path) as cluster:
        kept = await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, "gpuquarantines.gpuward.io")
        status = kept["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        for later in LATER_FIELDS:
            del status["properties"][later]
        await cluster.client.update(CUSTOM_RESOURCE_DEFINITIONS, kept)
        await cluster.add_node("n1")
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            yield found


async def test_a_field_that_the_server_does_not_keep_neither_stops_a_drain_nor_repeats(
    setting,
):
    cycle = cycle_of(setting, [])
    await open_session(setting, "n1")
    for _ in range(2):
        await cycle.look("n1")
        setting.cluster.clock.ahead_s += 2
    session = await setting.client.get(QUARANTINES, "s-n1")
    assert session["status"]["phase"] == "Draining"
    assert not {*LATER_FIELDS} & {*session["status"]}
    before = setting.cluster.writes()
    for _ in range(5):
        setting.cluster.clock.ahead_s += 2
        assert (await cycle.look("n1")).evicting is d.Evicting.GO
    assert setting.cluster.writes() == before


async def test_what_an_older_definition_drops_is_said_once_on_the_node(setting):
    cycle = cycle_of(setting, [])
    await open_session(setting, "n1")
    told: list[str] = []
    for _ in range(20):
        await cycle.look("n1")
        setting.cluster.clock.ahead_s += 2
        events, _ = await setting.client.list(EVENTS, "default")
        told = [event["message"] for event in events if "do not keep" in event["message"]]
    (message,) = told
    assert "status.evidence, status.message, status.reason" in message
    assert "kubectl apply -k daemonset/crds" in message


def test_fields_inside_lists_are_seen_to_be_lost_and_those_inside_evidence_are_none() -> None:
    sent = QuarantineStatus(
        phase="Marked",
        repair=(RepairAttempt(step="ResetGPU", adapter="job", state="Done"),),
        evidence={"level": "Drain", "taken": None},
    )
    stored = QuarantineStatus(
        phase="Marked",
        repair=(RepairAttempt(step="ResetGPU", state="Done"),),
        evidence={"level": "Drain"},
    )
    assert lost_fields(sent, stored) == ("status.repair.adapter",)
    assert lost_fields(stored, stored) == ()
    assert lost_fields(sent, QuarantineStatus(phase="Marked")) == (
        "status.evidence",
        "status.repair",
    )
