"""Pages of dcgm-exporter: blank, frozen, of another node, and their last Xid."""

from collections.abc import Mapping

import pytest

from rules.catalog.signals import Signal
from rules.judge.observation import KernelGap, SourceName, SourceState, Value
from tests.support.scenario.judgement_world import SOUND, World, pci, uuid

NOTHING: dict[Signal, Value] = {Signal.TEMPERATURE: None, Signal.REMAP_FAILURE: None}


def test_a_page_without_values_is_a_source_down() -> None:
    world = World().start()
    known = {view.seen.uuid: NOTHING for view in world.state.gpus.values()}
    world.dcgm(known)
    assert dcgm_source(world) == (SourceState.DOWN, "BlankPage")
    assert world.assessment().health == "Healthy", "NVML sees the GPUs"
    world.dcgm({gpu: {Signal.TEMPERATURE: 40} for gpu in known})
    assert dcgm_source(world)[0] is SourceState.UP


def test_one_value_that_is_missing_takes_nothing_from_a_page() -> None:
    world = World().start()
    one, *others = (view.seen.uuid for view in world.state.gpus.values())
    world.dcgm({one: NOTHING} | {gpu: {Signal.TEMPERATURE: 40} for gpu in others})
    assert dcgm_source(world) == (SourceState.UP, "")
    world.dcgm(dict.fromkeys((one, *others), NOTHING), xids={one: 0})
    assert dcgm_source(world)[0] is SourceState.UP, "it has the last Xid"


def test_a_blank_page_without_nvml_leaves_the_node_unknown() -> None:
    world = World(gpus=2, nvml=False).start()
    pages: dict[str, dict[Signal, Value]] = {uuid(i): dict(SOUND) for i in range(2)}
    world.dcgm(pages)
    assert world.assessment().health == "Healthy"
    world.dcgm(dict.fromkeys(pages, NOTHING))
    assessment = world.assessment()
    assert (assessment.health, assessment.reason) == ("Unknown", "BlankPage")
    assert not world.incidents, "a lost collector is not a lost GPU"
    world.dcgm(pages)
    assert world.assessment().health == "Healthy"


SCRAPE_S = 15.0
PAGE: dict[str, dict[Signal, Value]] = {uuid(i): dict(SOUND) for i in range(2)}
USED = {uuid(i): 5_551_899_580.0 + i for i in range(2)}
HOURS_S = 6 * 3600.0


def scraped(world: World, for_s: float, energy: Mapping[str, float], watts: float = 0.0) -> None:
    """Send pages with the same readings; `watts` is the power of each GPU."""
    used = dict(energy)
    for _ in range(int(for_s / SCRAPE_S)):
        world.advance(SCRAPE_S)
        used = {gpu: mj + watts * SCRAPE_S * 1000 for gpu, mj in used.items()}
        world.dcgm(PAGE, energy=used)


def dcgm_source(world: World) -> tuple[SourceState, str]:
    view = world.state.sources[SourceName.DCGM]
    return view.state, view.reason


@pytest.fixture
def world() -> World:
    """A node with dcgm-exporter as the only data source."""
    made = World(gpus=2, nvml=False).start()
    made.dcgm(PAGE, energy=USED)
    assert made.assessment().health == "Healthy"
    return made


def test_a_page_that_repeats_even_the_energy_shows_no_gpu(world: World) -> None:
    scraped(world, 9 * 60, USED)
    assert world.assessment().health == "Healthy"
    scraped(world, 2 * 60, USED)

    assert dcgm_source(world) == (SourceState.DOWN, "FrozenPage")
    assessment = world.assessment()
    assert (assessment.health, assessment.reason) == ("Unknown", "FrozenPage")
    assert not world.incidents, "not seeing is no fault"


def test_an_idle_gpu_repeats_all_but_the_energy(world: World) -> None:
    scraped(world, HOURS_S, USED, watts=35)

    assert dcgm_source(world) == (SourceState.UP, "")
    assert world.assessment().health == "Healthy"


def test_a_page_without_energy_has_nothing_to_be_measured_by(world: World) -> None:
    scraped(world, HOURS_S, {})

    assert dcgm_source(world) == (SourceState.UP, "")


def test_one_gpu_that_goes_on_is_enough(world: World) -> None:
    for minute in range(60):
        scraped(world, 60, {**USED, uuid(0): USED[uuid(0)] + minute})

    assert dcgm_source(world)[0] is SourceState.UP


def test_what_changes_is_seen_again_at_once(world: World) -> None:
    scraped(world, HOURS_S, USED)
    assert dcgm_source(world)[0] is SourceState.DOWN
    scraped(world, SCRAPE_S, USED, watts=35)

    assert dcgm_source(world) == (SourceState.UP, "")
    assert world.assessment().health == "Healthy"


def test_with_nvml_a_frozen_page_does_not_contradict_it() -> None:
    world = World(gpus=2).start()
    world.dcgm(PAGE, energy=USED)
    scraped(world, HOURS_S, USED)

    assert dcgm_source(world) == (SourceState.DOWN, "FrozenPage")
    assert world.assessment().health == "Healthy", "NVML sees the GPUs"
    world.readings(0, temperature=80)
    world.readings(1, temperature=80)
    scraped(world, 30 * 60, USED)
    assert not world.incidents


