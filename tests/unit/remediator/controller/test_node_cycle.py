"""What a check at a node writes down, and what it does where the API server refuses or drops
it.
"""

import asyncio
import json

import pytest
from msgspec.structs import replace

from hack.sim.cluster.fleet.fleet_health import GPU_EVIDENCES
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, EVENTS
from hack.sim.proxy.faults import Fault
from remediator.controller.writes import Writes
from rules.api import writes as d
from rules.api.evidence import digest
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import (
    BlockedBy,
    DrainStatus,
    Mode,
    PodNote,
    Pods,
    QuarantineSpec,
    QuarantineStatus,
    RepairAttempt,
)
from rules.policy.policy import Policy
from rules.session.repair.evidence import recorded
from rules.session.status import lost_fields
from tests.support.cluster.made import made
from tests.support.remediator.edge import QUARANTINES, edge
from tests.support.remediator.edge_world import cycle_of, edge_world, open_session
from tests.support.remediator.scripted_server import until
from tests.support.scenario.provider_world import power_cycle


@pytest.fixture
async def setting(tmp_path):
    async with edge(tmp_path) as cluster:
        await cluster.add_node("n1")
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            yield found


async def event_messages(setting):
    events, _ = await setting.client.list(EVENTS, "default")
    return [event["message"] for event in events if event["reason"] == "QuarantineNeedsHuman"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (403, "Grant it patch on gpuquarantines/status"),
        (422, "update the CRDs of gpuward"),
        (413, "does not let the remediator write the status"),
    ],
)
async def test_a_refused_status_is_reported_on_the_node_once(setting, code, expected):
    body = json.dumps({"kind": "Status", "message": "no", "code": code}).encode()
    refused = setting.cluster.server.faults.add(
        Fault(method="PATCH", path="gpuquarantines/.*/status$", times=None, status=code, body=body)
    )
    cycle = cycle_of(setting, [])
    await open_session(setting, "n1")
    for _ in range(4):
        await cycle.check("n1")
        setting.cluster.clock.ahead_s += 60
    assert refused.hits >= 3
    for _ in range(100):
        if await event_messages(setting):
            break
    (message,) = await event_messages(setting)
    assert "Session s-n1 of this node is stopped" in message
    assert expected in message

    refused.times = refused.hits
    await cycle.check("n1")
    session = await setting.client.get(QUARANTINES, "s-n1")
    assert session["status"]["phase"] != "", "allowed again it goes on"


async def test_a_quarantine_is_written_with_its_status_and_event(setting):
    writes = Writes(setting.edge(), lambda: None)
    session = QuarantineView(
        metadata=ObjectMeta(name="s", uid="u"),
        spec=QuarantineSpec(node_name="n1"),
        status=QuarantineStatus(phase="Draining"),
    )
    status = QuarantineStatus(phase="Draining", message="put back")
    record = d.WriteSessionStatus(node="n1", name="s", resource_version="1", status=status)
    event = d.EmitEvent(
        node="n1", node_uid="n", kind="Warning", reason="r", message="m", at=0.0, key="k"
    )
    taint = d.TaintAndCordon(node="n1", node_uid="n", session="s", patch={})

    def decision(*parts: d.Write) -> d.Decision:
        return d.Decision(step="s", because="b", status=status, writes=parts)

    assert writes.spread(session, decision(record, event)) == ((record, event), None)
    kept, wait_s = writes.spread(session, decision(record, event))
    assert kept == ()
    assert wait_s is not None
    together = (taint, record, event)
    assert writes.spread(session, decision(*together)) == (together, None)


BLOCKED = DrainStatus(
    waiting=Pods(named=(PodNote(name="a/b"),)),
    blocked=(BlockedBy(pdb="a/p", pods=Pods(named=(PodNote(name="a/c"),))),),
)


