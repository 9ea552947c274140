"""A remediator that dies before each of its writes: the test is made once, and only a pass
releases.
"""

from __future__ import annotations

import msgspec
import pytest

from rules.api.repair.writes import CreateTestJob
from rules.policy.durations import Seconds
from tests.support.scenario.repair_world import NODE
from tests.support.scenario.session_apiserver import CrashError
from tests.support.scenario.validation_world import ValidationWorld

ENDS = {
    ("passes",): ("Released", [("Passed", "pass")], 1),
    ("fails", "passes"): ("Quarantined", [("Failed", "fail")], 1),
    ("vanishes", "passes"): ("Released", [("Unknown", "unknown"), ("Passed", "pass")], 2),
}
"""What the tests become, without a ladder: phase, tests and Jobs made in the end."""


STEP_S, LIMIT_S = 10, 900


def lived_through(world: ValidationWorld, phase: str, tests: int) -> int:
    """The node's whole session; how often the process died."""
    died, healed = 0, False
    world.incident(NODE)
    for _ in range(0, LIMIT_S, STEP_S):
        try:
            world.cycle()
        except CrashError:
            died += 1
            world.restart()
        if world.phase(NODE) == "Quarantined" and not healed:
            healed = True
            world.close_all(NODE)
        if healed and world.phase(NODE) == phase and len(world.tests_of()) == tests:
            return died
        world.now += STEP_S
        world._controllers()
    raise AssertionError(world.message(NODE))


@pytest.mark.parametrize("becomes", ENDS, ids=" then ".join)
def test_issue13_03_killed_before_each_write_the_test_is_made_once_and_ends_the_same(
    becomes: tuple[str, ...],
) -> None:
    phase, tests, made = ENDS[becomes]
    for number in range(40):
        world = ValidationWorld(*becomes, nodes=2, repair={"mode": "Off"})
        release = msgspec.structs.replace(world.policy.release, healthy_for_s=Seconds(20))
        world.policy = msgspec.structs.replace(world.policy, release=release)
        world.crash_after = number
        died = lived_through(world, phase, len(tests))
        assert world.tests_of() == tests, number
        jobs = [
            write.name
            for _, write, _, answer in world.sent
            if isinstance(write, CreateTestJob) and answer == 201
        ]
        assert len(jobs) == len(set(jobs)) == made, number
        assert len(world.sessions(NODE)) == 1
        if not died:
            assert number > 12, "a session has more writes than that"
            return
    raise AssertionError("it never lived to the end")
