"""Chance as a value that is handed in: the rules may not make it themselves.

`random.Random` is one; a run is repeated by handing in one with the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Dice(Protocol):
    """What the simulation asks of chance."""

    def random(self) -> float:
        """A number in [0, 1)."""

    def randrange(self, start: int, /) -> int:
        """An integer in [0, start)."""

    def expovariate(self, lambd: float) -> float:
        """The time to the next of events that come `lambd` times per unit."""

    def gammavariate(self, alpha: float, beta: float) -> float:
        """A Gamma of shape `alpha` and scale `beta`."""

    def lognormvariate(self, mu: float, sigma: float) -> float:
        """A lognormal of the logarithm's mean and deviation."""

    def choice(self, seq: Sequence[T]) -> T:
        """One of them."""


def weighted(dice: Dice, weights: Sequence[float]) -> int:
    """The position of one of them, each as likely as its weight."""
    left = dice.random() * sum(weights)
    for position, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return position
    return len(weights) - 1
