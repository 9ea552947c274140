"""Approvals of people: in time, unasked, and steps of another machine."""

from typing import Any

import pytest
from msgspec import structs

from rules.api.quarantine import RepairRequest, TimelineEntry
from rules.api.repair_writes import SetRepairCondition
from rules.api.timestamps import format_time
from rules.fleet.record_changes import steps_of
from rules.session.repair.endings import MAX_ATTEMPTS
from rules.session.repair.ladder import request_in_force
from tests.support.scenario.repair_world import NODE, REPLACE, RepairWorld, repair_policy


def touched(world: RepairWorld, **spec: object) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"] |= spec
    world.touch(session)


def approved(world: RepairWorld, at: str) -> None:
    touched(world, repair={"step": "RestartNode", "by": "olga", **({"at": at} if at else {})})


def held_by_people() -> RepairWorld:
    """A drained node that people hold, with a fault whose repair is proposed."""
    world = RepairWorld(does="hangs", mode="Ask")
    world.fail_until(NODE, "Quarantined")
    causes = world.quarantines[world.session(NODE).name]["spec"]["causes"]
    by_operator = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ada"}
    touched(world, hold=True, causes=[*causes, by_operator])
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


def test_an_approval_does_not_count_for_the_next_fault() -> None:
    world = held_by_people()
    approved(world, format_time(world.now))
    world.run(5)
    another_fault(world)
    assert world.steps_of() == []
    assert world.condition(NODE, "RepairProposed") == "RestartNode"
    approved(world, format_time(world.now))
    world.run(60)
    assert world.steps_of() == [("RestartNode", "Asked")]


@pytest.mark.parametrize("at", ["", "tomorrow", "2099-12-31T23:59:59Z", "2" * 4000])
def test_an_approval_without_a_time_still_counts(at: str) -> None:
    world = held_by_people()
    approved(world, at)
    world.run(5)
    another_fault(world)
    assert world.steps_of() == [("RestartNode", "Asked")]


def test_an_approval_holds_while_one_of_its_faults_does() -> None:
    world = held_by_people()
    approved(world, format_time(world.now))
    world.run(5)
    world.incident(NODE, gpu=f"GPU-{NODE}-3")
    world.run(10)
    touched(world, hold=False)
    world.run(60)
    assert world.steps_of() == [("RestartNode", "Asked")]


def test_the_timeline_has_the_time_of_the_approval() -> None:
    world = held_by_people()
    text = world.now
    approved(world, format_time(text))
    world.run(900, step=10)
    touched(world, hold=False)
    world.run(60)
    (entry,) = [e for e in world.session(NODE).status.timeline if e.step == "LetGo"]
    assert (entry.at, entry.by) == (format_time(text), "olga")
    assert world.session(NODE).status.repair[0].started_at > entry.at


@pytest.mark.parametrize("at", ["2099-12-31T23:59:59Z", "1971-01-01T00:00:00Z", "x"])
def test_the_timeline_never_leaves_the_session(at: str) -> None:
    world = held_by_people()
    approved(world, at)
    touched(world, hold=False)
    world.run(60)
    session = world.session(NODE)
    (entry,) = [e for e in session.status.timeline if e.step == "LetGo"]
    assert session.metadata.creation_timestamp <= entry.at <= format_time(world.now)


def test_a_joining_fault_has_its_time_and_is_written_once() -> None:
    world = held_by_people()
    world.incident(NODE, gpu=f"GPU-{NODE}-3")
    world.run(5)
    joined = world.session(NODE).spec.causes
    assert [bool(cause.at) for cause in joined] == [False, False, True]
    world.run(600, step=10)
    assert world.session(NODE).spec.causes == joined


def test_an_approval_from_before_a_reopening_does_not_count() -> None:
    world = held_by_people()
    session = world.session(NODE)
    faults = [cause for cause in session.spec.causes if cause.source != "Human"]
    pending = TimelineEntry(at=format_time(world.now), step="Pending")
    again = structs.replace(
        session, status=structs.replace(session.status, timeline=(pending, pending))
    )
    for text, holds in ((world.now - 60, False), (world.now + 60, True)):
        request = RepairRequest(step="RestartNode", by="olga", at=format_time(text))
        spec = structs.replace(session.spec, repair=request)
        assert (request_in_force(structs.replace(again, spec=spec), faults) is not None) is holds
        assert request_in_force(structs.replace(session, spec=spec), faults) is request


def planned(**repair: Any) -> RepairWorld:
    """A restart is on record; the leader died before it asked."""
    world = RepairWorld(**repair)
    world.incident(NODE)
    plan_again(world)
    return world


def plan_again(world: RepairWorld) -> None:
    world.leader_dies_at(lambda write: isinstance(write, SetRepairCondition) and write.asks)
    world.restart()
    assert world.steps_of()[-1] == ("RestartNode", "Planned")


def switch(world: RepairWorld, mode: str) -> None:
    world.policy = repair_policy(mode=mode)
    world.run(10)


def test_a_held_step_of_a_node_that_reboots_gets_its_full_timeout() -> None:
    """Held for two hours; then the node boots, and is NotReady for as long as a boot takes."""
    world = planned(does="hangs")
    world.pause()
    world.run(2 * 3600, step=60)
    assert world.steps_of() == [("RestartNode", "Held")]
    world.reboot(NODE)
    world.set_ready(NODE, "False")
    world.pauses.clear()
    world.run(300, step=10)
    assert world.steps_of() == [("RestartNode", "Asked")]
    assert world.asked() == []
    world.set_ready(NODE, "True")
    world.heal_until_released(NODE, limit=1800)
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert world.asked() == []


