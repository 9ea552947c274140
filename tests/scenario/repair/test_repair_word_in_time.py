"""A person's word for a repair step holds for the faults that it was said for (issue 15)."""

from __future__ import annotations

import pytest
from msgspec import structs

from rules.api.quarantine import RepairRequest, TimelineEntry
from rules.api.timestamps import format_time
from rules.session.repair.ladder import request_in_force
from tests.support.scenario.repair_world import NODE, RepairWorld


def touched(world: RepairWorld, **spec: object) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"] |= spec
    world.touch(session)


def let_go(world: RepairWorld, at: str) -> None:
    touched(world, repair={"step": "RestartNode", "by": "olga", **({"at": at} if at else {})})


def held_by_people() -> RepairWorld:
    """A drained node that people hold, with a fault whose repair is proposed."""
    world = RepairWorld(does="hangs", mode="Ask")
    world.incident(NODE)
    world.run_until(NODE, "Quarantined", limit=60)
    causes = world.quarantines[world.session(NODE).name]["spec"]["causes"]
    by_person = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ada"}
    touched(world, hold=True, causes=[*causes, by_person])
    world.run(60)
    return world


def another_fault(world: RepairWorld) -> None:
    """The fault of before is over, another one joins, and nothing holds the node any more."""
    world.close_all(NODE)
    world.run(60)
    world.incident(NODE, gpu=f"GPU-{NODE}-3")
    world.run(10)
    touched(world, hold=False)
    world.run(600, step=5)


def test_a_word_for_a_fault_that_is_over_does_not_count_for_the_next() -> None:
    world = held_by_people()
    let_go(world, format_time(world.now))
    world.run(5)
    another_fault(world)
    assert world.steps_of() == []
    assert world.condition(NODE, "RepairProposed") == "RestartNode"
    let_go(world, format_time(world.now))
    world.run(60)
    assert world.steps_of() == [("RestartNode", "Asked")]


@pytest.mark.parametrize("at", ["", "tomorrow", "2099-12-31T23:59:59Z", "2" * 4000])
def test_a_word_of_which_nobody_knows_when_it_was_said_holds_as_ever(at: str) -> None:
    world = held_by_people()
    let_go(world, at)
    world.run(5)
    another_fault(world)
    assert world.steps_of() == [("RestartNode", "Asked")]


def test_a_word_holds_while_a_fault_it_was_said_for_does() -> None:
    world = held_by_people()
    let_go(world, format_time(world.now))
    world.run(5)
    world.incident(NODE, gpu=f"GPU-{NODE}-3")
    world.run(10)
    touched(world, hold=False)
    world.run(60)
    assert world.steps_of() == [("RestartNode", "Asked")]


def test_the_timeline_dates_the_word_by_when_it_was_said() -> None:
    world = held_by_people()
    said = world.now
    let_go(world, format_time(said))
    world.run(900, step=10)
    touched(world, hold=False)
    world.run(60)
    (entry,) = [e for e in world.session(NODE).status.timeline if e.step == "LetGo"]
    assert (entry.at, entry.by) == (format_time(said), "olga")
    assert world.session(NODE).status.repair[0].started_at > entry.at


@pytest.mark.parametrize("at", ["2099-12-31T23:59:59Z", "1971-01-01T00:00:00Z", "x"])
def test_the_timeline_never_leaves_the_session(at: str) -> None:
    world = held_by_people()
    let_go(world, at)
    touched(world, hold=False)
    world.run(60)
    session = world.session(NODE)
    (entry,) = [e for e in session.status.timeline if e.step == "LetGo"]
    assert session.metadata.creation_timestamp <= entry.at <= format_time(world.now)


def test_a_fault_that_joins_says_when_and_is_written_once() -> None:
    world = held_by_people()
    world.incident(NODE, gpu=f"GPU-{NODE}-3")
    world.run(5)
    joined = world.session(NODE).spec.causes
    assert [bool(cause.at) for cause in joined] == [False, False, True]
    world.run(600, step=10)
    assert world.session(NODE).spec.causes == joined


def test_a_word_said_before_a_session_was_taken_up_again_is_no_word_for_it() -> None:
    world = held_by_people()
    session = world.session(NODE)
    faults = [cause for cause in session.spec.causes if cause.source != "Human"]
    pending = TimelineEntry(at=format_time(world.now), step="Pending")
    again = structs.replace(
        session, status=structs.replace(session.status, timeline=(pending, pending))
    )
    for said, holds in ((world.now - 60, False), (world.now + 60, True)):
        word = RepairRequest(step="RestartNode", by="olga", at=format_time(said))
        spec = structs.replace(session.spec, repair=word)
        assert (request_in_force(structs.replace(again, spec=spec), faults) is not None) is holds
        assert request_in_force(structs.replace(session, spec=spec), faults) is word
