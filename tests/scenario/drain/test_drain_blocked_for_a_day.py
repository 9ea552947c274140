"""A budget that blocks a drain for a day: what is said at each stage, how little is written, and
how the drain goes on once the budget is gone.
"""

from __future__ import annotations

from typing import Any

import pytest

from rules.api import writes as d
from rules.session.status import condition
from tests.support.scenario.session_world import ROOMY, World, policy_of

NODE = "n0"
HOUR_S = 3600.0
FATAL_TIMEOUT_S = 1800.0
OVER = "the drain's time is over"


def blocked_world(limits: dict[str, Any]) -> World:
    """A fault on a node with one of two pods of a workload whose budget lets neither go."""
    world = World(policy_of(budget=ROOMY))
    world.add_nodes(5)
    world.add_pod("w-1", NODE)
    world.add_pod("w-2", "n1")
    world.add_pdb("keep", **limits)
    world.run(5)
    world.incident(NODE)
    return world


def said(world: World) -> tuple[str, str, bool, bool]:
    """Phase, what blocks, whether a person must act, whether the drain's time is over."""
    status = world.session(NODE).status
    blocked, needs = condition(status, "Blocked"), condition(status, "NeedsHuman")
    return (
        status.phase,
        blocked.reason if blocked is not None and blocked.status == "True" else "",
        needs is not None and needs.status == "True",
        OVER in status.message,
    )


@pytest.mark.parametrize("limits", [{"minAvailable": 2}, {"maxUnavailable": 0}], ids=str)
def test_a_budget_that_never_allows_is_said_at_once_and_quietly_for_a_day(
    limits: dict[str, int],
) -> None:
    world = blocked_world(limits)
    world.run(FATAL_TIMEOUT_S - 60, step=30)
    assert said(world) == ("Draining", "BudgetNeverAllows", True, False)
    world.run(120, step=30)
    assert said(world) == ("Draining", "BudgetNeverAllows", True, True)
    world.run(24 * HOUR_S, step=60)
    assert said(world) == ("Draining", "BudgetNeverAllows", True, True)
    assert "relax the PDB" in world.message(NODE)
    assert world.writes(d.EvictPod) == []
    told = [event.reason for event in world.writes(d.EmitEvent)]
    assert told == ["QuarantineMarked", "QuarantineDraining", "QuarantineNeedsHuman"]
    assert len(world.writes(d.WriteSessionStatus)) <= 6, "a day of waiting is no day of writing"

    del world.pdbs["team-a", "keep"]
    world.run_until(NODE, "Quarantined", limit=120)
    assert said(world) == ("Quarantined", "", False, False)
    assert len(world.writes(d.EvictPod)) == 1
    assert world.phases(NODE) == ["Marked", "Draining", "Quarantined"]


def test_a_pause_hides_no_work_of_an_operator() -> None:
    world = blocked_world({"minAvailable": 2})
    world.run(60, step=5)
    needed = condition(world.session(NODE).status, "NeedsHuman")
    assert needed is not None
    world.pause()
    world.run(600, step=10)
    assert said(world) == ("Draining", "Paused", True, False)
    assert condition(world.session(NODE).status, "NeedsHuman") == needed
    world.pauses.clear()
    world.pdbs.clear()
    world.run_until(NODE, "Quarantined", limit=600)
    assert not world.condition(NODE, "NeedsHuman")