def test_a_silent_node_that_no_step_ever_reached_is_not_replaced() -> None:
    """The restart failed because its request was refused, not because of the node."""
    world = RepairWorld(does="hangs")
    world.refusing = {SetRepairCondition: (403, "ValidatingAdmissionPolicy denied the request")}
    world.fail_until(NODE, "Repairing")
    while world.steps_of()[0][1] != "Failed":
        world.run(10, step=5)
    assert "the request could not be sent" in world.session(NODE).status.repair[0].proof
    assert steps_of(world.session(NODE)) == (), "its records learn nothing from it"
    world.set_ready(NODE, "Unknown")
    world.refusing = {}
    world.run(2 * 3600, step=30)
    assert not world.asks(NODE, REPLACE)
    assert world.condition(NODE, "Blocked") == "NodeUnreachable"


def test_a_silent_node_that_was_restarted_in_vain_is_replaced() -> None:
    world = RepairWorld(does="hangs")
    world.fail_until(NODE, "Repairing")
    world.run(10)
    assert world.session(NODE).status.repair[0].asked_at
    world.set_ready(NODE, "Unknown")
    world.run(2 * 3600, step=30)
    assert steps_of(world.session(NODE))[:1] == ("RestartNode",)
    assert [w.step for w in world.asked()] == ["RestartNode", "ReplaceNode"]


def test_a_step_withdrawn_unasked_is_free_to_be_taken_again() -> None:
    """Somebody switched repairs off and on again: the ladder does not climb for that."""
    world = planned(does="heals")
    switch(world, "Off")
    assert world.steps_of() == [("RestartNode", "Withdrawn")]
    switch(world, "Auto")
    world.run_until(NODE, "Released", limit=3600)
    assert world.steps_of() == [("RestartNode", "Withdrawn"), ("RestartNode", "Proven")]
    assert not world.asks(NODE, REPLACE)
    names = [attempt.object for attempt in world.session(NODE).status.repair]
    assert [name.rpartition("-")[2] for name in names] == ["1", "2"]


def test_steps_withdrawn_unasked_never_fill_the_record() -> None:
    world = planned(does="heals")
    for _ in range(MAX_ATTEMPTS + 2):
        switch(world, "Off")
        world.policy = repair_policy()
        plan_again(world)
        names = [attempt.object for attempt in world.session(NODE).status.repair]
        assert len(set(names)) == len(names) <= MAX_ATTEMPTS
    world.run_until(NODE, "Released", limit=3600)
    assert world.steps_of()[-1] == ("RestartNode", "Proven")
    assert len(world.asked()) == 1


def test_an_approved_step_needs_an_active_fault() -> None:
    """The fault went with a boot of somebody else before the step began: the node is sound, and a
    operator's wish to keep it out is no fault to repair.
    """
    world = RepairWorld(does="hangs", mode="Ask")
    world.fail_until(NODE, "Quarantined")
    session = world.quarantines[world.session(NODE).name]
    by_operator = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ada"}
    session["spec"]["causes"].append(by_operator)
    session["spec"]["repair"] = {"step": "RestartNode", "by": "ada"}
    world.reboot(NODE)
    world.close_all(NODE)
    world.touch(session)
    world.run(600, step=5)
    assert world.phase(NODE) == "Quarantined"
    assert world.steps_of() == []
    assert world.asked() == []
    assert "Waiting for an operator to release the node" in world.message(NODE)


@pytest.mark.parametrize("asked", ["before", "after"])
def test_walk_what_a_boot_closed_does_not_return_while_the_agent_is_away(
    asked: str,
) -> None:
    """A node that boots again and again, and an operator who keeps it out: each boot is a minute
    without a health status, and no fault of before holds again for that.
    """
    world = RepairWorld(does="hangs", mode="Ask")
    world.fail_until(NODE, "Quarantined")
    session = world.quarantines[world.session(NODE).name]
    by_operator = {"source": "Human", "reason": "Requested", "severity": "Degraded", "by": "ada"}
    session["spec"]["causes"].append(by_operator)
    world.touch(session)
    approved = {"step": "RestartNode", "by": "ada"}
    if asked == "before":
        # The last list of the drain is old by then.
        world.run(5)
        session["spec"]["repair"] = approved
        world.touch(session)
        world.run(1)
    for _ in range(3):
        world.reboot(NODE)
        world.healths[NODE]["status"]["bootID"] = "before"
        world.silence(NODE)
        world.run(60, step=5)
        world.speak(NODE)
        world.healths[NODE]["status"]["bootID"] = world.nodes[NODE]["status"]["nodeInfo"]["bootID"]
        world.close_all(NODE)
        world.run(30, step=5)
        if asked == "after" and "repair" not in session["spec"]:
            session["spec"]["repair"] = approved
            world.touch(session)
    world.run(600, step=5)
    assert world.phases(NODE) == ["Marked", "Draining", "Quarantined"]
    assert world.steps_of() == []
    assert "Waiting for an operator to release the node" in world.message(NODE)
    events = [entry.step for entry in world.session(NODE).status.timeline]
    assert events.count("NewBoot") == 3
    assert "CauseReturned" not in events
