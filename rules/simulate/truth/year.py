"""All that happens to a fleet in the time simulated, before anybody does anything about it.

Drawn once for each seed, so that every policy meets the same year.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rules.simulate.truth.dice import Dice
from rules.simulate.truth.generator import node_names, outages
from rules.simulate.truth.kinds import Kind, kind_of
from rules.simulate.truth.lemons import draw_lemons

DAY_S: Final = 86_400.0
GPUS: Final = 8
HANGS: Final = 1.0
"""Driver calls that hang without a fault, per 1,000 node-days (assumed)."""
AGENT_DEATHS: Final = 0.5
"""Agents that die or are evicted, per 1,000 node-days (assumed)."""
HANG_S: Final = (60.0, 7200.0)
DEATH_S: Final = (60.0, 3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plants:
    """Faults planted by hand: what a policy does about a detector or a driver that is wrong."""

    false_alarms: float = 0.0
    """Per 1,000 node-days: a healthy GPU's log says that its memory failed."""
    bad_driver_day: float | None = None
    """On this day a new driver reaches every node within `ROLLOUT_S`, and its firmware hangs."""
    lemons: float = 0.0
    """Share of nodes with a part that fails again and again."""


NO_PLANTS: Final = Plants()
ROLLOUT_S: Final = 6 * 3600.0
ROLLBACK_H: Final = 24.0
"""How long people take from its first node on to find out and roll it back everywhere (assumed).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault as it will happen. `start` in seconds since the beginning of the run."""

    number: int
    node: int
    klass: str
    kind: Kind
    gpu: int
    start: float
    hours: float
    """From when the node is handed to people until it is back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blindness:
    """A time in which nobody sees the GPUs of a node, though nothing is wrong with them."""

    node: int
    start: float
    seconds: float
    agent: bool
    """The agent is gone; else the driver's calls hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """Everything that is to happen, by its start."""

    nodes: tuple[str, ...]
    days: float
    faults: tuple[Fault, ...]
    blindness: tuple[Blindness, ...] = field(default=())
    lemons: frozenset[str] = frozenset()
    """Nodes with a bad part, where some were planted."""


def draw_year(dice: Dice, nodes: int, days: float, plants: Plants = NO_PLANTS) -> Year:
    """Throw the dice for a fleet."""
    names = node_names(nodes)
    numbers = {name: number for number, name in enumerate(names)}
    drawn: list[tuple[float, int, str, Kind, int, float]] = []
    last: dict[tuple[str, str], int] = {}
    for one in outages(dice, names, days):
        kind, gpu = kind_of(dice, one.klass), dice.randrange(GPUS)
        if one.again:
            gpu = last.get((one.node, one.klass), gpu)
        last[one.node, one.klass] = gpu
        drawn.append((one.start * DAY_S, numbers[one.node], one.klass, kind, gpu, one.hours))
    drawn += _planted(dice, nodes, days, plants)
    bad: frozenset[int] = frozenset()
    if plants.lemons:
        bad, lemons = draw_lemons(dice, nodes, plants.lemons, days, GPUS)
        drawn += [
            (at * DAY_S, node, "GPU", kind, gpu, hours) for at, node, kind, gpu, hours in lemons
        ]
    drawn.sort(key=lambda one: (one[0], one[1]))
    faults = tuple(
        Fault(number=number, start=start, node=node, klass=klass, kind=kind, gpu=gpu, hours=hours)
        for number, (start, node, klass, kind, gpu, hours) in enumerate(drawn)
    )
    blindness = [
        *_blind(dice, nodes, days, HANGS, HANG_S, agent=False),
        *_blind(dice, nodes, days, AGENT_DEATHS, DEATH_S, agent=True),
    ]
    blindness.sort(key=lambda one: one.start)
    return Year(
        nodes=names,
        days=days,
        faults=faults,
        blindness=tuple(blindness),
        lemons=frozenset(names[node] for node in bad),
    )


def _planted(
    dice: Dice, nodes: int, days: float, plants: Plants
) -> list[tuple[float, int, str, Kind, int, float]]:
    found = []
    per_s = plants.false_alarms * nodes / 1000.0 / DAY_S
    at = dice.expovariate(per_s) if per_s else float("inf")
    while at < days * DAY_S:
        found.append(
            (at, dice.randrange(nodes), "False alarm", Kind.FALSE_ALARM, dice.randrange(GPUS), 0.0)
        )
        at += dice.expovariate(per_s)
    if plants.bad_driver_day is not None:
        begins = plants.bad_driver_day * DAY_S
        for node in range(nodes):
            late_s = dice.random() * ROLLOUT_S
            hours = ROLLBACK_H - late_s / 3600.0
            gpu = dice.randrange(GPUS)
            found.append((begins + late_s, node, "Driver", Kind.BAD_DRIVER, gpu, hours))
    return found


def _blind(
    dice: Dice,
    nodes: int,
    days: float,
    rate: float,
    lasts: tuple[float, float],
    *,
    agent: bool,
) -> list[Blindness]:
    per_s = rate * nodes / 1000.0 / DAY_S
    found = []
    at = dice.expovariate(per_s)
    while at < days * DAY_S:
        seconds = lasts[0] + dice.random() * (lasts[1] - lasts[0])
        found.append(Blindness(node=dice.randrange(nodes), start=at, seconds=seconds, agent=agent))
        at += dice.expovariate(per_s)
    return found
