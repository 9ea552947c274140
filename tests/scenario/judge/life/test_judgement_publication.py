"""Publication of a node's health: conditions, labels, GPUNodeHealth, Events, and their timing."""

import msgspec
import pytest
from msgspec.structs import replace

from rules.api.health import (
    MAX_OBJECT_BYTES,
    MAX_READ_GPUS,
    GpuReadings,
    GpuStatus,
    HealthStatus,
    IncidentStatus,
)
from rules.api.timestamps import format_time
from rules.judge.health_object import SOFT_LIMIT_BYTES, Difference, Publication, differs, fitted
from rules.judge.incident import in_order
from rules.judge.messages import events_for
from rules.judge.observation import SourceName, SourceState
from tests.support.scenario.judgement_world import World


def conditions(publication: Publication) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in publication.conditions}


def test_a_healthy_node(world: World) -> None:
    published = world.published()
    assert conditions(published) == {
        "GPUHealthy": ("True", "AllChecksPassing"),
        "GPUDegraded": ("False", "NotDegraded"),
    }
    assert published.conditions[0].message == (
        "All checks pass on 8 GPUs (kernel log, presence, recovery action, memory, heat)."
    )
    assert published.labels == {
        "gpuward.io/health": "healthy",
        "gpuward.io/gpus": "8",
        "gpuward.io/gpus-healthy": "8",
        "gpuward.io/interconnect": "nvswitch",
        "gpuward.io/nvlink-domain": None,
        "gpuward.io/numa": "4-4",
        "gpuward.io/mig": "none",
        "gpuward.io/product": "NVIDIA-H100-80GB-HBM3",
        "gpuward.io/driver": "580.82.07",
    }
    assert published.status.gpus_healthy == "8/8"
    assert [gpu.index for gpu in published.status.gpus] == list(range(8))


DRAIN, LINE, LOST = "RecoveryActionDrainAndReset", "Xid95UncontainedMemoryError", "NoAccess"


@pytest.mark.parametrize(
    ("degraded", "fatal", "no_data", "healthy_is", "degraded_is", "label"),
    [
        (True, False, False, ("True", DRAIN), ("True", DRAIN), "degraded"),
        (True, True, False, ("False", LINE), ("True", DRAIN), "unhealthy"),
        (False, False, True, ("Unknown", LOST), ("False", "NotDegraded"), "unknown"),
    ],
)
def test_each_condition_shows_its_own_incidents(
    world: World, degraded, fatal, no_data, healthy_is, degraded_is, label
) -> None:
    if degraded:
        world.asked(4, gpu=1)
    if fatal:
        world.xid(95, gpu=2)
    if no_data:
        world.source(SourceName.NVML, SourceState.DOWN, "NoAccess")
    published = world.published()
    assert conditions(published) == {"GPUHealthy": healthy_is, "GPUDegraded": degraded_is}
    assert published.labels["gpuward.io/health"] == label == published.status.health.lower()
    assert ("1 more incident is active." in published.status.message) is fatal
    if no_data:
        assert published.labels["gpuward.io/gpus-healthy"] is None
        assert {gpu.health for gpu in published.status.gpus} == {"Unknown"}


def test_a_second_source_that_is_down_is_listed_only(world: World) -> None:
    world.source(SourceName.DCGM, SourceState.DOWN, "Refused")
    published = world.published()
    assert published.status.health == "Healthy"
    assert [(s.name, s.state) for s in published.status.sources] == [
        ("dcgm-exporter", "Down"),
        ("kernel-log", "Up"),
        ("nvml", "Up"),
    ]


def test_the_object_has_what_an_operator_and_a_restart_need(world: World) -> None:
    world.xid(79, gpu=3)
    status = world.published().status
    incident = status.incidents[0]
    assert incident.id == world.only().id
    assert incident.first_seen.endswith("Z")
    assert "." in incident.first_seen
    assert incident.closes_on == "Reboot"
    assert incident.xids == (79,)
    assert incident.nvidia is not None
    assert incident.nvidia.immediate == "RESTART_BM"
    assert incident.evidence[0].startswith("NVRM: Xid (PCI:0000:13:00): 79")
    assert status.cursor.boot_id == "boot-1"
    assert status.cursor.kmsg_seq == world.sequence
    assert status.expected_gpus.count == 8


