"""Incidents over an agent restart, a reboot, a reset, a repair, a lost state."""

import pytest
from msgspec.structs import replace

from rules.catalog.signals import Signal
from rules.judge.health_status import Health
from rules.judge.observation import SourceName, SourceState
from tests.support.scenario.judgement_world import World

LOAD = (
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (x@y)  Wed"
)


def old_fault(world: World, xid: int = 79, gpu: int = 0) -> None:
    world.xid(xid, gpu, lookback=True, at=world.now - 60)


def fresh_agent(*, gpus: int = 8) -> World:
    """An agent without state starts on a node with old faults."""
    return World(gpus)


def test_the_old_79_of_a_healthy_gpu_opens_nothing() -> None:
    for xid in (79, 95, 48, 119, 31):
        world = fresh_agent(gpus=1)
        world.node()
        old_fault(world, xid)
        worst = {i.row.severity for i in world.active}
        world.start()
        worst |= {i.row.severity for i in world.active}
        assert worst <= {"Info"}
        assert not world.active
        assert world.incidents[0].closed_by == "BeforeStart"
        assert world.assessment().health is Health.HEALTHY


@pytest.mark.parametrize(
    "sick",
    [
        {Signal.RECOVERY_ACTION: 1},
        {Signal.REMAP_FAILURE: 1},
        {Signal.PRESENCE: "reset_required"},
        {Signal.NVLINK_STATES: (1,) * 17 + (0,)},
    ],
    ids=["recovery action", "remap failure", "reset required", "link down"],
)
def test_an_old_fault_counts_when_current_data_confirms_it(sick: dict[Signal, object]) -> None:
    world = fresh_agent()
    old_fault(world, 95)
    world.values[0] |= sick  # type: ignore[arg-type]
    world.start()
    world.advance(30, polling=True)
    xid = [i for i in world.active if 95 in i.xids]
    assert [i.row.severity for i in xid] == ["Fatal"]


def test_an_old_79_counts_when_the_device_is_gone() -> None:
    world = fresh_agent()
    old_fault(world, 79)
    world.pull(0)
    world.start()
    assert world.assessment().health is Health.UNHEALTHY


def test_an_old_fault_is_degraded_while_nvml_has_no_data() -> None:
    world = fresh_agent()
    old_fault(world, 79)
    assert world.only().row.severity == "Info"
    world.source(SourceName.NVML, SourceState.DOWN, "DriverAbsent")
    assert world.outcome() == "Degraded Report RestartNode"
    world.start()
    assert not world.active
    assert world.incidents[0].closed_by == "BeforeStart"


def test_an_old_line_that_the_state_knows_is_not_judged_again(world: World) -> None:
    world.xid(31)
    world.restart_agent()
    world.sequence -= 1
    old_fault(world, 31)
    assert world.only().count == 1


def test_a_line_written_while_the_agent_was_away_needs_current_data(world: World) -> None:
    world.restart_agent()
    old_fault(world, 95)
    world.start()
    assert not world.active


def test_an_old_answer_of_the_driver_is_history_too(world: World) -> None:
    world.restart_agent()
    world.xid(79, lookback=True)
    world.xid(154, 0, "GPU recovery action changed from 0x0 (None) to 0x2 (x)", lookback=True)
    world.start()
    world.advance(120, polling=True)
    assert not world.active


def test_a_reset_while_the_agent_was_away_is_seen_in_the_action(world: World) -> None:
    world.xid(95)
    world.action_line(1)
    world.restart_agent()
    world.xid(79, gpu=0, lookback=True)
    world.start()
    world.advance(60, polling=True)
    assert not world.active
    assert {i.closed_by for i in world.incidents} == {"Reset", "BeforeStart"}


