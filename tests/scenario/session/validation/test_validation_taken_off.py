"""A test under load is off the node before anything forgets it: none runs beside real pods."""

from __future__ import annotations

import pytest

from rules.api.repair_writes import DeleteTestJob
from tests.support.scenario.repair_world import NODE, ValidationWorld
from tests.support.scenario.server.apiserver import CrashError

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
    assert world.is_marked(NODE)
    assert world.tests_of() == [("Asked", "")]
    del world.refusing[DeleteTestJob]
    world.run(TRIED_AGAIN_S)
    assert world.phase(NODE) == "Released"
    assert world.jobs == {}
    assert not world.is_marked(NODE)


def test_a_missing_right_to_delete_holds_no_release_beyond_the_tests_own_deadline() -> None:
    world = under_test()
    world.refusing[DeleteTestJob] = (403, "jobs.batch is forbidden")
    release(world)
    world.run(1800, step=30)
    world.run(120)
    assert world.phase(NODE) == "Released"
    assert not world.is_marked(NODE)


@pytest.mark.parametrize("ends", ["a person releases", "a cause returns"])
def test_killed_before_each_write_no_test_is_left_behind(ends: str) -> None:
    for number in range(20):
        world = under_test()
        if ends == "a person releases":
            release(world)
        else:
            world.incident(NODE)
        world.crash_after = number
        try:
            world.run(30)
        except CrashError:
            if world.tests_of()[0] != ("Asked", "") or not world.is_marked(NODE):
                assert world.jobs == {}, number
            world.restart()
            world.run(30)
        else:
            assert number > 2, "it has more writes than that"
            return
        assert world.jobs == {}, number
        assert world.tests_of() == [("Withdrawn", "")], number
    raise AssertionError("it never lived to the end")
