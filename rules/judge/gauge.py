"""N of M with hysteresis: when a noisy reading is a finding, and when it has gone again.

Called by the judges of readings, of presence and of the host. One `Gauge` belongs to one
threshold on one GPU. It must never be fed with a value that was not measured: an absent reading
is left out, it is neither good nor bad.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from rules.catalog.thresholds import Threshold


class Gauge(msgspec.Struct, frozen=True):
    """The last readings against one threshold, newest last, and what follows from them.

    `bad` and `good` are separate because of hysteresis: a reading between the two sides is
    neither.
    """

    raised: bool = False
    bad: tuple[bool, ...] = ()
    good: tuple[bool, ...] = ()

    def step(self, *, bad: bool, good: bool, threshold: Threshold) -> Gauge:
        """Take one reading; raised at `count` bad of `window`, cleared at as many good. The very
        same where nothing is different.
        """
        bads = (*self.bad, bad)[-threshold.window :]
        goods = (*self.good, good)[-threshold.window :]
        if not self.raised and sum(bads) >= threshold.count:
            return Gauge(raised=True, bad=bads)
        if self.raised and sum(goods) >= threshold.count:
            return Gauge(raised=False, good=goods)
        if bads == self.bad and goods == self.good:
            return self
        return Gauge(raised=self.raised, bad=bads, good=goods)

    def over(self, threshold: Threshold) -> bool:
        """Whether it has been good for long enough, whatever came before."""
        return sum(self.good) >= threshold.count

    @property
    def seen(self) -> bool:
        """Whether the last reading was bad."""
        return self.bad[-1:] == (True,)

    def measure(self, value: float, threshold: Threshold) -> Gauge:
        """Take one measured value: bad at or above `value`, good at or below `clear`.

        Where both are the same number, good means below it.
        """
        bad = value >= threshold.value
        good = value <= threshold.clear if threshold.clear != threshold.value else not bad
        return self.step(bad=bad, good=good, threshold=threshold)


class Latch(msgspec.Struct, frozen=True):
    """A flag or counter that only grows: one confirming re-read, then it stands.

    `seen` says that the last reading was bad; `raised` that two in a row were. It falls back
    with the first good reading: whether that ends anything is for the incident's own evidence.
    """

    raised: bool = False
    seen: bool = False

    def step(
        self,
        *,
        bad: bool,
        good: bool = False,  # noqa: ARG002 - as of a gauge
        threshold: Threshold | None = None,  # noqa: ARG002 - as of a gauge
    ) -> Latch:
        """Take one reading; no number of looks is needed but the one that confirms."""
        raised = bad and (self.raised or self.seen)
        return self if (raised, bad) == (self.raised, self.seen) else Latch(raised, bad)

    def over(self, threshold: Threshold) -> bool:  # noqa: ARG002
        """Never: what it raised ends by a reset, a reboot or a person."""
        return False


Memory: TypeAlias = Gauge | Latch
"""What a standing check remembers between two looks."""


def unconfirmed(memory: Memory) -> bool:
    """Whether the last reading was bad and did not raise it: another look may."""
    return memory.seen and not memory.raised