@pytest.mark.parametrize(
    ("after", "wait_s"),
    [
        ({"drain": replace(BLOCKED, evicted=1), "message": "1 evicted"}, 10.0),
        ({"drain": replace(BLOCKED, evicted=1, blocked=())}, 1.0),
        ({"message": "another"}, 1.0),
        ({"reason": "Blocked"}, 1.0),
    ],
    ids=["progress", "a blocker", "the message alone", "another field"],
)
async def test_progress_of_a_drain_is_written_less_often(setting, after, wait_s):
    writes = Writes(setting.edge(), lambda: None)
    before = QuarantineStatus(phase="Draining", drain=BLOCKED)
    session = QuarantineView(
        metadata=ObjectMeta(name="s", uid="u"), spec=QuarantineSpec(node_name="n1"), status=before
    )
    status = replace(before, **after)
    record = d.WriteSessionStatus(node="n1", name="s", resource_version="1", status=status)
    decision = d.Decision(step="s", because="b", status=status, writes=(record,))
    assert writes.spread(session, decision) == ((record,), None)
    _, postponed_s = writes.spread(session, decision)
    assert postponed_s == pytest.approx(wait_s, abs=0.5)


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
            result = await cycle.check("n0")
            assert failing.hits
            assert result.again_in_s is not None
            assert result.again_in_s <= 10
            assert setting.world.deleted["n0"] == (gone,)
            failing.times = failing.hits
            cluster.clock.ahead_s += 20
            await cycle.check("n0")
            assert "n0" not in setting.world.deleted, "there is no such object any more"


LATER_FIELDS = ("evidence", "message", "reason")


@pytest.fixture
async def older(tmp_path):
    async with edge(tmp_path) as cluster:
        kept = await cluster.client.get(CUSTOM_RESOURCE_DEFINITIONS, "gpuquarantines.gpuward.io")
        status = kept["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        for later in LATER_FIELDS:
            del status["properties"][later]
        await cluster.client.update(CUSTOM_RESOURCE_DEFINITIONS, kept)
        await cluster.add_node("n1")
        async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as found:
            yield found


async def test_a_field_that_the_server_does_not_keep_neither_stops_a_drain_nor_repeats(older):
    cycle = cycle_of(older, [])
    await open_session(older, "n1")
    for _ in range(2):
        await cycle.check("n1")
        older.cluster.clock.ahead_s += 2
    session = await older.client.get(QUARANTINES, "s-n1")
    assert session["status"]["phase"] == "Draining"
    assert not {*LATER_FIELDS} & {*session["status"]}
    before = older.cluster.writes()
    for _ in range(5):
        older.cluster.clock.ahead_s += 2
        assert (await cycle.check("n1")).evicting is d.Evicting.GO
    assert older.cluster.writes() == before


async def test_fields_that_an_older_crd_drops_are_reported_once_on_the_node(older):
    cycle = cycle_of(older, [])
    await open_session(older, "n1")
    event_messages: list[str] = []
    for _ in range(20):
        await cycle.check("n1")
        older.cluster.clock.ahead_s += 2
        events, _ = await older.client.list(EVENTS, "default")
        event_messages = [event["message"] for event in events if "drops" in event["message"]]
    (message,) = event_messages
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


async def tainted(setting):
    """A cycle whose session has quarantined its node, and the result of the next check."""
    await open_session(setting, "n1")
    cycle = cycle_of(setting, [])
    while setting.world.open_sessions("n1")[0].status.phase in {"", "Pending"}:
        await cycle.check("n1")
    return cycle, await cycle.check("n1")


async def keep_evidence(setting) -> str:
    """The agent writes evidence; returns its digest."""
    node = setting.caches.nodes.items["n1"]
    spec = {"session": "s-n1", "nodeName": "n1", "nodeUID": node.uid, "kernelLog": "x"}
    spec["sha256"] = digest(spec)
    await made(setting.client, GPU_EVIDENCES, "s-n1", spec=spec)
    return spec["sha256"]


def noted(setting) -> str:
    (session,) = setting.world.open_sessions("n1")
    return recorded(session.status)


async def test_without_a_watch_evidence_is_noted_seconds_after_it_is_kept(setting) -> None:
    cycle, result = await tainted(setting)
    assert result.again_in_s is not None
    assert result.again_in_s <= 5.0
    kept = await keep_evidence(setting)
    setting.cluster.clock.ahead_s += 5.0
    await cycle.check("n1")
    await until(lambda: noted(setting) == kept)


async def test_watched_evidence_is_read_once_when_it_exists(setting) -> None:
    cache = setting.caches.evidences
    watch = asyncio.create_task(cache.run())
    await until(lambda: cache.synced and not cache.too_old())
    cycle, _ = await tainted(setting)
    setting.cluster.clock.ahead_s += 5.0
    await cycle.check("n1")
    calls = setting.cluster.server.requests
    assert calls.count(verb="get", resource="gpuevidences") == 0
    kept = await keep_evidence(setting)
    await until(lambda: cache.items)
    for _ in range(3):
        await cycle.check("n1")
        setting.cluster.clock.ahead_s += 5.0
    assert noted(setting) == kept
    assert calls.count(verb="get", resource="gpuevidences") == 1
    watch.cancel()
