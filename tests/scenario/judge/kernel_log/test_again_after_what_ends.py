"""The same fault again on the same GPU, after what would have ended the one before."""

from __future__ import annotations

from rules.api.timestamps import format_time
from rules.judge.observation import SourceName, SourceState
from tests.support.scenario.judgement_world import World, uuid


def rebooted(world: World) -> None:
    world.boot, world.sequence, world.booted_at = "boot-2", 0, world.now
    world.restart_agent()
    world.node()
    world.host()
    world.look_at_pci()


def seen(world: World) -> None:
    world.source(SourceName.NVML, SourceState.UP)
    world.enumerate()
    world.poll()
    world.advance(60, polling=True)


def test_a_fault_of_the_new_boot_is_not_ended_by_the_reboot_before_it() -> None:
    world = World(2, driver="535.54.03").start()
    world.xid(95, 0)
    world.advance(20)
    rebooted(world)
    world.source(SourceName.KERNEL_LOG, SourceState.UP)
    world.xid(95, 0)
    seen(world)
    assert world.only().gpus == (uuid(0),)


def test_nor_one_that_is_seen_long_after_it() -> None:
    world = World(2, driver="535.54.03").start()
    world.xid(95, 0)
    world.advance(20)
    rebooted(world)
    world.source(SourceName.KERNEL_LOG, SourceState.UP)
    world.advance(300)
    world.xid(95, 0)
    world.advance(20)
    seen(world)
    assert world.only().gpus == (uuid(0),)


def test_without_another_the_reboot_ends_it() -> None:
    world = World(2, driver="535.54.03").start()
    world.xid(95, 0)
    world.advance(20)
    rebooted(world)
    world.source(SourceName.KERNEL_LOG, SourceState.UP)
    seen(world)
    assert not world.active


def test_a_fault_after_a_reset_is_not_ended_by_it() -> None:
    world = World(2, driver="535.54.03").start()
    world.xid(95, 0)
    world.advance(20)
    world.action_line(0, 0, before=1)
    world.advance(1)
    world.xid(95, 0)
    world.advance(60, polling=True)
    assert world.only().gpus == (uuid(0),)


def test_a_fault_after_a_repair_is_not_ended_by_it() -> None:
    """Somebody says that it is repaired, and it fails again before the GPU looked sound."""
    world = World(2).start()
    world.xid(54, 0)
    world.readings(0, remap_failure=1)
    world.advance(10)
    world.annotations["gpuward.io/repaired"] = f"{format_time(world.now)} cable"
    world.node()
    world.advance(10)
    for _ in range(3):
        world.xid(54, 0)
        world.advance(30)
    world.readings(0, remap_failure=0)
    world.advance(60, polling=True)
    (again,) = [each for each in world.active if 54 in each.xids]
    assert (again.count, again.gpus) == (3, (uuid(0),))