def test_mixed_mig_and_products_are_labeled(world: World) -> None:
    world.inventory[0] = replace(world.inventory[0], mig_mode=True, product="NVIDIA H200")
    world.enumerate()
    assert world.published().labels["gpuward.io/mig"] == "mixed"
    assert world.published().labels["gpuward.io/product"] == "mixed"


def test_a_value_that_no_label_takes_costs_that_label_only(world: World) -> None:
    world.driver = "580 beta: é"
    world.enumerate()
    published = world.published()
    assert published.labels["gpuward.io/driver"] is None
    assert published.labels["gpuward.io/product"] == "NVIDIA-H100-80GB-HBM3"
    assert [refused.name for refused in published.refused] == ["gpuward.io/driver"]


@pytest.mark.parametrize(
    ("happening", "expected"),
    [
        pytest.param(lambda w: w.advance(3600, polling=True), Difference.NONE, id="time passed"),
        pytest.param(lambda w: w.xid(79), Difference.NOW, id="a fault"),
        pytest.param(lambda w: w.xid(31), Difference.NOW, id="a record"),
        pytest.param(
            lambda w: w.source(SourceName.DCGM, SourceState.DOWN), Difference.NOW, id="a collector"
        ),
        pytest.param(lambda w: None, Difference.NONE, id="nothing"),
    ],
)
def test_what_causes_a_write(world: World, happening: object, expected: Difference) -> None:
    before = world.published()
    happening(world)  # type: ignore[operator]
    assert differs(before, world.published()) is expected


def test_more_of_the_same_rides_along(world: World) -> None:
    world.xid(31)
    before = world.published()
    for _ in range(100):
        world.xid(31)
    assert differs(before, world.published()) is Difference.RIDES_ALONG


def test_new_evidence_is_written_soon_and_is_bounded(
    world: World,
) -> None:
    """A new line of evidence is written soon; an incident keeps at most five."""
    world.xid(95, text="pid=1, name=a, Uncontained ECC error")
    world.advance(3)
    gained = []
    for number in range(20):
        before = world.published()
        world.xid(95, text=f"pid={number + 2}, name=a, Uncontained ECC error")
        gained.append(differs(before, world.published()))
    assert gained[:4] == [Difference.SOON] * 4
    assert set(gained[4:]) == {Difference.RIDES_ALONG}


def test_a_flood_of_faults_keeps_the_most_severe_in_a_small_object(world: World) -> None:
    long_text = 'pid=1, name="\\"\\"", ' + '\\"' * 400
    for _ in range(40):
        for gpu in range(8):
            world.xid(31, gpu, long_text)
        world.advance(200)
    for gpu in range(8):
        world.xid(95, gpu, long_text)
        world.advance(61)  # else they have one common cause
    status = world.published().status
    assert len(msgspec.json.encode(status)) <= SOFT_LIMIT_BYTES < MAX_OBJECT_BYTES
    assert status.dropped > 0
    assert len([i for i in status.incidents if i.active and i.severity == "Fatal"]) == 8


def incident(number: int, *, active: bool, severity: str = "Info") -> IncidentStatus:
    return IncidentStatus(
        id=f"{number:04}",
        reason="R",
        active=active,
        severity=severity,
        evidence=tuple(f"{number}-{line}" + "x" * 490 for line in range(5)),
    )


def test_closed_incidents_lose_evidence_first_then_the_oldest_go() -> None:
    status = HealthStatus(
        incidents=(
            *(incident(n, active=True, severity="Fatal") for n in range(4)),
            *(incident(n, active=False) for n in range(10, 30)),
        )
    )
    small = fitted(status, 40_000)
    assert [len(i.evidence) for i in small.incidents] == [5] * 4 + [1] * 20
    assert small.dropped == 0
    smaller = fitted(status, 20_000)
    assert smaller.dropped > 0
    assert [i.id for i in smaller.incidents] == [
        i.id for i in status.incidents[: len(smaller.incidents)]
    ]
    assert fitted(status, 10**6) is status


def test_active_incidents_come_first_by_severity(world: World) -> None:
    world.xid(31, gpu=0)
    world.advance(200)
    world.xid(54, gpu=1)
    world.advance(3)
    world.xid(95, gpu=2)
    world.xid(31, gpu=3)
    severities = [(i.active, str(i.row.severity)) for i in in_order(world.incidents)]
    assert severities == [(True, "Fatal"), (True, "Degraded"), (True, "Info"), (False, "Info")]


