"""What a GPU's record does to its repairs: it is never a cause, and it teaches."""

from __future__ import annotations

from rules.api.gpu_record import (
    FaultOutcome,
)
from rules.api.timestamps import format_time
from tests.support.scenario.repair_world import DAY, NODE, RecordWorld

GPU = f"GPU-{NODE}-0"
LOOKED_AT_AGAIN_S = 60.0
"""One node is not looked at more often than this for its records."""


def repeats(world: RecordWorld) -> bool:
    return "repeat offender" in world.record().message


def test_a_fault_and_its_repair_are_one_line_of_the_record() -> None:
    world = RecordWorld()
    world.fault()
    record = world.record()
    (event,) = record.events
    assert (event.reason, event.severity, event.node) == ("Xid79GPUFallenOffBus", "Fatal", NODE)
    assert (event.outcome, event.steps) == (FaultOutcome.RELEASED, ("RestartNode",))
    assert event.session == world.session(NODE).name
    assert (record.uuid, record.node) == (GPU, NODE)
    assert "repeat offender" not in record.message
    assert world.keep_records() == 0, "the same facts again write nothing"


def test_a_fault_that_comes_back_says_after_how_long() -> None:
    world = RecordWorld()
    world.fault()
    world.fault(days_later=2)
    first, second = world.record().events
    assert 2 * DAY <= (first.came_back_after or 0) < 2.1 * DAY
    assert second.came_back_after is None


def test_a_repeat_offender_is_never_a_cause() -> None:
    world = RecordWorld()
    world.fail_five_times()
    ended = len(world.sessions(NODE))
    world.run(3600, step=60)
    world.keep_records()
    assert repeats(world)
    assert len(world.sessions(NODE)) == ended
    assert not world.is_marked(NODE)


def test_a_persons_word_ends_it() -> None:
    world = RecordWorld()
    world.fail_five_times()
    assert repeats(world)
    said = f"{format_time(world.now)} board looks fine, ticket 4711"
    world.annotate(NODE, "gpuward.io/repaired", said)
    world.run(LOOKED_AT_AGAIN_S, step=30)
    world.keep_records()
    record = world.record()
    assert not repeats(world)
    assert [(one.word, one.reason) for one in record.said] == [
        ("repaired", "board looks fine, ticket 4711")
    ]


def test_the_record_goes_with_the_gpu_to_another_node() -> None:
    world = RecordWorld()
    world.fault()
    world.healths["n1"]["status"]["gpus"] = [
        {"uuid": GPU, "serial": "S1", "pci": "0000:3b:00.0", "product": "NVIDIA H100"}
    ]
    world.now += DAY
    world.incident("n1", gpu=GPU)
    world.run_until("n1", "Released", limit=40_000, step=25)
    world.keep_records()
    record = world.record()
    assert [place.node for place in record.places] == [NODE, "n1"]
    assert (record.serial, record.places[-1].slot) == ("S1", "0000:3b:00.0")
    assert [event.node for event in record.events] == [NODE, "n1"]
    assert world.keep_records() == 0, "two nodes that know it do not fight"


def test_90_days_end_the_record() -> None:
    world = RecordWorld()
    world.fail_five_times()
    world.healths[NODE]["status"]["incidents"] = []
    world.now += 50 * DAY
    world.keep_records()
    assert repeats(world)
    world.quarantines.clear()
    world.now += 60 * DAY
    world.keep_records()
    assert world.records == {}


def test_what_a_person_undid_counts_nothing() -> None:
    world = RecordWorld(mode="Off")
    for _ in range(5):
        world.now += DAY
        world.run(60, step=20)
        world.fail_until(NODE, "Quarantined", limit=600, step=5)
        world.cordon(NODE, on=False)
        world.run_until(NODE, "Cancelled", limit=600, step=5)
        world.run(10, step=5)
        world.close_all(NODE)
        world.keep_records()
    record = world.record()
    assert {event.outcome for event in record.events} == {FaultOutcome.UNDONE}
    assert "no fault in 90 days counts against it" in record.message