def test_a_restart_of_the_agent_restores_everything(world: World) -> None:
    world.xid(79, gpu=3)
    world.xid(31, gpu=1)
    before = {i.id: (i.row.reason, i.row.severity, i.first_seen) for i in world.active}
    published = world.published()
    world.advance(30)
    world.restart_agent()
    after = {i.id: (i.row.reason, i.row.severity, round(i.first_seen, 6)) for i in world.active}
    assert after == {k: (*v[:2], round(v[2], 6)) for k, v in before.items()}
    assert world.assessment().health is Health.UNHEALTHY
    without_readings = tuple(replace(gpu, readings=None) for gpu in published.status.gpus)
    assert world.published().status.gpus == without_readings
    assert world.published().labels == published.labels
    world.xid(79, gpu=3)
    assert {i.id for i in world.active} == set(before)


def test_a_restart_does_not_turn_a_healthy_node_unknown(world: World) -> None:
    world.restart_agent()
    world.source(SourceName.NVML, SourceState.DOWN, "Starting")
    assert world.assessment().health is Health.HEALTHY
    world.advance(31)
    assert world.assessment().health is Health.UNKNOWN


def test_a_raised_gauge_survives_a_restart_and_still_clears(world: World) -> None:
    world.will_read(0, clock_event_reasons=0x40)
    world.advance(60, polling=True)
    world.restart_agent().start()
    world.advance(60, polling=True)
    assert world.assessment().reason == "ThermalSlowdown"
    world.will_read(0, clock_event_reasons=0)
    world.advance(60, polling=True)
    assert not world.active


def test_a_reboot_closes_79_only_when_the_gpu_is_good(world: World) -> None:
    world.xid(79, gpu=3)
    world.reboot()
    assert world.assessment().health is Health.UNHEALTHY
    dead, sound = world.inventory.pop(3), world.values[3]
    del world.config_space[3]
    world.start()
    world.advance(3600, polling=False)
    assert world.assessment().health is Health.UNHEALTHY
    world.reboot()
    world.inventory.insert(3, dead)
    world.values[3] = sound
    world.config_space[3] = True
    world.start()
    closed = [i for i in world.incidents if 79 in i.xids]
    assert [(i.active, i.closed_by) for i in closed] == [(False, "Reboot")]
    assert not [i for i in world.active if i.row.severity == "Fatal"]


@pytest.mark.parametrize("by", ["the driver asks for nothing", "its line", "it is loaded"])
def test_what_is_evidence_of_a_reset(world: World, by: str) -> None:
    if by == "the driver asks for nothing":
        world.lines("95 ->1").will_read(0, recovery_action=1)
        world.advance(60, polling=True)
        world.will_read(0, recovery_action=0)
    elif by == "its line":
        world.lines("95 ->1 +5 ->0")
    else:
        world.lines("95 +60").kernel(LOAD)
    assert world.active
    world.advance(60, polling=True)
    assert [i.closed_by for i in world.incidents] == ["Reset"]


def test_a_reset_that_a_restart_hid_is_seen_in_what_the_driver_asks_now(world: World) -> None:
    world.action_line(1)
    world.action_line(0, before=1)
    world.restart_agent().start()
    world.advance(60, polling=True)
    assert not world.active


@pytest.mark.parametrize(
    ("counted", "behind_s", "closed"),
    [(True, 10, True), (True, 290, True), (True, 1000, False), (False, 10, False)],
)
def test_a_reset_while_the_agent_was_away_counts_by_a_kernel_clock_that_lags(
    world: World, counted: bool, behind_s: float, closed: bool
) -> None:
    world.xid(119)
    fault_at = world.now
    world.advance(60, polling=True)
    world.restart_agent()
    world.counted = counted
    world.kernel(LOAD, lookback=True, at=fault_at - behind_s)
    world.start()
    world.advance(60, polling=True)
    assert not world.active if closed else world.outcome() == "Fatal Drain ResetGPU"


def test_a_reset_of_the_past_does_not_close_what_this_agent_saw_after_it(world: World) -> None:
    world.advance(60)
    world.restart_agent().start()
    world.xid(119)
    world.kernel(LOAD, lookback=True, at=world.now - 10)
    world.advance(60, polling=True)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_reset_does_not_close_what_needs_a_reboot(world: World) -> None:
    world.xid(79)
    world.kernel(LOAD)
    world.advance(600, polling=True)
    assert world.outcome() == "Fatal Drain RestartNode"


