"""Agent restarts and reboots: which faults are old, which repairs are confirmed."""

import pytest
from msgspec.structs import replace

from rules.judge.observation import SourceName, SourceState
from rules.judge.state import identify
from tests.support.scenario.judgement_world import SOUND, World
from tests.support.scenario.restarts import reborn

DAY_S = 86_400.0


def test_restart_after_the_clock_was_set_closes_no_fatal_incident() -> None:
    world = World()
    world.xid(95, gpu=1)
    world.advance(60, polling=True)
    world.now += 7200
    world.booted_at += 7200 + DAY_S
    world.state = reborn(world.state, world.now, world.boot, world.rules)
    world.host()
    assert not any(incident.rebooted for incident in world.state.incidents)
    world.advance(120, polling=True)
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_restart_remembers_a_reboot_or_reset_that_no_poll_has_confirmed() -> None:
    world = World()
    world.xid(95, gpu=1)
    world.advance(60)
    for evidence in ({"rebooted": True}, {"reset_at": world.now}):
        known = tuple(replace(i, **evidence) for i in world.state.incidents)
        again = reborn(replace(world.state, incidents=known), world.now, world.boot, world.rules)
        wanted = [(i.rebooted, i.reset_at is None) for i in known]
        assert [(i.rebooted, i.reset_at is None) for i in again.incidents] == wanted


def _replaced_over_a_reboot(restarts: int) -> World:
    """Replace a faulty card over a reboot, with `starts` agent starts before the first poll."""
    world = World().start()
    world.will_read(3, remap_failure=1)
    world.advance(60, polling=True)
    world.reboot()
    for _ in range(restarts - 1):
        world.node()
        world.restart_agent()
    return world


@pytest.mark.parametrize("restarts", [1, 2, 3])
def test_a_card_replaced_over_a_reboot_is_known_after_any_number_of_restarts(
    restarts: int,
) -> None:
    world = _replaced_over_a_reboot(restarts)
    world.replace_gpu(3)
    world.start()
    assert not world.active
    assert [i.closed_by for i in world.incidents] == ["GPUReplaced"]


@pytest.mark.parametrize("restarts", [1, 2, 3])
def test_a_card_at_the_address_of_one_that_is_missing_replaced_nothing(
    restarts: int,
) -> None:
    """Remove the faulty GPU, and give its address to the next one."""
    world = _replaced_over_a_reboot(restarts)
    gone = world.inventory.pop(3)
    world.inventory[3] = replace(world.inventory[3], pci=gone.pci)
    world.config_space.pop(4)
    world.start()
    world.advance(60, polling=True)
    assert "RowRemapFailure" in world.reasons


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_a_reset_while_the_agent_restarts_ends_what_asked_for_it(restarts: int) -> None:
    world = World().start()
    world.will_read(1, presence="reset_required")
    world.advance(60, polling=True)
    assert world.outcome() == "Fatal Drain ResetGPU"
    for _ in range(restarts):
        world.restart_agent()
    world.start()
    world.advance(60, polling=True)
    assert world.outcome() == "Fatal Drain ResetGPU", "it still asks"
    for _ in range(restarts):
        world.restart_agent()
    world.will_read(1, presence="present")
    world.start()
    assert world.outcome() == "Fatal Drain ResetGPU", "one check alone proves no reset"
    world.advance(60, polling=True)
    assert [i.closed_by for i in world.incidents] == ["Reset"]


def _card_removed() -> World:
    """Release the GPUs, lose one of them, and restart the agent."""
    world = World().start()
    world.release_gpus()
    world.xid(79, 2)
    world.pull(2)
    world.advance(600)
    return world


@pytest.mark.parametrize("starts", [["agent"], ["agent", "agent"], ["node"]], ids="+".join)
def test_a_restart_during_a_stand_down_judges_no_card_lost_before_the_node_is_read(
    starts: list[str],
) -> None:
    world = _card_removed()
    for start in starts:
        if start == "node":
            world.reboot()
        else:
            world.restart_agent()
        world.poll_pci()
        assert {i.row.severity for i in world.active} == {"Info"}
        world.advance(60)
        assert {i.row.severity for i in world.active} == {"Info"}
    world.node()
    world.poll_pci()
    assert {i.row.severity for i in world.active} == {"Info"}


