"""Tests under load whose leader dies, whose record is lost, or that are taken off."""

import msgspec
import pytest

from rules.api import writes as d
from rules.api.repair_writes import CreateTestJob, DeleteTestJob
from rules.policy.section import Seconds
from rules.session.status import condition
from tests.support.scenario.repair_world import NODE, ValidationWorld
from tests.support.scenario.server.apiserver import CrashError
from tests.support.scenario.session_world import kill_points

ENDS = {
    ("passes",): ("Released", [("Passed", "pass")], 1),
    ("fails", "passes"): ("Quarantined", [("Failed", "fail")], 1),
    ("vanishes", "passes"): ("Released", [("Unknown", "unknown"), ("Passed", "pass")], 2),
}
"""What the tests become, without a ladder: phase, tests and Jobs made in the end."""


STEP_S, LIMIT_S = 10, 900


def live_on(world: ValidationWorld, phase: str, tests: int) -> None:
    """The rest of the node's session."""
    incidents = world.healths[NODE]["status"]["incidents"]
    for _ in range(0, LIMIT_S, STEP_S):
        world.cycle()
        if world.phase(NODE) == "Quarantined" and incidents[0]["active"]:
            world.close_all(NODE)
        healed = not incidents[0]["active"]
        if healed and world.phase(NODE) == phase and len(world.tests_of()) == tests:
            return
        world.now += STEP_S
        world.run_controllers()
    raise AssertionError(world.message(NODE))


@pytest.mark.parametrize("becomes", ENDS, ids=" then ".join)
def test_killed_before_each_write_the_test_is_made_once_and_ends_the_same(
    becomes: tuple[str, ...],
) -> None:
    phase, tests, made = ENDS[becomes]
    plain = ValidationWorld(*becomes, nodes=2, repair={"mode": "Off"})
    release = msgspec.structs.replace(plain.policy.release, healthy_for_s=Seconds(20))
    plain.policy = msgspec.structs.replace(plain.policy, release=release)
    plain.incident(NODE)
    died = kill_points(plain, lambda: live_on(plain, phase, len(tests)))
    assert len(died) > 9
    for before, world in died:
        live_on(world, phase, len(tests))
        assert world.tests_of() == tests, before
        jobs = [
            write.name
            for _, write, _, answer in world.sent
            if isinstance(write, CreateTestJob) and answer == 201
        ]
        assert len(jobs) == len(set(jobs)) == made, before
        assert len(world.sessions(NODE)) == 1


HOUR_S = 3600.0
AGAIN_S = 3600.0
"""After so long it is tried again."""
AT_THE_PLAN = ["", ".provider", ".template", ".startedAt", ".bootID", ".state"]


@pytest.mark.parametrize("field", AT_THE_PLAN)
def test_no_job_is_created_if_the_crd_drops_its_record(field: str) -> None:
    world = ValidationWorld("passes")
    world.drops = {f"validation{field}"}
    world.fall_ill_and_heal()
    before = len(world.writes(d.WriteSessionStatus))
    world.run(HOUR_S - 300)
    assert not world.writes(CreateTestJob)
    assert world.is_quarantined(NODE), "not released untested"
    text = condition(world.session(NODE).status, "Blocked")
    assert text is not None
    assert (text.status, text.reason) == ("True", "SessionRefused")
    assert f"drops status.validation{field}" in text.message
    assert "kubectl apply -k daemonset/crds" in world.message(NODE)
    assert len(world.writes(d.WriteSessionStatus)) - before <= 24
    world.drops = set()
    world.run(AGAIN_S + 600)
    assert world.tests_of()[-1] == ("Passed", "pass")
    world.run_until(NODE, "Released")


@pytest.mark.parametrize("field", AT_THE_PLAN)
def test_a_new_leader_makes_none_either(field: str) -> None:
    world = ValidationWorld("passes")
    world.drops = {f"validation{field}"}
    world.fall_ill_and_heal()
    for _ in range(4):
        world.run(300)
        world.restart()
    world.run(300)
    assert not world.writes(CreateTestJob)
    assert world.is_quarantined(NODE)


TRIED_AGAIN_S = 35
"""Whatever fails is tried again after 30 s at the latest."""


def under_test() -> ValidationWorld:
    world = ValidationWorld("hangs")
    world.fall_ill_and_heal()
    world.run(60)
    assert world.jobs
    return world


def release(world: ValidationWorld) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ada"}
    world.touch(session)


@pytest.mark.parametrize("code", [429, 500, 403])
def test_a_node_is_not_released_while_its_test_cannot_be_ended(code: int) -> None:
    world = under_test()
    world.refusing[DeleteTestJob] = (code, "not now")
    release(world)
    world.run(120)
    assert world.is_quarantined(NODE)
    assert world.tests_of() == [("Asked", "")]
    del world.refusing[DeleteTestJob]
    world.run(TRIED_AGAIN_S)
    assert world.phase(NODE) == "Released"
    assert world.jobs == {}
    assert not world.is_quarantined(NODE)


def test_a_missing_right_to_delete_holds_no_release_beyond_the_tests_own_deadline() -> None:
    world = under_test()
    world.refusing[DeleteTestJob] = (403, "jobs.batch is forbidden")
    release(world)
    world.run(1800, step=30)
    world.run(120)
    assert world.phase(NODE) == "Released"
    assert not world.is_quarantined(NODE)


@pytest.mark.parametrize("ends", ["an operator releases", "a cause returns"])
def test_killed_before_each_write_no_test_is_left_behind(ends: str) -> None:
    for number in range(20):
        world = under_test()
        if ends == "an operator releases":
            release(world)
        else:
            world.incident(NODE)
        world.crash_after = number
        try:
            world.run(30)
        except CrashError:
            if world.tests_of()[0] != ("Asked", "") or not world.is_quarantined(NODE):
                assert world.jobs == {}, number
            world.restart()
            world.run(30)
        else:
            assert number > 2, "it has more writes than that"
            return
        assert world.jobs == {}, number
        assert world.tests_of() == [("Withdrawn", "")], number
    raise AssertionError("it never lived to the end")
