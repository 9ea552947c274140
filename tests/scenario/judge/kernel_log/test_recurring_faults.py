"""The same fault after a reboot, reset or repair that closes the one before."""

import pytest

from rules.judge.observation import SourceName, SourceState
from tests.support.scenario.judgement_world import World, uuid


@pytest.mark.parametrize(
    ("gpu", "later_s"),
    [
        pytest.param(0, 0, id="at once"),
        pytest.param(0, 300, id="long after it"),
        pytest.param(1, 0, id="on another GPU, within the minute of a common cause"),
        pytest.param(None, 0, id="none"),
    ],
)
def test_a_fault_of_the_new_boot_is_not_ended_by_the_reboot_before_it(
    gpu: int | None, later_s: float
) -> None:
    world = World(2, driver="535.54.03").start()
    world.xid(95, 0)
    world.advance(20)
    world.boot, world.sequence, world.booted_at = "boot-2", 0, world.now
    world.restart_agent()
    world.node()
    world.host()
    world.poll_pci()
    world.source(SourceName.KERNEL_LOG, SourceState.UP)
    world.advance(later_s)
    if gpu is not None:
        world.xid(95, gpu)
        world.advance(20 if later_s else 0)
    world.source(SourceName.NVML, SourceState.UP)
    world.enumerate()
    world.poll()
    world.advance(60, polling=True)
    assert [i.gpus for i in world.active] == ([] if gpu is None else [(uuid(gpu),)])


def test_a_fault_after_a_reset_is_not_ended_by_it() -> None:
    world = World(2, driver="535.54.03").start()
    world.lines("95 +20 ->0 +1 95")
    world.advance(60, polling=True)
    assert world.only().gpus == (uuid(0),)


@pytest.mark.parametrize(("gpu", "times"), [(0, 3), (1, 1)], ids=["the same GPU", "another one"])
def test_a_fault_after_a_repair_is_not_ended_by_it(gpu: int, times: int) -> None:
    """An operator reports the repair, and the GPU fails again before it reads good."""
    world = World(2).start()
    world.xid(54, 0)
    world.readings(0, remap_failure=1)
    world.advance(10)
    world.report_repaired()
    world.advance(10)
    for _ in range(times):
        world.xid(54, gpu)
        world.advance(30)
    world.readings(0, remap_failure=0)
    world.advance(60, polling=True)
    again = [each for each in world.active if 54 in each.xids]
    assert [(each.count, each.gpus) for each in again] == [(times, (uuid(gpu),))]
