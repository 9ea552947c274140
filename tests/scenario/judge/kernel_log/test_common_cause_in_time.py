"""A common cause does not reach over what may have ended the first of its faults."""

from __future__ import annotations

from rules.api.timestamps import format_time
from rules.judge.observation import SourceName, SourceState
from tests.support.scenario.judgement_world import World, uuid


def test_what_fails_after_a_reboot_does_not_end_with_what_failed_before_it() -> None:
    world = World(2, driver="535.54.03").start()
    world.xid(95, 0)
    world.advance(20)
    world.boot, world.sequence, world.booted_at = "boot-2", 0, world.now
    world.restart_agent()
    world.node()
    world.host()
    world.look_at_pci()
    world.source(SourceName.KERNEL_LOG, SourceState.UP)
    world.xid(95, 1)
    world.source(SourceName.NVML, SourceState.UP)
    world.enumerate()
    world.poll()
    world.advance(60, polling=True)
    assert world.only().gpus == (uuid(1),), "a fast boot, within the minute of a common cause"


def test_what_fails_after_a_repair_does_not_end_with_what_failed_before_it() -> None:
    world = World(2).start()
    world.xid(54, 0)
    world.readings(0, remap_failure=1)
    world.advance(10)
    world.annotations["gpuward.io/repaired"] = f"{format_time(world.now)} cable"
    world.node()
    world.advance(10)
    world.xid(54, 1)
    world.advance(10)
    world.readings(0, remap_failure=0)
    world.advance(60, polling=True)
    assert [each.gpus for each in world.active if 54 in each.xids] == [(uuid(1),)]
