"""What is remembered between polls: gauges and latches of checks, and the ledger of each GPU.

A gauge is N of M with hysteresis: when a noisy reading is a finding, and when it has gone again.
It must never be fed with a value that was not measured: an absent reading is neither good nor bad.

The ledger says what happened to a GPU, and how often lately. It is published with GPUNodeHealth
and read back, so that neither the agent's restart nor a reboot forgets it. Every rule that counts
over an hour, a day or a week reads it. It is bounded: a count is a few taints and cordons, each of
which stands for a share of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

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
        """Never: what it raised ends by a reset, a reboot or an operator."""
        return False


Memory: TypeAlias = Gauge | Latch
"""What a standing check remembers between two checks."""


def unconfirmed(memory: Memory) -> bool:
    """Whether the last reading was bad and did not raise it: another check may."""
    return memory.seen and not memory.raised


NODE: Final = "node"
"""Whose entry it is where no GPU is named."""
MAX_SIGHTINGS: Final = 6
MAX_PER_GPU: Final = 12
MAX_ALIKE: Final = 4
MAX_ENTRIES: Final = 64
"""About 16 KiB of the published object. Source: gpuward."""
MAX_COUNT: Final = 1_000_000_000
_CLOCK_SLACK_S: Final = 300.0
"""What lies further ahead than this was noted before the clock was set back. Source: gpuward."""
NAME_CHARS: Final = 96


class Sightings(msgspec.Struct, frozen=True):
    """So many sightings from `at` on, until the next quarantine."""

    at: float
    count: int


class Entry(msgspec.Struct, frozen=True):
    """One thing that happens to one GPU: its taints and cordons, oldest first, and when it was
    last seen.
    """

    sightings: tuple[Sightings, ...]
    last_at: float


Ledger: TypeAlias = Mapping[tuple[str, str], Entry]
"""By whose (UUID, else address, else `NODE`) and what."""


def owner_key(gpu: str, pci: str) -> str:
    """The key of a GPU."""
    return (gpu or pci or NODE)[:NAME_CHARS]


def noted(
    ledger: Ledger,
    owner: str,
    what: str,
    at: float,
    window_s: float,
    *,
    since: float = 0.0,
    count: int = 1,
    apart_s: float = 0.0,
    family: str = "",
) -> Ledger:
    """Add what was seen at `at`; nothing within `apart_s` of the last sighting: it is the same.

    What was seen before `since` counts no more. `window_s` is the longest time that a rule looks
    back at it. Of what begins with `family` (the links or places of one GPU) only the latest few
    are kept, so that they displace nothing else.
    """
    old = ledger.get((owner, what))
    if count <= 0 or (old is not None and abs(at - old.last_at) < apart_s):
        return ledger
    oldest = max(at - window_s, since)
    sightings = [m for m in old.sightings if oldest < m.at <= at + _CLOCK_SLACK_S] if old else []
    if sightings and at - sightings[-1].at < window_s / MAX_SIGHTINGS:
        sightings[-1] = Sightings(sightings[-1].at, min(sightings[-1].count + count, MAX_COUNT))
    else:
        sightings.append(Sightings(at, min(count, MAX_COUNT)))
    last_at = max(at, old.last_at) if old and old.last_at <= at + _CLOCK_SLACK_S else at
    entry = Entry(tuple(sightings[-MAX_SIGHTINGS:]), last_at)
    return _bounded({**ledger, (owner, what): entry}, owner, family)


def total(ledger: Ledger, owners: Iterable[str], what: str, since: float, now: float) -> int:
    """How often it was seen after `since`, under any of the names of one GPU."""
    return sum(
        seen.count
        for owner in {name for name in owners if name}
        if (entry := ledger.get((owner, what))) is not None
        for seen in entry.sightings
        if since < seen.at <= now + _CLOCK_SLACK_S
    )


def _bounded(ledger: dict[tuple[str, str], Entry], owner: str, family: str) -> Ledger:
    """The longest unobserved go first: of this family, of this GPU, then of all."""
    mine = [key for key in ledger if key[0] == owner]
    alike = [key for key in mine if family and key[1].startswith(family)]
    for keys, most in ((alike, MAX_ALIKE), (mine, MAX_PER_GPU), (list(ledger), MAX_ENTRIES)):
        known = sorted((k for k in keys if k in ledger), key=lambda k: ledger[k].last_at)
        for key in known[: max(0, len(known) - most)]:
            del ledger[key]
    return ledger
