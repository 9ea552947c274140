"""dcgm-exporter answers, and its page says for ever what was true once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rules.catalog.signals import Signal
from rules.judge.observation import SourceName, SourceState, Value
from tests.support.scenario.judgement_world import SOUND, World, uuid

SCRAPE_S = 15.0
PAGE: dict[str, dict[Signal, Value]] = {uuid(i): dict(SOUND) for i in range(2)}
USED = {uuid(i): 5_551_899_580.0 + i for i in range(2)}
HOURS_S = 6 * 3600.0


def scraped(world: World, for_s: float, energy: Mapping[str, float], watts: float = 0.0) -> None:
    """The same readings in each page; `watts`: what each GPU draws meanwhile."""
    used = dict(energy)
    for _ in range(int(for_s / SCRAPE_S)):
        world.advance(SCRAPE_S)
        used = {gpu: mj + watts * SCRAPE_S * 1000 for gpu, mj in used.items()}
        world.dcgm(PAGE, energy=used)


def told(world: World) -> tuple[SourceState, str]:
    view = world.state.sources[SourceName.DCGM]
    return view.state, view.reason


@pytest.fixture
def world() -> World:
    """The page is all there is."""
    made = World(gpus=2, nvml=False).start()
    made.dcgm(PAGE, energy=USED)
    assert made.verdict().health == "Healthy"
    return made


def test_a_page_that_repeats_even_the_energy_shows_no_gpu(world: World) -> None:
    scraped(world, 9 * 60, USED)
    assert world.verdict().health == "Healthy"
    scraped(world, 2 * 60, USED)

    assert told(world) == (SourceState.DOWN, "FrozenPage")
    said = world.verdict()
    assert (said.health, said.reason) == ("Unknown", "FrozenPage")
    assert not world.incidents, "not seeing is no fault"


def test_an_idle_gpu_repeats_all_but_the_energy(world: World) -> None:
    scraped(world, HOURS_S, USED, watts=35)

    assert told(world) == (SourceState.UP, "")
    assert world.verdict().health == "Healthy"


def test_a_page_without_energy_has_nothing_to_be_measured_by(world: World) -> None:
    scraped(world, HOURS_S, {})

    assert told(world) == (SourceState.UP, "")


def test_one_gpu_that_goes_on_is_enough(world: World) -> None:
    for minute in range(60):
        scraped(world, 60, {**USED, uuid(0): USED[uuid(0)] + minute})

    assert told(world)[0] is SourceState.UP


def test_what_changes_is_seen_again_at_once(world: World) -> None:
    scraped(world, HOURS_S, USED)
    assert told(world)[0] is SourceState.DOWN
    scraped(world, SCRAPE_S, USED, watts=35)

    assert told(world) == (SourceState.UP, "")
    assert world.verdict().health == "Healthy"


def test_beside_nvml_a_frozen_page_says_nothing_against_it() -> None:
    world = World(gpus=2).start()
    world.dcgm(PAGE, energy=USED)
    scraped(world, HOURS_S, USED)

    assert told(world) == (SourceState.DOWN, "FrozenPage")
    assert world.verdict().health == "Healthy", "NVML sees the GPUs"
    world.readings(0, temperature=80)
    world.readings(1, temperature=80)
    scraped(world, 30 * 60, USED)
    assert not world.incidents


def test_a_restart_does_not_make_an_old_page_new(world: World) -> None:
    scraped(world, HOURS_S, USED)
    world.restart_agent()
    world.source(SourceName.NVML, SourceState.ABSENT, "Off")
    scraped(world, 60, USED)
    assert told(world) == (SourceState.DOWN, "FrozenPage")
    scraped(world, 60, USED, watts=35)
    assert told(world) == (SourceState.UP, "")


def test_a_clock_that_is_set_freezes_no_page(world: World) -> None:
    world.now += HOURS_S
    scraped(world, 60, USED)
    assert told(world)[0] is SourceState.DOWN, "nobody can tell that from six hours"
    world.now -= 2 * HOURS_S
    scraped(world, 60, USED, watts=35)
    assert told(world)[0] is SourceState.UP
