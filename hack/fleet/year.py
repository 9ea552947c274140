"""All faults of a fleet in the time played, drawn before anything is done about them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from hack.fleet.generator import node_names, outages
from hack.fleet.kinds import Kind, kind_of
from hack.fleet.machine import GPUS

DAY_S: Final = 86_400.0
ROLLOUT_S: Final = 6 * 3600.0
"""A bad driver reaches every node within this time (assumed)."""
ROLLBACK_H: Final = 24.0
"""How long it takes to notice and to roll it back everywhere (assumed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault as it will happen. `start` in seconds since the beginning of the run."""

    node: int
    kind: Kind
    gpu: int
    start: float
    hours: float
    """From the moment the node is handed over until it is repaired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plants:
    """Faults planted by hand: a detector that is wrong, a driver that breaks every node."""

    false_alarms: float = 0.0
    """Per 1,000 node-days: a healthy GPU's log says that its memory failed."""
    bad_driver_day: float | None = None


def draw_year(
    dice: random.Random, nodes: int, days: float, plants: Plants | None = None
) -> tuple[Fault, ...]:
    """The faults of a fleet, by their start."""
    plants = plants or Plants()
    names = node_names(nodes)
    numbers = {name: number for number, name in enumerate(names)}
    found = [
        Fault(
            node=numbers[one.node],
            kind=kind_of(dice, one.klass),
            gpu=dice.randrange(GPUS),
            start=one.start * DAY_S,
            hours=one.hours,
        )
        for one in outages(dice, names, days)
    ]
    alarms = round(plants.false_alarms * nodes * days / 1000.0)
    found += [
        _planted(dice, dice.randrange(nodes), Kind.FALSE_ALARM, dice.random() * days * DAY_S, 0.0)
        for _ in range(alarms)
    ]
    if plants.bad_driver_day is not None:
        begins = plants.bad_driver_day * DAY_S
        for node in range(nodes):
            late_s = dice.random() * ROLLOUT_S
            hours = ROLLBACK_H - late_s / 3600.0
            found.append(_planted(dice, node, Kind.BAD_DRIVER, begins + late_s, hours))
    return tuple(sorted(found, key=lambda one: (one.start, one.node)))


def _planted(dice: random.Random, node: int, kind: Kind, start: float, hours: float) -> Fault:
    return Fault(node=node, kind=kind, gpu=dice.randrange(GPUS), start=start, hours=hours)
