"""A card that sits in another slot after a reboot is not the one that is dead in its old slot."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.scenario.judgement_world import World, pci

FREE = 0x50
"""An index whose slot is empty before the reboot."""


def test_a_card_that_moved_over_a_reboot_is_not_accused_at_its_old_address() -> None:
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
    assert moved.serial not in world.verdict().message
