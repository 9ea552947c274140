"""N of M with hysteresis: when a noisy reading is a finding, and when it has gone again.

Called by the judges of readings, of presence and of the host. One `Gauge` belongs to one
threshold on one GPU. It must never be fed with a value that was not measured: an absent reading
is left out, it is neither good nor bad.
"""

from __future__ import annotations

from dataclasses import dataclass

from rules.catalog.thresholds import Threshold


@dataclass(frozen=True, slots=True)
class Gauge:
    """The last readings against one threshold, newest last, and what follows from them.

    `bad` and `good` are separate because of hysteresis: a reading between the two sides is
    neither.
    """

    raised: bool = False
    bad: tuple[bool, ...] = ()
    good: tuple[bool, ...] = ()

    def step(self, *, bad: bool, good: bool, threshold: Threshold) -> Gauge:
        """Take one reading; raised at `count` bad of `window`, cleared at as many good."""
        bads = (*self.bad, bad)[-threshold.window :]
        goods = (*self.good, good)[-threshold.window :]
        if not self.raised and sum(bads) >= threshold.count:
            return Gauge(raised=True, bad=bads)
        if self.raised and sum(goods) >= threshold.count:
            return Gauge(raised=False, good=goods)
        return Gauge(raised=self.raised, bad=bads, good=goods)

    def measure(self, value: float, threshold: Threshold) -> Gauge:
        """Take one measured value: bad at or above `value`, good at or below `clear`.

        Where both are the same number, good means below it.
        """
        bad = value >= threshold.value
        good = value <= threshold.clear if threshold.clear != threshold.value else not bad
        return self.step(bad=bad, good=good, threshold=threshold)


@dataclass(frozen=True, slots=True)
class Latch:
    """A flag or counter that only grows: one confirming re-read, then it stands.

    `seen` says that the last reading was bad; `raised` that two in a row were. It falls back
    with the first good reading: whether that ends anything is for the incident's own evidence.
    """

    raised: bool = False
    seen: bool = False

    def step(self, *, bad: bool) -> Latch:
        """Take one reading."""
        return Latch(raised=bad and (self.raised or self.seen), seen=bad)
