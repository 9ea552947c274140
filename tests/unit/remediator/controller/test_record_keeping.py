"""The leader writes records over real HTTP; nothing else depends on them."""

import asyncio

import pytest

from hack.sim.cluster.errors import ApiError
from hack.sim.cluster.fleet.fleet_health import GPU_NODE_HEALTHS
from hack.sim.cluster.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from remediator.controller.records import RecordKeeping, session_nodes
from rules.api.gpu_record import RecordEvent, RecordPlace, RecordStatus, RecordView
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Mode, QuarantineSpec, QuarantineStatus
from rules.api.timestamps import format_time
from rules.fleet.record_changes import MOST_RECORDS_OF_NODE
from rules.policy.policy import Policy
from tests.support.cluster.made import made
from tests.support.remediator.edge import edge
from tests.support.remediator.edge_world import edge_world
from tests.support.remediator.scripted_server import until

RECORDS = Resource("gpuward.io", "v1alpha1", "gpurecords", False, "GPURecord")
GPU = "GPU-0badcafe-0000-0000-0000-000000000000"


@pytest.fixture
async def cluster(tmp_path):
    async with edge(tmp_path) as found:
        await found.add_node("n1")
        yield found


async def sick(cluster, *, active=True, gpu=GPU, node="n1"):
    now = format_time(cluster.clock.now())
    incident = {
        "id": "i1", "reason": "Xid79GPUFallenOffBus", "severity": "Fatal", "level": "Drain",
        "active": active, "firstSeen": now, "gpus": [gpu],
    }  # fmt: skip
    status = {
        "health": "Unhealthy", "observedAt": now, "driverVersion": "580.82",
        "gpus": [{"uuid": gpu, "serial": "42", "pci": "0000:3b:00.0"}], "incidents": [incident],
    }  # fmt: skip
    await made(cluster.client, GPU_NODE_HEALTHS, node, status=status)


def keeping(setting):
    return RecordKeeping(setting.edge())


async def test_a_fault_becomes_a_record_with_two_writes_and_then_none(cluster):
    await sick(cluster)
    async with edge_world(cluster, Policy(mode=Mode.SHADOW)) as setting:
        follow = asyncio.create_task(setting.caches.records.run())
        await until(lambda: setting.caches.records.synced and setting.world.healths)
        keeper = keeping(setting)
        keeper.took_over()
        await keeper.sweep()
        found = await cluster.client.get(RECORDS, GPU.lower())
        assert found["status"]["serial"] == "42"
        assert found["status"]["events"][0]["reason"] == "Xid79GPUFallenOffBus"
        assert found["status"]["counters"]["faults"] == 1
        assert cluster.writes() == [("create", "gpurecords"), ("patch", "gpurecords")]
        cluster.clock.ahead_s += 120
        keeper.took_over()
        await keeper.sweep()
        assert len(cluster.writes()) == 2, "the same facts again write nothing"
        follow.cancel()


async def test_a_record_that_another_leader_made_meanwhile_is_taken_over(cluster):
    await sick(cluster)
    async with edge_world(cluster, Policy()) as setting:
        await until(lambda: setting.world.healths)
        empty = {"apiVersion": "gpuward.io/v1alpha1", "kind": "GPURecord",
                 "metadata": {"name": GPU.lower()}}  # fmt: skip
        await cluster.client.create(RECORDS, empty)
        keeper = keeping(setting)
        keeper.took_over()
        await keeper.sweep()
        cluster.clock.ahead_s += 120
        await keeper.sweep()
        found = await cluster.client.get(RECORDS, GPU.lower())
        assert found["status"]["events"]


async def test_without_the_definition_everything_else_is_ready(cluster):
    await cluster.client.delete(CUSTOM_RESOURCE_DEFINITIONS, "gpurecords.gpuward.io")
    async with edge_world(cluster, Policy()) as setting:
        assert not setting.caches.problem()
        assert not setting.caches.too_old()
        assert not setting.caches.records.synced