def test_faults_make_events_and_records_do_not(world: World) -> None:
    world.xid(31)
    assert events_for(world.state, tuple(world.changes)) == ()
    world.changes.clear()
    world.xid(119)
    (event,) = events_for(world.state, tuple(world.changes))
    assert (event.type, event.reason) == ("Warning", "Xid119GSPTimeout")
    assert event.message.endswith("the node should be drained. Next: reset the GPU.")
    world.changes.clear()
    world.action_line(0, before=1)
    world.advance(15, polling=True)
    (event,) = events_for(world.state, tuple(world.changes))
    assert (event.type, event.reason) == ("Normal", "Xid119GSPTimeout")


def test_walk_merged_incidents_are_not_reported_as_ended() -> None:
    world = World(8, architecture=10).start()
    world.changes.clear()
    for gpu in range(8):
        world.xid(149, gpu)
        world.advance(5)
    events = [event.message for event in events_for(world.state, tuple(world.changes))]
    assert [message for message in events if "continues as one incident of the node" in message]
    assert not [message for message in events if "ended" in message]


@pytest.mark.parametrize(
    ("architecture", "switched", "together"),
    [(9, True, False), (7, True, True), (7, False, False), (6, False, True), (5, False, True)],
)
def test_where_a_reset_is_never_of_one_gpu_alone(
    architecture: int, *, switched: bool, together: bool
) -> None:
    world = World(architecture=architecture, switched=switched).start()
    world.xid(95)
    assert ("reset all GPUs" in world.assessment().message) is together


def test_hostile_text_stays_in_the_evidence_escaped_and_cut(world: World) -> None:
    world.xid(95, 0, "pid=1, name=\x1b[31m\u202e$(reboot)" + "A" * 5000)
    status = world.published().status
    assert all(char.isprintable() for char in status.incidents[0].evidence[0])
    assert len(status.incidents[0].evidence[0].encode()) <= 512
    assert "reboot)" not in status.message


def test_a_gpu_publishes_readings_while_it_has_an_active_incident(world: World) -> None:
    world.will_read(2, temperature=71, power=412.6, ecc_corrected_volatile=3)
    world.will_read(2, memory_temperature=None, remapped_rows_correctable=1 << 63)
    world.advance(60, polling=True)
    assert {gpu.readings for gpu in world.published().status.gpus} == {None}
    world.xid(95, gpu=2)
    read_at = format_time(world.state.gpus[world.inventory[2].uuid].answered_at)
    gpus = world.published().status.gpus
    assert [gpu.index for gpu in gpus if gpu.readings is not None] == [2]
    assert gpus[2].readings == GpuReadings(
        read_at=read_at,
        temperature_celsius=71,
        power_watts=413,
        ecc_correctable=3,
        remap_pending=False,
        remap_failure=False,
    )
    world.readings(2, presence="lost")
    lost = world.published().status.gpus[2].readings
    assert lost is not None
    assert lost.read_at == read_at
    world.will_read(2, presence="present")
    world.reboot().start()
    world.advance(60, polling=True)
    assert not world.active
    assert {gpu.readings for gpu in world.published().status.gpus} == {None}


def test_changed_readings_wait_for_the_next_write(world: World) -> None:
    world.xid(95, gpu=2)
    before = world.published()
    world.readings(2, temperature=90)
    world.readings(3, temperature=91)
    after = world.published()
    assert after.status.gpus[2].readings != before.status.gpus[2].readings
    assert differs(before, after) is Difference.REFRESHED


def test_at_most_16_gpus_publish_readings_those_of_severe_incidents_first() -> None:
    world = World(20).start()
    for gpu in range(19):
        world.xid(31, gpu)
    world.xid(95, gpu=19)
    read = [gpu.index for gpu in world.published().status.gpus if gpu.readings is not None]
    assert len(read) == MAX_READ_GPUS
    assert 19 in read


def test_a_large_object_loses_its_readings_first() -> None:
    status = HealthStatus(
        gpus=(GpuStatus(uuid="GPU-1", readings=GpuReadings(temperature_celsius=70)),),
        incidents=(incident(1, active=True), incident(2, active=False)),
    )
    small = fitted(status, len(msgspec.json.encode(status)) - 1)
    assert small == replace(status, gpus=(GpuStatus(uuid="GPU-1"),))
