"""A definition of GPUQuarantine that is older than the remediator keeps no record of a step."""

from __future__ import annotations

from typing import Any

import pytest

from rules.api import writes as d
from rules.session.status import condition
from tests.support.scenario.repair_world import NODE, RepairWorld

HOUR_S = 3600.0
AGAIN_S = 3600.0
"""After so long it is tried again."""


AT_THE_PLAN = (
    "repair",
    "repair.action",
    "repair.adapter",
    "repair.before",
    "repair.before.bootID",
    "repair.before.nodeUID",
    "repair.object",
    "repair.startedAt",
    "repair.state",
)
"""What an entry is written with before anybody is asked."""


def blocked(world: RepairWorld) -> str:
    """The message of condition Blocked; "" while it is not True."""
    said = condition(world.session(NODE).status, "Blocked")
    return said.message if said is not None and said.status == "True" else ""


def session_writes(world: RepairWorld) -> int:
    return len(world.writes(d.WriteSessionStatus))


@pytest.mark.parametrize("field", AT_THE_PLAN)
def test_nobody_is_asked_for_a_step_whose_record_is_not_kept(field: str) -> None:
    world = RepairWorld(does="hangs")
    world.drops = {field}
    world.incident(NODE)
    world.run(2.5 * HOUR_S, step=10)
    assert not world.asked()
    assert world.phase(NODE) == "Quarantined"
    assert f"does not keep status.{field}" in blocked(world)
    assert "kubectl apply -k daemonset/crds" in world.message(NODE)
    needs = condition(world.session(NODE).status, "NeedsHuman")
    assert needs is not None
    assert needs.status == "True"
    assert session_writes(world) <= 20 + 8 * 2, "one try in an hour"
    told = [e for e in world.writes(d.EmitEvent) if "does not keep" in e.message]
    assert len(told) <= 2 + 2 * 3, "said once, and again by the session of each try"


def test_the_step_follows_once_the_definition_is_applied() -> None:
    world = RepairWorld()
    world.drops = {"repair.adapter", "repair.startedAt"}
    world.incident(NODE)
    world.run(HOUR_S, step=10)
    assert not world.asked()
    world.drops = set()
    world.run(AGAIN_S + 120, step=10)
    assert world.steps_of() == [("RestartNode", "Proven")]
    assert not blocked(world)
    world.run_until(NODE, "Released")


@pytest.mark.parametrize("field", ["repair", "repair.adapter", "repair.startedAt", "repair.state"])
def test_a_new_leader_asks_nobody_either(field: str) -> None:
    world = RepairWorld(does="hangs")
    world.drops = {field}
    world.incident(NODE)
    for _ in range(4):
        world.run(300, step=10)
        world.restart()
    world.run(300, step=10)
    assert not world.asked()
    assert f"does not keep status.{field}" in blocked(world)


def test_a_step_whose_beginning_is_lost_later_times_out_by_when_it_was_asked_for() -> None:
    world = RepairWorld(does="hangs")
    world.incident(NODE)
    world.run_until(NODE, "Repairing")
    world.run(60)
    assert len(world.asked()) == 1
    world.drops = {"repair.startedAt"}
    stored: dict[str, Any] = world.quarantines[world.session(NODE).name]
    del stored["status"]["repair"][0]["startedAt"]
    world.touch(stored)
    before = session_writes(world)
    world.run(2 * HOUR_S, step=10)
    assert world.steps_of()[0] == ("RestartNode", "Failed")
    assert session_writes(world) - before <= 30
