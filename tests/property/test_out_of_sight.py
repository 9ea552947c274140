"""Labels, selections, watches and people in any order: no mark is forgotten, and nobody is evicted
from a node that the policy does not select.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rules.api import writes as d
from rules.api.names import TAINT_QUARANTINE
from rules.session.observation import is_open, selects_node
from tests.support.scenario.fleets import NODE
from tests.support.scenario.session_world import ROOMY, World, policy_of
from tests.support.scenario.sight import (
    deselect,
    leave,
    recreate,
    unlabel,
    unlabel_and_leave,
    watches_forgotten,
)

ACTS = 25
SELECTORS = ("pool=gpu", "pool=gpu,pool", "pool in (gpu,other)")


def play(seed: int) -> None:
    dice = random.Random(seed)
    selector = dice.choice(SELECTORS)
    world = World(policy_of(budget=ROOMY, nodeSelector=selector))
    world.add_nodes(5, pool="gpu")
    world.add_pdb("one", maxUnavailable=1)

    def falls_ill() -> None:
        for number in range(3):
            world.add_pod(f"slow-{world.version}-{number}", NODE, grace=120)
        world.incident(NODE)

    def comes_back() -> None:
        world.label(NODE, pool="gpu", spare=None)
        world.policy = policy_of(budget=ROOMY, nodeSelector=selector)

    def person_uncordons() -> None:
        if world.is_marked(NODE):
            world.cordon(NODE, on=False)

    def person_untaints() -> None:
        if world.is_marked(NODE):
            world.untaint(NODE, TAINT_QUARANTINE)

    def person_deletes() -> None:
        if any(map(is_open, world.sessions(NODE))):
            del world.quarantines[world.session(NODE).name]

    here = (leave, unlabel, unlabel_and_leave, deselect)
    mine = (falls_ill, comes_back, person_uncordons, person_untaints, person_deletes)
    acts: list[Callable[[], object]] = [*mine, *(lambda act=act: act(world) for act in here)]
    acts += [falls_ill, comes_back, lambda: world.close_all(NODE), lambda: world.restart()]
    acts.append(lambda: recreate(world) if dice.random() < 0.3 else None)
    names: list[int] = []
    for _ in range(ACTS):
        act = dice.randrange(len(acts))
        names.append(act)
        if dice.random() < 0.3:
            with watches_forgotten(world):
                acts[act]()
        else:
            acts[act]()
        world.run(3)
        before = len(world.writes(d.EvictPod))
        world.run(30, step=10)
        if not selects_node(world.policy, world.node(NODE)):
            assert len(world.writes(d.EvictPod)) == before, (seed, names)
    world.close_all(NODE)
    world.run(1500, step=30)
    assert not world.is_marked(NODE), (seed, names)
    assert not world.unschedulable(NODE), (seed, names)
    assert not any(map(is_open, world.sessions(NODE))), (seed, names, world.message(NODE))


@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 60))],
)
def test_no_mark_is_forgotten_whatever_is_out_of_sight(seed: int) -> None:
    play(seed)
