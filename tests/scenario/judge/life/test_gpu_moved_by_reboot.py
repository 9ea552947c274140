"""A card that moved to another slot over a reboot, and a faulty card that is missing."""

import pytest
from msgspec.structs import replace

from tests.support.scenario.judgement_world import SOUND, World, pci

FREE = 0x50
"""An index whose slot is empty before the reboot."""


def test_a_card_that_moved_over_a_reboot_is_not_reported_at_its_old_address() -> None:
    world = World().start()
    world.inventory = [replace(gpu, serial=f"16540{gpu.index}") for gpu in world.inventory]
    world.enumerate()
    world.advance(60, polling=True)
    world.reboot()
    moved = replace(world.inventory[3], pci=pci(FREE))
    world.inventory[3] = moved
    world.config_space[3], world.config_space[FREE] = False, True
    world.start()
    world.advance(120, polling=True)
    (shown,) = [gpu for gpu in world.published().status.gpus if gpu.uuid == moved.uuid]
    assert (shown.pci, shown.index, shown.health) == (pci(FREE), 3, "Healthy")
    (lost,) = world.active
    assert (lost.row.reason, lost.gpus, lost.pci) == ("GPULost", (), (pci(3),))
    assert moved.serial not in world.assessment().message


@pytest.mark.parametrize("restarts", [1, 2])
@pytest.mark.parametrize("moved", [1, 7, None], ids=["the next card", "the last card", "none"])
@pytest.mark.parametrize("slot", [0, 3])
def test_a_missing_gpu_keeps_its_fault_with_another_card_in_its_slot(
    slot: int, moved: int | None, restarts: int
) -> None:
    world = World().start()
    world.advance(60, polling=True)
    world.pull(slot)
    world.xid(79, slot)
    world.advance(60, polling=True)
    lost = world.inventory[slot]
    world.reboot()
    for _ in range(restarts - 1):
        world.restart_agent()
    if moved is not None:
        world.inventory[moved] = replace(world.inventory[moved], pci=lost.pci)
    world.inventory = [gpu for gpu in world.inventory if gpu.uuid != lost.uuid]
    world.config_space[slot] = True
    world.config_space.pop(slot if moved is None else moved)
    world.values[slot] = {}
    world.start()
    world.advance(300, polling=True)
    assert [(i.gpus, str(i.row.severity)) for i in world.active] == [((lost.uuid,), "Fatal")]
    assert world.assessment().gpus_healthy == 7
    world.advance(60, polling=True)
    world.reboot()
    world.inventory.append(lost)
    world.values[slot] = dict(SOUND)
    world.config_space = dict.fromkeys(range(8), True)
    world.inventory = [replace(gpu, pci=pci(gpu.index)) for gpu in world.inventory]
    world.start()
    world.advance(60, polling=True)
    assert not world.active, "it is back"


@pytest.mark.parametrize("moved", [1, None], ids=["the next card in its slot", "its slot empty"])
def test_a_sound_gpu_that_did_not_come_back_is_missed_by_the_count(moved: int | None) -> None:
    world = World().start()
    world.advance(60, polling=True)
    lost = world.inventory[0]
    world.reboot()
    if moved is not None:
        world.inventory[moved] = replace(world.inventory[moved], pci=lost.pci)
    world.inventory.pop(0)
    world.config_space.pop(0 if moved is None else moved)
    world.start()
    world.advance(300, polling=True)
    assert world.only().row.reason == "GPUCountMismatch"
    assert world.outcome() == "Degraded Report Investigate"
