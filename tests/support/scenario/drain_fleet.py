"""A small fleet under drain and what a test asks about it."""

from __future__ import annotations

from typing import Any

from rules.api import writes as d
from tests.support.scenario.session_world import ROOMY, World, policy_of

NODE = "n0"


def fleet(**sections: Any) -> World:
    world = World(policy_of(**{"budget": ROOMY, **sections}))
    world.add_nodes(4)
    return world


def evicted(world: World) -> list[str]:
    return [w.name for w in world.writes(d.EvictPod)]


def blocked(world: World) -> list[tuple[str, bool]]:
    drain = world.session(NODE).status.drain
    assert drain is not None
    return [(block.pdb or block.why, block.permanent) for block in drain.blocked]
