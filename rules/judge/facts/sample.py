"""One poll of one GPU as the checks on readings see it.

Used by `judge.facts.checks` and its parts. Pure data; a value that is absent, no number or none
that exists is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rules.catalog.signals import Signal
from rules.catalog.thresholds import Thresholds
from rules.judge.observation import Value
from rules.judge.topology import Partition

_LARGEST: Final = float(1 << 64)
"""No counter of the driver is wider than 64 bits."""


def number_of(value: Value) -> float | None:
    """A reading as a number; None for what is absent, no number, or none that exists."""
    if isinstance(value, int | float) and abs(value) <= _LARGEST:  # NaN fails this, too
        return float(value)
    return None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One poll: its `values`, the last `known` ones, rates per second, links down.

    `best_generation` is the highest PCIe generation its link was ever seen at; `booting`
    says that what takes its time after a boot is still given it, `outside` whether the GPU may be
    outside an active partition of the fabric. `limits` are the power
    limits of the node's other GPUs of its kind, `corrected` the corrected
    memory errors in each ten minutes of the last hour, `siblings` those of the other GPUs; of what
    was not followed for an hour there are none.
    """

    values: Mapping[Signal, Value]
    known: Mapping[Signal, Value]
    rates: Mapping[Signal, float]
    links_down: int | None
    thresholds: Thresholds
    best_generation: float = 0.0
    booting: bool = False
    outside: Partition = Partition.NO
    limits: Sequence[float] = ()
    corrected: Sequence[float] = ()
    siblings: Sequence[Sequence[float]] = ()

    def number(self, signal: Signal) -> float | None:
        """A number of this poll; None when absent or not asked."""
        return number_of(self.values.get(signal))

    def last(self, signal: Signal) -> float | None:
        """The latest number of a signal that is polled less often."""
        return number_of(self.known.get(signal))