def test_a_reset_without_a_sound_gpu_closes_nothing(world: World) -> None:
    world.xid(95)
    world.will_read(0, remap_failure=1)
    world.kernel(LOAD)
    world.advance(600, polling=True)
    assert [i for i in world.active if 95 in i.xids]


def test_a_reset_of_one_gpu_does_not_close_the_others(world: World) -> None:
    world.xid(95, gpu=1)
    world.xid(95, gpu=2)
    world.action_line(0, gpu=1, before=1)
    world.advance(30, polling=True)
    assert [i.pci for i in world.active] == [("0000:12:00",)]


def test_a_repair_report_closes_what_waits_for_it(world: World) -> None:
    world.will_read(0, inforom_valid=0)
    world.advance(30, polling=True)
    assert world.only().row.closes_on.kind == "Human"
    world.annotate("repaired", "2020-01-01T00:00:00Z board replaced")
    assert world.active
    world.will_read(0, inforom_valid=1)
    world.annotate("repaired", "2023-11-15T00:00:00Z board replaced")
    world.advance(15, polling=True)
    assert not world.active
    assert world.incidents[0].closed_by == "Human"


def test_a_repair_report_does_not_override_current_data(world: World) -> None:
    world.will_read(0, remap_failure=1)
    world.advance(120, polling=True)
    world.annotate("repaired", "2023-11-15T00:00:00Z I kicked it")
    world.advance(120, polling=True)
    assert world.outcome() == "Fatal Drain ReplaceNode"


@pytest.mark.parametrize("text", ["", "yesterday", "2023-11-15", "2023-11-15T00:00:00Z"])
def test_a_bare_or_unreadable_repair_note(world: World, text: str) -> None:
    world.xid(54)
    world.advance(3)
    world.annotate("repaired", text)
    assert bool(world.active) is (text != "2023-11-15T00:00:00Z")


def test_a_new_gpu_at_the_address_ends_the_incidents_of_the_old(world: World) -> None:
    world.will_read(3, remap_failure=1)
    world.advance(60, polling=True)
    world.reboot()
    world.replace_gpu(3)
    world.start()
    assert not world.active
    assert world.incidents[0].closed_by == "GPUReplaced"


def test_without_gpu_data_a_reboot_alone_closes_nothing() -> None:
    world = World(nvml=False)
    world.source(SourceName.NVML, SourceState.ABSENT)
    world.xid(79)
    world.reboot()
    world.source(SourceName.NVML, SourceState.ABSENT)
    world.advance(3600)
    assert world.assessment().health is Health.UNHEALTHY


def test_without_nvml_the_pci_bus_can_confirm_a_reboot() -> None:
    world = World(nvml=False).start()
    world.xid(79)
    world.reboot().start()
    assert not world.active


def test_another_machine_under_the_name_restores_nothing(world: World) -> None:
    from rules.judge.restore import restore

    world.xid(79)
    status = world.published().status
    state = restore(status, world.now, boot_id="boot-9", node_uid="another", node_name="n1")
    assert not state.incidents
    same = restore(status, world.now, boot_id="boot-1", node_uid="another", node_name="n1")
    assert same.incidents


def test_the_reset_of_one_gpu_is_stamped_on_it_alone(world: World) -> None:
    def stamps() -> list[str]:
        return [gpu.reset_at for gpu in world.published().status.gpus]

    world.start()
    assert not any(stamps())
    world.xid(95, gpu=2)
    world.action_line(1, gpu=2)
    world.advance(60)
    world.action_line(0, gpu=2, before=1)
    before = stamps()
    assert [bool(each) for each in before] == [index == 2 for index in range(len(before))]
    world.restart_agent().start()
    assert stamps() == before, "a restarted agent knows it again"
    world.kernel("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06")
    assert all(stamps()), "a load of the driver is a reset of all"
