"""One simulated time of one fleet under one policy: all that a run depends on, and its score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rules.policy.policy import Policy
from rules.simulate.cluster.gpuward import Gpuward
from rules.simulate.cluster.sim_node import Controller
from rules.simulate.cluster.world import World
from rules.simulate.peers.policies import PEERS
from rules.simulate.score import Score
from rules.simulate.truth.dice import Dice
from rules.simulate.truth.year import NO_PLANTS, Plants, draw_year


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is played."""

    name: str
    """How the policy is called: a peer's name, or ours."""
    nodes: int
    days: float
    seed: int
    policy: Policy | None = None
    """Ours, where it is not a peer's."""
    plants: Plants = NO_PLANTS


def play(run: Run, dice: Callable[[str], Dice]) -> Score:
    """Play it. `dice` makes independent ones by a word: the year is the same for every policy,
    what jobs do depends on what was done to them.
    """
    year = draw_year(dice(f"year {run.seed}"), run.nodes, run.days, run.plants)
    controller: Controller[World] = (
        Gpuward(run.policy) if run.policy is not None else PEERS[run.name]()
    )
    return World(year, controller, dice(f"work {run.seed}")).run()
