"""Readings: implausible sensors, limits by link generation, removed fields and GPUs."""

import shutil
import subprocess

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from agent.daemon.metrics import AgentCollector, Snapshot, XidCounts
from agent.publish.publish import PublishReport
from agent.sources.kernel_record import RecordCounts
from rules.catalog.reasons import RECOVERY_REASONS
from rules.catalog.signals import Signal
from rules.judge.observation import (
    Service,
    SourceName,
    SourceState,
)
from tests.support.scenario.judgement_world import World, pci

PROMTOOL = shutil.which("promtool")


# 5: whose page it is


# 7: two thermometers


def test_a_margin_stuck_at_zero_does_not_keep_a_cooled_gpu_hot() -> None:
    world = World().start()
    world.values[0] |= {Signal.TEMPERATURE: 90, Signal.THERMAL_MARGIN: 0}
    world.advance(120, polling=True)
    assert world.reasons == {"TemperatureMargin"}
    world.values[0][Signal.TEMPERATURE] = 40
    world.advance(120, polling=True)
    assert not world.active


# 8: the replay limit


def replay(world: World, per_minute: int, minutes: int) -> None:
    for _ in range(minutes):
        before = world.values[0].get(Signal.PCIE_REPLAYS, 0)
        assert isinstance(before, int)
        world.values[0][Signal.PCIE_REPLAYS] = before + per_minute
        world.advance(60)
        world.poll()


@pytest.mark.parametrize("supported", [5, None])
def test_a_link_that_rests_keeps_the_limit_of_its_best_generation(
    supported: int | None,
) -> None:
    world = World().start()
    link = {Signal.PCIE_WIDTH: 16, Signal.PCIE_GENERATION_MAX: supported}
    world.values[0] |= {**link, Signal.PCIE_GENERATION: 5, Signal.PCIE_REPLAYS: 0}
    world.poll()
    world.values[0][Signal.PCIE_GENERATION] = 1
    replay(world, 10, 10)  # over generation 1's 2.4 a minute, within generation 5's 30
    assert not world.active
    replay(world, 60, 10)
    assert world.reasons == {"PCIeReplayRate"}


def test_a_link_seen_only_at_rest_is_not_held_to_the_limit_of_rest() -> None:
    """dcgm-exporter may not export the highest generation, and the link may be idle at start."""
    world = World().start()
    world.values[0] |= {Signal.PCIE_WIDTH: 16, Signal.PCIE_GENERATION: 1, Signal.PCIE_REPLAYS: 0}
    world.poll()
    replay(world, 10, 10)
    assert not world.active


# 9: what ran earlier in this boot


def test_a_fabric_manager_that_died_while_the_agent_was_away_is_missed() -> None:
    world = World().start()
    for gpu in range(8):
        world.readings(gpu, fabric_state=3, fabric_status=0)
    world.host(running={Service.FABRIC_MANAGER})
    world.restart_agent().start()
    for _ in range(5):
        world.host(running=set())
        world.advance(60, polling=True)
    assert world.reasons == {"FabricManagerStopped"}
    world.restart_agent()
    world.restart_agent().start()
    world.host(running=set())
    assert world.reasons == {"FabricManagerStopped"}
    world.reboot().start()
    for _ in range(20):
        world.host(running=set())
        world.advance(60, polling=True)
    assert not world.active, "in the new boot it never ran"


# 12: metrics of a GPU that is gone, and reasons that agree with their sentence


def page(world: World) -> str:
    snapshot = Snapshot(
        state=world.state,
        assessment=world.assessment(),
        records=RecordCounts(),
        heard_at={},
        xids=XidCounts(),
        publishing=PublishReport(accepted_at=None, failures=0, writes=0),
        dcgm_bad_lines=0,
    )
    registry = CollectorRegistry()
    registry.register(AgentCollector(lambda: snapshot, full=True))
    return generate_latest(registry).decode()


def readings_of(world: World, gpu: int) -> set[str]:
    """Return the metrics with a reading of this GPU."""
    about = {"gpuward_gpu_info", "gpuward_gpu_health", "gpuward_incident_active"}
    return {
        line.partition("{")[0]
        for line in page(world).splitlines()
        if f'uuid="{world.inventory[gpu].uuid}"' in line
    } - about


@pytest.fixture
def reading() -> World:
    world = World().start()
    for gpu in range(8):
        world.readings(gpu, temperature=40, power=300, nvlink_states=(1,) * 18)
    assert len(readings_of(world, 0)) >= 5
    return world


def lose(world: World) -> None:
    world.pull(0)
    world.poll()
    world.poll_pci()


def remove(world: World) -> None:
    del world.config_space[0]
    gone = world.inventory.pop(0)
    world.poll_pci()
    world.enumerate()
    world.inventory.insert(0, gone)


@pytest.mark.parametrize(
    "why", ["lost", "removed", "to be reset", SourceState.DOWN, SourceState.RELEASED]
)
def test_no_reading_outlives_its_gpu(reading: World, why: str) -> None:
    match why:
        case "lost":
            lose(reading)
        case "removed":
            remove(reading)
        case "to be reset":
            reading.values[0] = {Signal.PRESENCE: "reset_required"}
            reading.poll_one(0)
        case _:
            reading.source(SourceName.NVML, SourceState(why), "CallHung")
    assert readings_of(reading, 0) == set()
    assert bool(readings_of(reading, 1)) is not isinstance(why, SourceState)
    named = f'gpuward_gpu_info{{driver="{reading.driver}",index="0",pci="{pci(0)}"'
    assert named in page(reading), "people must be able to tell which one it was"


def test_a_field_that_dcgm_exporter_stopped_exporting_goes_absent() -> None:
    world = World(nvml=False).start()
    name = world.inventory[0].uuid
    world.dcgm({name: {Signal.TEMPERATURE: 40, Signal.POWER: 300}})
    assert "gpuward_gpu_power_watts" in readings_of(world, 0)
    world.dcgm({name: {Signal.TEMPERATURE: 41}})
    assert readings_of(world, 0) == {"gpuward_gpu_read", "gpuward_gpu_temperature_celsius"}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_accepts_the_page_of_a_node_that_lost_a_gpu(reading: World) -> None:
    lose(reading)
    reading.advance(60, polling=True)
    assert reading.assessment().reason == "GPULost"
    done = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input=page(reading).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("polled", [False, True])
@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1), (4, 1), (1, 4), (2, 3)])
def test_a_recovery_action_that_changes_changes_its_reason(
    first: int, then: int, *, polled: bool
) -> None:
    world = World().start()
    before = 0
    for value in (first, then):
        if polled:
            world.will_read(0, recovery_action=value)
            world.advance(60, polling=True)
        else:
            world.action_line(value, before=before)
            world.advance(60)
        before = value
        row = world.only().row
        assert row.action == RECOVERY_REASONS[row.reason].action
    expected = [key for key, row in RECOVERY_REASONS.items() if row == world.only().row]
    assert expected, "it is a row of the table"


def test_a_program_error_does_not_change_the_recovery_action() -> None:
    world = World().start()
    world.action_line(1)
    world.xid(43)
    world.advance(30)
    world.action_line(2, before=1)
    world.advance(30)
    for incident in world.active:
        row = RECOVERY_REASONS.get(incident.row.reason)
        assert row is None or row.action == incident.row.action
    assert "restart the node" in world.assessment().message
    assert "RecoveryActionRestartNode" in world.assessment().message
