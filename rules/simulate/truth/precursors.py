"""What a GPU shows in the days before it fails, and what sound ones show all the time.

Amounts only: how much each counter grows in an hour, how far a clock stays behind. No fleet
publishes such courses whole; where a form or number is assumed it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rules.catalog.signals import Signal
from rules.simulate.truth.dice import Dice

_YEAR_H: Final = 24.0 * 365.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Precursor:
    """One way to fail slowly: a counter that grows ever faster (exponentially, assumed), or a
    clock that falls behind.
    """

    name: str
    days: float
    """From its beginning to the failure (assumed)."""
    signal: Signal
    first: float
    last: float
    """Per hour at the beginning and at the end; of a clock the share of the speed that is left."""
    poll_s: float = 3600.0
    """How often a simulated agent has to look to see it."""

    def rate(self, passed: float) -> float:
        """Per hour, or the share of the speed, when this share of its time has passed."""
        return float(self.first * (self.last / self.first) ** min(1.0, max(0.0, passed)))


PRECURSORS: Final = (
    Precursor(
        name="NVLink recoveries",
        # Of 5,760 links one had 505 in its life and 3 in 21 minutes, five days before it failed.
        days=10.0,
        signal=Signal.NVLINK_RECOVERIES,
        first=0.5 / 24,
        last=9.0,
    ),
    Precursor(name="PCIe replays", days=10.0, signal=Signal.PCIE_REPLAYS, first=5.0, last=1500.0),
    Precursor(
        name="rows remapped for corrected errors",
        days=10.0,
        signal=Signal.REMAPPED_ROWS_CORRECTABLE,
        first=0.3 / 24,
        last=4.0 / 24,
    ),
    Precursor(
        name="corrected memory errors",
        # 17,700 a second at the end on a GPU whose siblings had none.
        days=3.0,
        signal=Signal.ECC_CORRECTED_VOLATILE,
        first=1.0,
        last=17_700.0 * 3600.0,
        poll_s=600.0,
    ),
    Precursor(
        name="clock falls behind",
        days=3.0,
        signal=Signal.SM_CLOCK,
        first=1.0,
        last=0.70,
        poll_s=110.0,
    ),
)

_CLOCK_MHZ: Final = 1930.0


def healthy_hours(
    dice: Dice, hours: float, *, gpu: int, busy: bool, replays: float = 1.0
) -> Mapping[Signal, float]:
    """What a sound GPU counts in so many hours, and what it reads at their end (assumed amounts).

    Replays come in bursts, a row is remapped and a link recovers now and then; jobs keep all GPUs
    of the node busy, each a little differently. `replays` multiplies them, as a new driver may.
    """
    burst = 10.0 if dice.random() < 0.01 else 1.0
    corrected = dice.expovariate(1.0 / 20.0) if dice.random() < hours / 24.0 else 0.0
    return {
        Signal.PCIE_REPLAYS: int(dice.expovariate(1.0 / 3.0) * burst * replays * hours),
        Signal.REMAPPED_ROWS_CORRECTABLE: int(dice.random() < hours / _YEAR_H),
        Signal.NVLINK_RECOVERIES: int(dice.random() < hours / (8.0 * _YEAR_H)),
        Signal.ECC_CORRECTED_VOLATILE: int(corrected),
        Signal.UTILIZATION: 92.0 + 8.0 * dice.random() if busy else 0.0,
        Signal.SM_CLOCK: _CLOCK_MHZ + 40.0 * (dice.random() - 0.5) if busy else 345.0,
        Signal.TEMPERATURE: 62.0 + gpu + 2.0 * dice.random() if busy else 35.0,
    }


def some(dice: Dice, mean: float) -> int:
    """A number of rare events with this mean (Poisson); near it where they are many."""
    if mean > 50.0:
        return int(mean * (0.9 + 0.2 * dice.random()))
    count, left = 0, mean
    while (left := left - dice.expovariate(1.0)) > 0:
        count += 1
    return count