@pytest.mark.parametrize("asks", [0, 1], ids=["sound since", "sick since"])
def test_a_poll_before_a_fault_does_not_clear_it(asks: int) -> None:
    """The fault occurs between the first poll of the GPUs and the opening of the kernel log."""
    world = World().start()
    world.restart_agent().start()
    world.now += 0.5
    world.xid(95, 2, lookback=True)
    assert world.only().row.severity == "Info", "no poll since"
    world.will_read(2, recovery_action=asks)
    world.advance(60, polling=True)
    if asks:
        assert world.only().row.reason == "Xid95UncontainedMemoryError"
        assert world.outcome() == "Fatal Drain ResetGPU"
    else:
        assert [i.closed_by for i in world.incidents] == ["BeforeStart"]


@pytest.mark.parametrize("back", [True, False], ids=["it is back", "it is gone"])
def test_a_restart_at_the_end_of_a_stand_down_uses_polls_after_it(*, back: bool) -> None:
    world = _card_removed()
    world.take_back()
    world.restart_agent()
    world.poll_pci()
    world.node()
    if back:
        world.config_space[2], world.values[2] = True, dict(SOUND)
    world.start()
    world.advance(60, polling=True)
    assert [i.row.severity for i in world.active] == ([] if back else ["Fatal"])


def test_a_gpu_that_does_not_come_back_from_a_reboot_is_still_known_by_its_serial_number() -> None:
    world = World().start()
    world.inventory = [replace(gpu, serial=f"16540{gpu.index}") for gpu in world.inventory]
    world.enumerate()
    world.pull(3)
    world.xid(79, gpu=3)
    world.advance(60, polling=True)
    world.reboot()
    gone = world.inventory.pop(3)
    world.start()
    world.advance(120, polling=True)
    (shown,) = [gpu for gpu in world.published().status.gpus if gpu.uuid == gone.uuid]
    assert (shown.serial, shown.index, shown.health) == ("165403", -1, "Unhealthy")
    assert "serial 165403" in world.assessment().message
    unlisted = replace(world.state, gpus={})
    assert identify(unlisted, gone.uuid, "") == identify(unlisted, "", gone.pci)


def test_a_gpu_missing_from_the_bus_after_a_boot_is_reported_once() -> None:
    world = World().start()
    world.pull(3)
    world.xid(79, gpu=3)
    world.advance(60, polling=True)
    world.reboot()
    world.inventory.pop(3)
    world.config_space.pop(3)
    world.start()
    world.advance(120, polling=True)
    assert [str(i.row.reason) for i in world.active] == ["Xid79GPUFallenOffBus"]
    world.inventory.pop(0)
    world.config_space.pop(0)
    world.enumerate()
    world.advance(120, polling=True)
    reasons = {str(i.row.reason) for i in world.active}
    assert reasons == {"Xid79GPUFallenOffBus", "GPUCountMismatch"}, (
        "another one is reported of, too"
    )


def test_a_new_boot_is_unknown_until_the_gpus_answered(world: World) -> None:
    """The remediator ignores a health status with a GPU data source that is Down."""

    def nvml() -> tuple[str, str]:
        (source,) = (s for s in world.published().status.sources if s.name == "nvml")
        return source.state, source.reason

    world.lines("79 +60").restart_agent()
    assert nvml() == ("Up", ""), "a rollout of the agent turns no node to Unknown"
    world.reboot()
    assert nvml() == ("Down", "Starting")
    world.source(SourceName.NVML, SourceState.UP)
    assert nvml() == ("Down", "Starting")
    world.advance(31)
    assert nvml() == ("Up", ""), "a driver that never answers does not hide the fault for ever"
