"""How far the API server's clock is from this machine's, as several of its answers agree.

`clock` adds the estimate to the machine's time and `api` feeds it the `Date` header of every
answer. One wrong header (a proxy's own error page, one of three API servers with a bad clock) must
not move the clock that rates, breaker and releases rest on: the interval in which most of the
recent answers agree counts (after Marzullo), never a single one. No clock is read in here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

# The Date header counts whole seconds: the server's true time lies within one second after it.
_DATE_RESOLUTION_S: Final = 1.0
_NEGLIGIBLE_SKEW_S: Final = 1.0
"""Below this the two clocks agree as far as anything here can tell."""
_REMEMBERED: Final = 15
"""Answers that have a say. More than half of them must agree before the clock moves: with the
lease asked for every 2 s that takes about a quarter of a minute."""
_TOLERANCE_S: Final = 2.0
"""Clocks of several API servers may differ by this much and still be called one clock."""
_ONE_VOICE_S: Final = 1.0
"""Answers closer together than this come out of one burst and count as one."""
_BURST_S: Final = 0.05
"""Within this an answer that agrees is not folded in: it could say no more than so much."""


@dataclass(slots=True)
class _Sample:
    """The interval of (server time - local time) that answers at one moment allow."""

    low_s: float
    high_s: float
    at: float

    def apart_s(self, other: _Sample) -> float:
        """How far the two intervals are from touching; 0 when they overlap."""
        return max(0.0, other.low_s - self.high_s, self.low_s - other.high_s)

    def narrow(self, other: _Sample) -> None:
        """Keep what both allow; the two must overlap."""
        self.low_s, self.high_s = max(self.low_s, other.low_s), min(self.high_s, other.high_s)


@dataclass(slots=True)
class SkewEstimate:
    """The interval in which (server time - local time) lies; unbounded until something is
    known.
    """

    low_s: float = float("-inf")
    high_s: float = float("inf")
    first_agreeing: int = 3
    """Answers that must agree at the start where they contradict this machine's clock; 1 for a
    command, which ends after a few answers and is more likely to run beside a wrong clock."""
    jumps: int = 0
    """How often most answers agreed on a clock other than the one believed before."""
    contradictions: int = 0
    """Answers whose Date contradicted the clock believed at that moment."""
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _folded_at: float = float("-inf")
    _doubt: str | None = ""
    """None: to be found out when it is asked for."""

    def add(self, server_date: float, sent_at: float, received_at: float) -> None:
        """Fold in one answer: its Date header was written between sending and receiving.

        `sent_at` and `received_at` are local times; all three in seconds since the epoch.
        """
        heard = _Sample(
            server_date - received_at, server_date + _DATE_RESOLUTION_S - sent_at, received_at
        )
        if self._says_nothing_new(heard):
            return
        self._doubt = None
        if self._believed.apart_s(heard) > _TOLERANCE_S:
            self.contradictions += 1
        self._remember(heard)
        agreed = self._agreed()
        if agreed is None:
            return
        apart_s = self._believed.apart_s(agreed)
        if apart_s > _TOLERANCE_S:
            self.jumps += 1
        if apart_s == 0:
            agreed.narrow(self._believed)
        self.low_s, self.high_s = agreed.low_s, agreed.high_s

    @property
    def doubt(self) -> str:
        """Why the time is not known well enough to act on, a clause; "" when it is.

        Also before the first answer: whoever has heard nothing does nothing anyway.
        """
        if self._doubt is None:
            self._doubt = self._find_doubt()
        return self._doubt

    def _find_doubt(self) -> str:
        if not self._samples:
            return ""
        if self.undecided:
            apart_s = self._samples[-1].low_s
            return (
                f"the API server's Date is {abs(apart_s):.0f} s "
                f"{'ahead of' if apart_s > 0 else 'behind'} this machine's clock and too few "
                "answers agree yet"
            )
        backing = sum(self._believed.apart_s(other) <= _TOLERANCE_S for other in self._samples)
        if 2 * backing > len(self._samples):
            return ""
        return "the Date headers of the API server's answers contradict one another"

    @property
    def undecided(self) -> bool:
        """Answers were heard and contradict this machine's clock, and too few of them agree yet:
        the time that `seconds` leads to is the machine's, and nothing should be dated by it.
        """
        return self._unknown and bool(self._samples)

    @property
    def _unknown(self) -> bool:
        return self.low_s == float("-inf")

    @property
    def _believed(self) -> _Sample:
        return _Sample(self.low_s, self.high_s, 0.0)

    def seconds(self) -> float:
        """The smallest correction that agrees with what was seen; 0 when the clocks agree."""
        if self.low_s <= _NEGLIGIBLE_SKEW_S and self.high_s >= -_NEGLIGIBLE_SKEW_S:
            return 0.0
        return self.low_s if self.low_s > 0 else self.high_s

    def _says_nothing_new(self, heard: _Sample) -> bool:
        """Of a burst of answers that agree one in a while is enough."""
        last = self._samples[-1] if self._samples else None
        agrees = last is not None and last.apart_s(heard) == self._believed.apart_s(heard) == 0
        if agrees and 0.0 <= heard.at - self._folded_at < _BURST_S:
            return True
        self._folded_at = heard.at
        return False

    def _remember(self, heard: _Sample) -> None:
        """Answers of one burst that agree are one voice, and so are those that contradict it."""
        for sample in reversed(self._samples):
            if heard.at - sample.at >= _ONE_VOICE_S:
                break
            if sample.apart_s(heard) == 0:
                sample.narrow(heard)
                return
        self._samples.append(heard)

    def _agreed(self) -> _Sample | None:
        """What most samples allow, if those are more than half of them."""
        best: list[_Sample] = []
        for centre in reversed(self._samples):
            voices = [s for s in reversed(self._samples) if centre.apart_s(s) <= _TOLERANCE_S]
            if len(voices) > len(best):
                best = [centre, *(voice for voice in voices if voice is not centre)]
        if 2 * len(best) <= len(self._samples):
            return None
        found = _Sample(best[0].low_s, best[0].high_s, best[0].at)
        for voice in best[1:]:
            if found.apart_s(voice) == 0:
                found.narrow(voice)
        if not self._unknown or len(best) >= self.first_agreeing:
            return found
        own = _Sample(-_NEGLIGIBLE_SKEW_S, _NEGLIGIBLE_SKEW_S, 0.0)
        return found if found.apart_s(own) == 0 else None
