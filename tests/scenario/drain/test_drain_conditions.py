"""A drain is reported as Node lifecycle conditions (policy `drain.nodeConditions`)."""

from typing import Any

import pytest

from rules.api import names
from rules.api import writes as d
from tests.support.scenario.session_world import ROOMY, World, kill_points, policy_of

NODE = "n0"
PLANNED, DRAINS, DRAINED = names.DRAIN_CONDITIONS


def policy(mode: str = "Enforce", external: Any = (), **drain: object) -> Any:
    drain = {"settle": "0s", "gangWindow": "0s", "nodeConditions": True, **drain}
    return policy_of(mode=mode, budget=ROOMY, drain=drain, external=list(external))


def fleet(**chosen: Any) -> World:
    world = World(policy(**chosen))
    world.add_nodes(3)
    world.add_pod("train", NODE, owner=("batch/v1", "Job", "train"), grace=20)
    return world


def reported(world: World) -> dict[str, str]:
    """The status of each drain condition of the node."""
    conditions = world.nodes[NODE]["status"]["conditions"]
    return {c["type"]: c["status"] for c in conditions if c["type"] in names.DRAIN_CONDITIONS}


def true(world: World) -> set[str]:
    return {kind for kind, status in reported(world).items() if status == "True"}


def put(world: World, kind: str, status: str, reason: str = "AdminRequested") -> None:
    """Another writer sets the condition."""
    conditions = world.nodes[NODE]["status"]["conditions"]
    conditions[:] = [c for c in conditions if c["type"] != kind]
    conditions.append({"type": kind, "status": status, "reason": reason, "message": "theirs"})
    world.touch(world.nodes[NODE])


def test_each_phase_is_reported_once_and_withdrawn_at_the_release() -> None:
    world = fleet()
    world.fail_until(NODE, "Draining")
    world.run(5)
    assert true(world) == {PLANNED, DRAINS}
    world.run_until(NODE, "Quarantined")
    world.run(5)
    assert true(world) == {PLANNED, DRAINED}
    world.close_all(NODE)
    world.run_until(NODE, "Validating")
    world.run(5)
    assert true(world) == {DRAINED}
    world.run_until(NODE, "Released")
    world.run(5)
    assert reported(world) == dict.fromkeys(names.DRAIN_CONDITIONS, "False")
    writes = len(world.writes(d.SetDrainConditions))
    assert writes <= 5
    world.run(600, step=10)
    assert len(world.writes(d.SetDrainConditions)) == writes
    assert reported(world).keys() == set(names.DRAIN_CONDITIONS)


def test_the_drain_begins_after_the_notice() -> None:
    world = fleet(notice="2m")
    world.fail_until(NODE, "Draining")
    world.run(60)
    assert true(world) == {PLANNED}
    world.run(70)
    assert true(world) == {PLANNED, DRAINS}


def test_without_the_key_nothing_is_written() -> None:
    world = fleet(nodeConditions=False)
    world.fail_until(NODE, "Quarantined")
    world.heal_until_released(NODE)
    assert not world.writes(d.SetDrainConditions)
    assert reported(world) == {}


def test_shadow_writes_no_conditions_and_withdraws_those_of_enforce() -> None:
    world = fleet(mode="Shadow")
    world.incident(NODE)
    world.run(120, step=5)
    assert not world.writes(d.SetDrainConditions)
    world = fleet()
    world.fail_until(NODE, "Draining")
    world.run(5)
    world.policy = policy(mode="Shadow")
    world.run(10)
    assert true(world) == set()
    assert all(not w.reports for w in world.writes(d.SetDrainConditions)[1:])


@pytest.mark.parametrize("how", ["the key is removed", "the session is deleted"])
@pytest.mark.parametrize("restarts", [False, True])
def test_conditions_end_with_what_asked_for_them(how: str, restarts: bool) -> None:
    world = fleet()
    world.fail_until(NODE, "Draining")
    world.run(5)
    assert true(world)
    if restarts:
        world.restart()
    if how == "the key is removed":
        world.policy = policy(nodeConditions=False)
    else:
        world.close_all(NODE)
        del world.quarantines[world.session(NODE).name]
    world.run(60)
    assert true(world) == set()


def test_conditions_of_others_stay_and_their_false_ones_are_taken_over() -> None:
    world = fleet()
    put(world, PLANNED, "True", "MaintenanceWindow")
    put(world, DRAINED, "False")
    world.fail_until(NODE, "Quarantined")
    world.run(5)
    assert true(world) == {PLANNED, DRAINED}
    world.heal_until_released(NODE)
    world.run(5)
    found = {c["type"]: c for c in world.nodes[NODE]["status"]["conditions"]}
    assert (found[PLANNED]["status"], found[PLANNED]["reason"]) == ("True", "MaintenanceWindow")
    assert found[DRAINED]["status"] == "False"


def test_a_planned_maintenance_of_others_is_a_cause_and_that_of_gpuward_is_none() -> None:
    cause = {"match": f"condition {PLANNED}=True", "reason": "Planned", "level": "Drain"}
    world = fleet(external=[{**cause, "for": "0s"}])
    put(world, PLANNED, "True", "MaintenanceWindow")
    world.run_until(NODE, "Quarantined")
    put(world, PLANNED, "False", "MaintenanceWindow")
    world.run_until(NODE, "Released")
    world.run(300, step=5)
    assert len(world.sessions(NODE)) == 1
    assert true(world) == set()


def test_a_refusal_is_not_repeated_at_once_and_stops_nothing() -> None:
    world = fleet()
    world.refusing[d.SetDrainConditions] = (403, "denied")
    world.fail_until(NODE, "Draining")
    world.run_until(NODE, "Quarantined")
    world.run(20)
    assert len(world.writes(d.SetDrainConditions)) == 1
    world.refusing.clear()
    world.run(60)
    assert true(world) == {PLANNED, DRAINED}


@pytest.mark.slow
def test_a_leader_that_dies_at_any_write_leaves_no_condition_behind() -> None:
    world = fleet()
    world.fail_until(NODE, "Draining")

    def live() -> None:
        world.run_until(NODE, "Quarantined")
        world.heal_until_released(NODE, step=2)
        world.run(10)

    for write, left in kill_points(world, live):
        left.restart()
        left.close_all(NODE)
        left.run(900, step=2)
        assert left.phase(NODE) == "Released", write
        assert true(left) == set(), write
