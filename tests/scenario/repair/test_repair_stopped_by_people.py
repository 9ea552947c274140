"""Pause, hold, opt-out and the end of a session, at every point of a ladder (issue 13).

The points are the writes of a ladder that climbs in vain: its leader dies at each of them in turn,
somebody speaks, and the next leader has to heed it before the next step. Whoever forbids leaves
what stands; whoever ends the session gets the node back with nothing asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from rules.api import writes as d
from tests.support.scenario.repair_world import NODE, RepairWorld
from tests.support.scenario.session_world import deaths

STEPS = {
    step: {"adapter": "NodeConditions", "timeout": "5m"} for step in ("RestartNode", "ReplaceNode")
}
KINDS = ("GPUNeedsReset", "GPUNeedsRestart", "GPUNeedsReplace")
LADDER_S = 840.0
"""Both steps are asked for and fail within it."""


def ladder() -> RepairWorld:
    world = RepairWorld(nodes=2, does="hangs", steps=STEPS)
    world.incident(NODE)
    return world


def _hold(world: RepairWorld) -> None:
    world.quarantines[world.session(NODE).name]["spec"]["hold"] = True
    world.touch(world.quarantines[world.session(NODE).name])


def _opt_out(world: RepairWorld) -> None:
    world.nodes[NODE]["metadata"]["labels"]["gpuward.io/opt-out"] = "true"
    world.touch(world.nodes[NODE])


def _release(world: RepairWorld) -> None:
    session = world.quarantines[world.session(NODE).name]
    session["spec"]["release"] = {"by": "ada", "reason": "mine"}
    world.touch(session)


def _delete(world: RepairWorld) -> None:
    del world.quarantines[world.session(NODE).name]


FORBIDS: dict[str, Callable[[RepairWorld], None]] = {
    "pause": lambda world: world.pause(),
    "pause of this node": lambda world: world.pause(nodes=[NODE]),
    "hold": _hold,
    "hold on the node": lambda world: world.annotate(NODE, "gpuward.io/hold", "look at it"),
    "opt-out": _opt_out,
    "another owner": lambda world: world.taint(NODE, "ToBeDeletedByClusterAutoscaler"),
}
ENDS: dict[str, Callable[[RepairWorld], None]] = {
    "uncordoned": lambda world: world.cordon(NODE, on=False),
    "untainted": lambda world: world.untaint(NODE, "gpuward.io/quarantine"),
    "released": _release,
    "deleted": _delete,
}


@functools.cache
def points() -> tuple[RepairWorld, ...]:
    """The ladder as a leader leaves it that dies before a write, from the first that has a step
    on record.
    """
    world = ladder()
    died = deaths(world, lambda: world.run(LADDER_S, step=30))
    assert [step for step, _ in world.steps_of()] == ["RestartNode", "ReplaceNode"]
    recorded = [
        isinstance(write, d.WriteSessionStatus) and bool(write.status.repair) for write, _ in died
    ]
    return tuple(left for _, left in died[recorded.index(True) :])


@pytest.mark.parametrize("word", FORBIDS)
def test_whoever_forbids_is_heeded_before_the_next_step_at_every_point(
    word: str,
) -> None:
    assert len(points()) > 6
    for point, left in enumerate(points()):
        world = left.fork()
        asked = len(world.asked())
        FORBIDS[word](world)
        world.run(LADDER_S, step=60)
        assert len(world.asked()) == asked, point
        assert world.is_marked(NODE), point


@pytest.mark.parametrize("word", ENDS)
def test_whoever_ends_it_leaves_nothing_asked_for_at_every_point(word: str) -> None:
    for point, left in enumerate(points()):
        world = left.fork()
        asked = len(world.asked())
        ENDS[word](world)
        if word == "deleted":
            world.close_all(NODE)
        world.run(120, step=30)
        assert len(world.asked()) == asked, point
        assert not any(world.asks(NODE, kind) for kind in KINDS), point
        assert not world.is_marked(NODE), point
        world.restart()
        world.run(LADDER_S, step=60)
        assert len(world.asked()) == asked, point
