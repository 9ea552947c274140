"""dcgm-exporter answers, and its page has no value of any GPU."""

from __future__ import annotations

from rules.catalog.signals import Signal
from rules.judge.observation import SourceName, SourceState, Value
from tests.support.scenario.judgement_world import SOUND, World, uuid

NOTHING: dict[Signal, Value] = {Signal.TEMPERATURE: None, Signal.REMAP_FAILURE: None}


def dcgm_told(world: World) -> tuple[SourceState, str]:
    view = world.state.sources[SourceName.DCGM]
    return view.state, view.reason


def test_a_page_without_a_value_is_a_source_that_gives_nothing() -> None:
    world = World().start()
    known = {view.seen.uuid: NOTHING for view in world.state.gpus.values()}
    world.dcgm(known)
    assert dcgm_told(world) == (SourceState.DOWN, "BlankPage")
    assert world.verdict().health == "Healthy", "NVML sees the GPUs"
    world.dcgm({uuid: {Signal.TEMPERATURE: 40} for uuid in known})
    assert dcgm_told(world)[0] is SourceState.UP


def test_one_value_that_is_missing_takes_nothing_from_a_page() -> None:
    world = World().start()
    one, *others = (view.seen.uuid for view in world.state.gpus.values())
    world.dcgm({one: NOTHING} | {uuid: {Signal.TEMPERATURE: 40} for uuid in others})
    assert dcgm_told(world) == (SourceState.UP, "")
    world.dcgm(dict.fromkeys((one, *others), NOTHING), xids={one: 0})
    assert dcgm_told(world)[0] is SourceState.UP, "it tells the last Xid"


def test_where_the_page_is_all_there_is_a_blank_one_leaves_the_node_unknown() -> None:
    world = World(gpus=2, nvml=False).start()
    pages: dict[str, dict[Signal, Value]] = {uuid(i): dict(SOUND) for i in range(2)}
    world.dcgm(pages)
    assert world.verdict().health == "Healthy"
    world.dcgm(dict.fromkeys(pages, NOTHING))
    told = world.verdict()
    assert (told.health, told.reason) == ("Unknown", "BlankPage")
    assert not world.incidents, "a lost sense is not a lost GPU"
    world.dcgm(pages)
    assert world.verdict().health == "Healthy"
