"""Fleets brought into a given phase, for the rows of the observation table."""

from __future__ import annotations

from rules.api import writes as d
from tests.support.scenario.session_world import ROOMY, World, policy_of

NODE = "n0"
OPEN = ["Pending", "Marked", "Draining", "Quarantined", "Validating"]
MARKED = OPEN[1:]
NO_ROOM = {**ROOMY, "maxUnavailable": {"percent": 0, "atMost": 0}}


def at(phase: str, **sections: object) -> World:
    """A fleet of five in which `n0` has arrived in `phase` for one incident."""
    budget = NO_ROOM if phase == "Pending" else ROOMY
    world = World(policy_of(**{"budget": budget, **sections}))
    world.add_nodes(5)
    if phase == "Draining":
        world.add_pod("kept", NODE)
        world.add_pdb("keep", minAvailable=1)
    world.incident(NODE, level="Cordon" if phase == "Marked" else "Drain")
    world.run_until(NODE, phase if phase != "Validating" else "Quarantined", limit=60)
    if phase == "Validating":
        world.close_all(NODE)
        world.run_until(NODE, phase, limit=5)
    world.run(3)
    assert world.phase(NODE) == phase
    return world


def evictions_after(world: World, at: float) -> int:
    return sum(1 for t, w, _, _ in world.sent if t > at and isinstance(w, d.EvictPod))