def test_a_restart_does_not_make_an_old_page_new(world: World) -> None:
    scraped(world, HOURS_S, USED)
    world.restart_agent()
    world.source(SourceName.NVML, SourceState.ABSENT, "Off")
    scraped(world, 60, USED)
    assert dcgm_source(world) == (SourceState.DOWN, "FrozenPage")
    scraped(world, 60, USED, watts=35)
    assert dcgm_source(world) == (SourceState.UP, "")


def test_a_clock_that_is_set_freezes_no_page(world: World) -> None:
    world.now += HOURS_S
    scraped(world, 60, USED)
    assert dcgm_source(world)[0] is SourceState.DOWN, "nobody can tell that from six hours"
    world.now -= 2 * HOURS_S
    scraped(world, 60, USED, watts=35)
    assert dcgm_source(world)[0] is SourceState.UP


def lose_records(world: World) -> None:
    """Lose records of the kernel log before they are read."""
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
    assert world.outcome() == "Fatal Drain ResetGPU"
    assert world.only().count == 1


def test_an_xid_in_the_log_before_lost_records_counts_once() -> None:
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
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_addresses_that_are_not_on_this_bus_prove_another_node() -> None:
    world = World(nvml=False).start()
    page: dict[str, dict[Signal, Value]] = {f"GPU-{n}": {Signal.TEMPERATURE: 40} for n in range(8)}
    far = {f"GPU-{n}": f"0000:{0x90 + n:02x}:00.0" for n in range(8)}
    world.dcgm(page, pci=far)
    assert dcgm_source(world) == (SourceState.DOWN, "ForeignPage")
    world.dcgm(page, pci={f"GPU-{n}": f"{pci(n)}.0" for n in range(8)})
    assert dcgm_source(world) == (SourceState.UP, "")
    named = World().start()
    named.dcgm({"GPU-of-somebody-else": {}})
    assert dcgm_source(named) == (SourceState.DOWN, "ForeignPage")


def test_without_nvml_a_gpu_that_vanishes_from_page_and_bus_is_lost() -> None:
    world = World(nvml=False).start()
    page = {gpu.uuid: {Signal.TEMPERATURE: 40} for gpu in world.inventory}
    addresses = {gpu.uuid: gpu.pci for gpu in world.inventory}
    world.dcgm(page, pci=addresses)
    del page[world.inventory[3].uuid]
    world.config_space[3] = False
    for _ in range(3):
        world.advance(15)
        world.dcgm(page, pci=addresses)
        world.poll_pci()
    assert [i.gpus for i in world.active if i.row.reason == "GPULost"] == [
        (world.inventory[3].uuid,)
    ]


def test_without_nvml_a_series_that_vanishes_alone_is_degraded() -> None:
    world = World(nvml=False).start()
    page = {gpu.uuid: {Signal.TEMPERATURE: 40} for gpu in world.inventory}
    world.dcgm(page)
    del page[world.inventory[3].uuid]
    for _ in range(3):
        world.advance(15)
        world.dcgm(page)
    assert world.outcome() == "Degraded Report Investigate"


def test_a_failing_exporter_without_nvml_is_unknown_never_a_drain() -> None:
    world = World(nvml=False).start()
    world.dcgm({"GPU-0": {}})
    world.source(SourceName.DCGM, SourceState.DOWN)
    assert world.assessment().health == "Unknown"
    assert not world.active


def test_with_nvml_dcgm_exporter_is_only_compared() -> None:
    world = World().start()
    page = {gpu.uuid: {Signal.REMAP_FAILURE: 1} for gpu in world.inventory}
    for _ in range(5):
        world.dcgm(page)
        world.advance(15)
    assert not world.active
    del page[world.inventory[7].uuid]
    world.dcgm(page)
    assert dcgm_source(world) == (SourceState.UP, "DiffersFromNVML")


def test_a_sticky_xid_is_no_event_but_its_change_is() -> None:
    world = World(nvml=False)
    world.source(SourceName.NVML, SourceState.ABSENT)
    world.dcgm({"GPU-0": {}}, xids={"GPU-0": 79})
    world.advance(30)
    world.dcgm({"GPU-0": {}}, xids={"GPU-0": 79})
    assert not world.incidents
    world.dcgm({"GPU-0": {}}, xids={"GPU-0": 95})
    assert world.outcome() == "Fatal Drain ResetGPU"


def test_a_lower_xid_of_another_mig_instance_is_an_event_too() -> None:
    world = World(nvml=False)
    world.source(SourceName.NVML, SourceState.ABSENT)
    world.dcgm({"GPU-0": {}}, instance_xids={("GPU-0", 1): 94, ("GPU-0", 2): 0})
    world.dcgm({"GPU-0": {}}, instance_xids={("GPU-0", 1): 94, ("GPU-0", 2): 79})
    assert world.only().xids == (79,)
    mig = world.published().status.incidents[0].mig
    assert mig is not None
    assert mig.gi == 2


def test_a_series_that_appears_has_changed() -> None:
    world = World(nvml=False)
    world.source(SourceName.NVML, SourceState.ABSENT)
    world.dcgm({"GPU-0": {}})
    world.dcgm({"GPU-0": {}}, xids={"GPU-0": 79})
    assert world.outcome() == "Fatal Drain RestartNode"


def test_with_a_kernel_log_the_exporters_last_xid_adds_nothing() -> None:
    world = World(1, nvml=False).start()
    world.dcgm({"GPU-0": {}})
    world.dcgm({"GPU-0": {}}, xids={"GPU-0": 79})
    assert not world.active
