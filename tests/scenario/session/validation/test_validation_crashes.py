"""A remediator that dies before each of its writes: the test is made once, and only a pass
releases.
"""

from __future__ import annotations

import msgspec
import pytest

from rules.api.repair_writes import CreateTestJob
from rules.policy.section import Seconds
from tests.support.scenario.repair_world import NODE, ValidationWorld
from tests.support.scenario.session_world import deaths

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
        world._controllers()
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
    died = deaths(plain, lambda: live_on(plain, phase, len(tests)))
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
