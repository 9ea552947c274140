"""Which node breaks when and for how long: the ground truth of a simulated fleet.

Each node has a frailty of its own (Gamma) that multiplies all rates; faults come alone, in batches
of one common cause, and after other faults, the sooner the shorter the repair was. A node has one
fault at a time, as in the trace: what would hit a node that is out already is not a fault.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from hack.fleet.rates import RATES, FaultClass, FleetRates


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A fault of one node. Times in days since the beginning."""

    node: str
    klass: str
    """The class, in the trace's words (`GPU`, `Power Supply`)."""
    start: float
    end: float

    @property
    def hours(self) -> float:
        """How long the node was out."""
        return (self.end - self.start) * 24.0


@dataclass(frozen=True, slots=True, order=True)
class _Due:
    """A fault that is to come, in the order of time."""

    at: float
    node: int
    klass: int
    hours: float | None = None
    """How long it takes, where a common cause is repaired for all at once."""


def node_names(count: int) -> tuple[str, ...]:
    """How the nodes of a simulated fleet are called."""
    return tuple(f"node-{number:04d}" for number in range(count))


def outages(
    dice: random.Random, nodes: Sequence[str], days: float, rates: FleetRates = RATES
) -> tuple[Outage, ...]:
    """The faults of a fleet, by their start. Those that are not over by the end go on past it."""
    frailties = [dice.gammavariate(rates.frailty, 1.0 / rates.frailty) for _ in nodes]
    waiting = [*_singles(dice, frailties, days, rates), *_batches(dice, frailties, days, rates)]
    heapq.heapify(waiting)
    shortages = _shortages(dice, days, rates)
    out_until = [0.0] * len(nodes)
    found: list[Outage] = []
    while waiting:
        due = heapq.heappop(waiting)
        if due.at < out_until[due.node]:
            continue
        klass = rates.classes[due.klass]
        hours = repair_hours(dice, klass) if due.hours is None else due.hours
        end = _delivered(due.at, due.at + hours / 24.0, shortages, rates)
        hours = (end - due.at) * 24.0
        out_until[due.node] = end
        found.append(Outage(node=nodes[due.node], klass=klass.name, start=due.at, end=end))
        again = _follower(dice, due, hours, end, rates)
        if again is not None and again.at < days:
            heapq.heappush(waiting, again)
    return tuple(found)


def repair_hours(dice: random.Random, klass: FaultClass) -> float:
    """How long a fault of the class keeps its node out; what is longer than ever seen is drawn
    anew.
    """
    way = klass.repairs[weighted(dice, [repair.share for repair in klass.repairs])]
    while True:
        hours = dice.lognormvariate(way.mu, way.sigma)
        if hours <= klass.longest_h:
            return hours


def _shortages(dice: random.Random, days: float, rates: FleetRates) -> list[tuple[float, float]]:
    """When spare parts ran out and when they were delivered."""
    found = []
    at = dice.expovariate(rates.shortages)
    while at < days:
        end = at + rates.shortage_days * (0.5 + dice.random())
        found.append((at, end))
        at = end + dice.expovariate(rates.shortages)
    return found


def _delivered(
    start: float, end: float, shortages: Sequence[tuple[float, float]], rates: FleetRates
) -> float:
    """When the node is back: a repair that takes parts waits for their delivery."""
    if (end - start) * 24.0 < rates.takes_parts_h:
        return end
    return next((until for since, until in shortages if since <= end < until), end)


def _singles(
    dice: random.Random, frailties: Sequence[float], days: float, rates: FleetRates
) -> list[_Due]:
    weights = [klass.single for klass in rates.classes]
    per_day = sum(weights) / 1000.0
    found = []
    for node, frailty in enumerate(frailties):
        at = 0.0
        while frailty > 0:
            at += dice.expovariate(per_day * frailty)
            if at >= days:
                break
            found.append(_Due(at, node, weighted(dice, weights)))
    return found


def _batches(
    dice: random.Random, frailties: Sequence[float], days: float, rates: FleetRates
) -> list[_Due]:
    """Neighbours share a rack, a switch and an image: a batch hits a run of nodes with gaps."""
    found = []
    for position, klass in enumerate(rates.classes):
        per_day = klass.batches * len(frailties) / 1000.0
        at = dice.expovariate(per_day) if per_day else days
        while at < days:
            size = 2 + round(dice.expovariate(1.0 / klass.batch_size))
            first = dice.randrange(len(frailties))
            together = repair_hours(dice, klass)
            for step in range(min(size, len(frailties))):
                when = at + dice.expovariate(1.0 / rates.batch_days)
                hours = together if dice.random() < rates.together else None
                if when < days:
                    node = (first + 2 * step) % len(frailties)
                    found.append(_Due(when, node, position, hours))
            at += dice.expovariate(per_day)
    return found


def _follower(
    dice: random.Random, due: _Due, hours: float, end: float, rates: FleetRates
) -> _Due | None:
    chance = next(chance for below, chance in rates.follows if hours < below)
    if dice.random() >= chance:
        return None
    mean = rates.soon_days if dice.random() < rates.soon else rates.later_days
    klass = due.klass
    if dice.random() >= rates.same_class:
        klass = weighted(dice, [one.single for one in rates.classes])
    return _Due(end + dice.expovariate(1.0 / mean), due.node, klass)


def weighted(dice: random.Random, weights: Sequence[float]) -> int:
    """The position of one of them, each as likely as its weight."""
    return dice.choices(range(len(weights)), weights)[0]