@pytest.mark.parametrize(
    ("code", "asked", "after_s"),
    [
        pytest.param(403, 4, 61, id="a missing permission is retried once a minute"),
        pytest.param(422, 2, 600, id="what stands in one record keeps its node waiting"),
    ],
)
async def test_a_refusal_is_not_asked_for_again_at_once(cluster, code, asked, after_s):
    await sick(cluster)
    async with edge_world(cluster, Policy()) as setting:
        await until(lambda: setting.world.healths)
        refused = ApiError(code, "Forbidden", "gpurecords is forbidden")
        cluster.server.faults.fail(refused, path=".*/gpurecords", method="POST", times=None)
        keeper = keeping(setting)
        for _ in range(40):
            keeper.took_over()
            await keeper.sweep()
            cluster.clock.ahead_s += 30 if code == 422 else 5
        sent = cluster.metrics.page().decode()
        assert f'gpuward_writes_total{{kind="CreateRecord",result="refused"}} {asked}.0' in sent
        cluster.server.faults.clear()
        cluster.clock.ahead_s += after_s
        await keeper.sweep()
        found = await cluster.client.get(RECORDS, GPU.lower())
        assert found["status"]["events"]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(ApiError(422, "Invalid", "no"), id="the definition"),
        pytest.param(
            ApiError(403, "Forbidden", 'admission webhook "w" denied the request: no'),
            id="an admission webhook",
        ),
    ],
)
async def test_walk_what_one_record_is_refused_for_keeps_no_other_waiting(cluster, refusal):
    await sick(cluster)
    await cluster.add_node("n2")
    await sick(cluster, node="n2", gpu=GPU.replace("0badcafe", "feedcafe"))
    async with edge_world(cluster, Policy()) as setting:
        await until(lambda: len(setting.world.healths) == 2)
        cluster.server.faults.fail(refusal, path=".*/gpurecords", method="POST", times=1)
        keeper = keeping(setting)
        keeper.took_over()
        await keeper.sweep()
        sent = cluster.metrics.page().decode()
        assert 'gpuward_writes_total{kind="CreateRecord",result="refused"} 1.0' in sent
        assert 'gpuward_writes_total{kind="CreateRecord",result="done"} 1.0' in sent


def a_record(index):
    status = RecordStatus(uuid=f"GPU-{index}")
    meta = ObjectMeta(name=f"gpu-{index}", uid="u", resource_version="1")
    return RecordView(metadata=meta, status=status)


async def test_a_sweep_looks_at_a_few_records_for_what_time_does_to_them(cluster):
    async with edge_world(cluster, Policy()) as setting:
        keeper = RecordKeeping(setting.edge(), aged_per_sweep=3)
        for index in range(8):
            setting.caches.records.learn(a_record(index))
        for left in (5, 2, 0):
            # None of them is stored: each is found to be deleted, and held no longer.
            await keeper.sweep()
            assert len(setting.caches.records.items) == left


async def test_a_record_that_was_deleted_is_not_written_at_again(cluster):
    async with edge_world(cluster, Policy()) as setting:
        now = format_time(cluster.clock.now())
        event = RecordEvent(at=now, reason="GPULost", severity="Fatal", node="n1")
        one = a_record(1)
        status = RecordStatus(uuid="GPU-1", events=(event,))
        setting.caches.records.learn(RecordView(metadata=one.metadata, status=status))
        await keeping(setting).sweep()
        assert not setting.caches.records.items


async def test_one_node_does_not_fill_the_ledger(cluster):
    await sick(cluster)
    async with edge_world(cluster, Policy()) as setting:
        await until(lambda: setting.world.healths)
        place = RecordPlace(node="n1", since=format_time(cluster.clock.now()))
        for index in range(MOST_RECORDS_OF_NODE):
            one = a_record(index)
            status = RecordStatus(uuid=one.status.uuid, places=(place,))
            setting.caches.records.learn(RecordView(metadata=one.metadata, status=status))
        keeper = RecordKeeping(setting.edge(), aged_per_sweep=0)
        keeper.took_over()
        await keeper.sweep()
        assert cluster.writes() == []


async def test_what_this_process_writes_of_a_session_is_heard_at_once(cluster):
    """The watch brings it when the cache holds it already, and then nothing has changed."""
    wakeups = []
    async with edge_world(cluster, Policy(mode=Mode.ENFORCE)) as setting:
        setting.world.learned = lambda before, after: wakeups.append(session_nodes(before, after))
        for version, phase in enumerate(("Draining", "Released", "Released"), start=1_000_001):
            setting.world.learn_session(
                QuarantineView(
                    metadata=ObjectMeta(name="n1-1", uid="u", resource_version=str(version)),
                    spec=QuarantineSpec(node_name="n1", causes=()),
                    status=QuarantineStatus(phase=phase),
                )
            )
    assert wakeups == [{"n1"}, {"n1"}, set()]
