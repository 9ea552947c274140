"""`status.reason`, the column Reason of `kubectl get gq`: the gravest cause, not the first."""

from __future__ import annotations

import pytest

from rules.api import writes as d
from tests.support.scenario.fleets import NODE, OPEN, at
from tests.support.scenario.session_world import ROOMY, World, policy_of

MILD = "Xid94ContainedMemoryError"
GRAVE = "Xid79GPUFallenOffBus"


def records(world: World) -> int:
    return sum(isinstance(write, d.WriteSessionStatus) for _, write, _, _ in world.sent)


@pytest.mark.parametrize("mode", ["Enforce", "Shadow"])
def test_the_gravest_cause_is_named_also_where_it_came_later(mode: str) -> None:
    world = World(policy_of(mode=mode, budget=ROOMY))
    world.add_nodes(5)
    world.add_pod("kept", NODE)
    world.add_pdb("keep", minAvailable=1)
    world.incident(NODE, MILD, severity="Degraded")
    world.run(10)
    assert world.session(NODE).status.reason == MILD
    world.incident(NODE, GRAVE, gpu="GPU-n0-1")
    world.run(10)
    session = world.session(NODE)
    assert [cause.reason for cause in session.spec.causes] == [MILD, GRAVE]
    assert session.status.reason == GRAVE


@pytest.mark.parametrize("phase", OPEN)
def test_a_session_of_an_older_release_gets_it_with_one_write(phase: str) -> None:
    world = at(phase)
    stored = world.quarantines[world.session(NODE).name]
    del stored["status"]["reason"]
    world.touch(stored)
    before = records(world)
    world.run(5)
    assert world.session(NODE).status.reason == GRAVE
    assert records(world) == before + 1
    world.run(50)
    assert records(world) == before + 1


def test_it_stays_with_a_session_that_ended() -> None:
    world = at("Draining")
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ann", "reason": "drill over"}
    world.touch(session)
    world.run_until(NODE, "Released", limit=30)
    assert world.session(NODE).status.reason == GRAVE


def test_a_session_whose_node_is_gone_names_it() -> None:
    world = at("Quarantined")
    name = world.session(NODE).name
    del world.nodes[NODE]
    world.run(90)
    ended = world.quarantines[name]["status"]
    assert (ended["phase"], ended["reason"]) == ("NodeGone", GRAVE)


def test_a_person_who_gave_no_code_is_named_as_who_asked() -> None:
    world = World(policy_of(budget=ROOMY))
    world.add_nodes(5)
    world.open_by_person(NODE, causes=[{"source": "Human", "message": "drill"}])
    world.run(5)
    assert world.session(NODE).status.reason == "Human"
