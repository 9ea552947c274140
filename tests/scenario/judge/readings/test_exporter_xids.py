"""An Xid that dcgm-exporter shows, beside sources that were able to see it or not."""

from __future__ import annotations

from rules.judge.observation import KernelGap, SourceName, SourceState
from tests.support.scenario.judgement_world import World, pci, uuid


def lose_records(world: World) -> None:
    """The kernel log overflows: records are gone before they were read."""
    world.see(KernelGap(at=world.now, boot_id=world.boot, lost=40_000, sequence=50_000))


def exported(world: World, xid: int) -> None:
    world.dcgm({uuid(0): {}}, xids={uuid(0): xid}, pci={uuid(0): pci(0)})


def test_after_lost_kernel_records_the_exporters_xid_counts() -> None:
    world = World(1, nvml=False).start()
    exported(world, 0)
    world.advance(30)
    lose_records(world)
    world.advance(30)
    exported(world, 95)
    exported(world, 95)
    assert world.says() == "Fatal Drain ResetGPU"
    assert world.only().count == 1


def test_an_xid_that_the_log_told_before_it_lost_records_counts_once() -> None:
    world = World(1, nvml=False).start()
    exported(world, 0)
    world.xid(95)
    lose_records(world)
    world.advance(30)
    exported(world, 95)
    assert world.only().count == 1


def test_long_after_lost_records_the_exporters_xid_adds_nothing() -> None:
    world = World(1, nvml=False).start()
    exported(world, 0)
    lose_records(world)
    world.advance(600)
    exported(world, 95)
    assert not world.active


def test_an_xid_from_while_nvml_was_away_counts_by_the_exporter() -> None:
    world = World(1).start()
    world.source(SourceName.KERNEL_LOG, SourceState.ABSENT, "Off")
    exported(world, 0)
    world.source(SourceName.NVML, SourceState.DOWN, "CallHung")
    world.advance(10)
    world.source(SourceName.NVML, SourceState.UP)
    world.advance(20)
    exported(world, 95)
    assert world.says() == "Fatal Drain ResetGPU"
