"""A definition of GPUQuarantine that is older than the remediator keeps no record of a test."""

from __future__ import annotations

import pytest

from rules.api import writes as d
from rules.api.repair_writes import CreateTestJob
from rules.session.status import condition
from tests.support.scenario.repair_world import NODE, ValidationWorld

HOUR_S = 3600.0
AGAIN_S = 3600.0
"""After so long it is tried again."""
AT_THE_PLAN = ["", ".provider", ".template", ".startedAt", ".bootID", ".state"]


@pytest.mark.parametrize("field", AT_THE_PLAN)
def test_no_job_is_made_for_a_test_whose_record_is_not_kept(field: str) -> None:
    world = ValidationWorld("passes")
    world.drops = {f"validation{field}"}
    world.fall_ill_and_heal()
    before = len(world.writes(d.WriteSessionStatus))
    world.run(HOUR_S - 300)
    assert not world.writes(CreateTestJob)
    assert world.is_marked(NODE), "not released untested"
    said = condition(world.session(NODE).status, "Blocked")
    assert said is not None
    assert (said.status, said.reason) == ("True", "SessionRefused")
    assert f"does not keep status.validation{field}" in said.message
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
    assert world.is_marked(NODE)
