"""The kernel's PCIe error counters: the base, growth, a confirming look, going back, a reboot."""

from __future__ import annotations

import pytest

from rules.judge.observation import AerCounters, AerSeen
from tests.support.scenario.judgement_world import World, pci


@pytest.fixture
def world() -> World:
    return World().start()


def look(world: World, nonfatal: int = 0, fatal: int = 0, correctable: int = 0) -> None:
    counters = AerCounters(
        address=f"{pci(2)}.0", correctable=correctable, nonfatal=nonfatal, fatal=fatal
    )
    world.see(AerSeen(at=world.now, functions=(counters,)))
    world.advance(60)


@pytest.mark.parametrize("kind", ["nonfatal", "fatal"])
def test_an_uncorrected_error_more_is_degraded_once_a_second_look_agrees(
    world: World, kind: str
) -> None:
    look(world, **{kind: 3})
    look(world, **{kind: 4})
    assert not world.incidents, "one look is no proof"
    look(world, **{kind: 4})
    assert world.says() == "Degraded Report Investigate"
    incident = world.only()
    assert (incident.row.reason, incident.pci) == ("PcieAerUncorrected", (pci(2),))
    assert "1 uncorrected PCIe errors more" in incident.evidence[0]
    for _ in range(5):
        look(world, **{kind: 4})
    assert world.only().count == 1


def test_old_counts_and_corrected_errors_are_nothing(world: World) -> None:
    for number in range(5):
        look(world, nonfatal=9, fatal=9, correctable=1000 * number)
    assert not world.incidents


def test_growth_that_went_back_before_it_was_confirmed_is_nothing(world: World) -> None:
    look(world, fatal=5)
    look(world, fatal=6)
    look(world, fatal=1)
    look(world, fatal=1)
    assert not world.incidents


def test_growth_is_not_measured_across_a_restart_a_reboot_or_another_card(world: World) -> None:
    look(world)
    world.restart_agent()
    world.enumerate()
    look(world, fatal=2)
    look(world, fatal=2)
    world.reboot()
    world.enumerate()
    look(world, fatal=4)
    look(world, fatal=4)
    world.replace_gpu(2)
    world.enumerate()
    look(world, fatal=6)
    look(world, fatal=6)
    assert not world.active


def test_counters_of_a_function_that_is_no_gpu_of_ours_are_left_out(world: World) -> None:
    for fatal in (0, 1, 1):
        stranger = AerCounters(address="0000:ff:00.0", fatal=fatal)
        world.see(AerSeen(at=world.now, functions=(stranger,)))
        world.advance(60)
    assert not world.incidents
