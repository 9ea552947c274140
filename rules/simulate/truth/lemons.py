"""Bad parts among sound ones: a node whose one GPU fails again and again, whatever is repaired.

No trace says which nodes are lemons, so they are planted: so many of all nodes, each at 20 to 100
times the hazard of an average one (the span over which operators call a node bad).
"""

from __future__ import annotations

from typing import Final

from rules.simulate.truth.classes import RATES
from rules.simulate.truth.dice import Dice
from rules.simulate.truth.generator import repair_hours
from rules.simulate.truth.kinds import Kind, kind_of

GPU_FAULTS_PER_DAY: Final = 1.132 / 1000
"""Faults of the GPU class per node-day in the whole trace."""
TIMES: Final = (20.0, 100.0)
_GPU: Final = next(klass for klass in RATES.classes if klass.name == "GPU")

LemonFault = tuple[float, int, Kind, int, float]
"""Start in days, node, kind, GPU and hours out."""


def draw_lemons(
    dice: Dice, nodes: int, share: float, days: float, gpus: int
) -> tuple[frozenset[int], list[LemonFault]]:
    """Which nodes have a bad part, and its faults; one begins when the one before is over."""
    bad: list[int] = []
    while len(bad) < round(nodes * share):
        node = dice.randrange(nodes)
        if node not in bad:
            bad.append(node)
    found: list[LemonFault] = []
    for node in sorted(bad):
        times = TIMES[0] + dice.random() * (TIMES[1] - TIMES[0])
        gpu, at = dice.randrange(gpus), 0.0
        while (at := at + dice.expovariate(GPU_FAULTS_PER_DAY * times)) < days:
            hours = repair_hours(dice, _GPU)
            found.append((at, node, kind_of(dice, _GPU.name), gpu, hours))
            at += hours / 24.0
    return frozenset(bad), found
