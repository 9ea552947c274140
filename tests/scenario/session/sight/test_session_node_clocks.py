"""Clocks of nodes that the API server's contradicts: an agent that writes is alive."""

from __future__ import annotations

import pytest

from tests.support.scenario.session_world import ROOMY, World, policy_of

NODE = "n0"


@pytest.mark.parametrize("behind_s", [0.0, 2400.0, -2400.0])
def test_a_fault_is_acted_on_whatever_the_clocks_of_the_nodes_say(behind_s: float) -> None:
    world = World(policy_of(budget=ROOMY))
    world.nodes_behind_s = behind_s
    world.add_nodes(5)
    world.run(600, step=10)
    world.incident(NODE)
    world.run(60, step=5)
    assert world.is_marked(NODE)
    assert world.phase(NODE) == "Quarantined"


@pytest.mark.parametrize("behind_s", [0.0, 2400.0, -2400.0])
def test_an_agent_that_stops_writing_is_silent_after_as_long(behind_s: float) -> None:
    world = World(policy_of(budget=ROOMY))
    world.nodes_behind_s = behind_s
    world.add_nodes(5)
    world.run(600, step=10)
    world.silence(NODE)
    world.run(780, step=10)
    world.incident(NODE)
    world.run(60, step=5)
    assert not world.quarantines
