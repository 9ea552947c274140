"""State kept between polls: the gauge or latch of each check, and the ledger of each GPU.

A gauge is N of M with hysteresis: it decides when a noisy reading is a finding and when it ends.
An absent reading is neither good nor bad and never enters a gauge.

The ledger counts what happened to a GPU, for rules over an hour, a day or a week. It is published
in GPUNodeHealth and read back, so it survives agent restarts and reboots. It is bounded: an entry
holds a few counts, each for a part of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from rules.catalog.thresholds import Threshold


class Gauge(msgspec.Struct, frozen=True):
    """The last readings against one threshold, newest last, and whether they raise a finding.

    `bad` and `good` are separate because of hysteresis: a reading may be neither.
    """

    raised: bool = False
    bad: tuple[bool, ...] = ()
    good: tuple[bool, ...] = ()

    def step(self, *, bad: bool, good: bool, threshold: Threshold) -> Gauge:
        """Return the gauge after one reading: raised at `count` bad of `window`, cleared at as
        many good.
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
        """Whether enough of the last readings were good, raised before or not."""
        return sum(self.good) >= threshold.count

    @property
    def seen(self) -> bool:
        """Whether the last reading was bad."""
        return self.bad[-1:] == (True,)


class Latch(msgspec.Struct, frozen=True):
    """A flag or a counter that only grows: raised by two bad readings in a row.

    `seen`: the last reading was bad. The first good reading clears it; whether that closes an
    incident depends on the evidence that the incident needs.
    """

    raised: bool = False
    seen: bool = False

    def step(
        self,
        *,
        bad: bool,
        good: bool = False,  # noqa: ARG002 - same signature as Gauge
        threshold: Threshold | None = None,  # noqa: ARG002 - same signature as Gauge
    ) -> Latch:
        """Return the latch after one reading."""
        raised = bad and (self.raised or self.seen)
        return self if (raised, bad) == (self.raised, self.seen) else Latch(raised, bad)

    def over(self, threshold: Threshold) -> bool:  # noqa: ARG002
        """Return False: only a reset, a reboot or an operator ends what it raised."""
        return False


Memory: TypeAlias = Gauge | Latch
"""The state of a check between two polls."""


def unconfirmed(memory: Memory) -> bool:
    """Whether the last reading was bad and another bad one may raise it."""
    return memory.seen and not memory.raised


NODE: Final = "node"
"""The key of entries without a GPU."""
MAX_SIGHTINGS: Final = 6
MAX_PER_GPU: Final = 12
MAX_ALIKE: Final = 4
MAX_ENTRIES: Final = 64
"""About 16 KiB of the published object. Source: gpuward."""
MAX_COUNT: Final = 1_000_000_000
_CLOCK_SLACK_S: Final = 300.0
"""Times further ahead than this are from before the clock was set back. Source: gpuward."""
NAME_CHARS: Final = 96


class Sightings(msgspec.Struct, frozen=True):
    """A number of sightings from `at` on, until the next element of the entry."""

    at: float
    count: int


class Entry(msgspec.Struct, frozen=True):
    """One kind of sighting of one GPU: counts, oldest first, and when it was last seen."""

    sightings: tuple[Sightings, ...]
    last_at: float


Ledger: TypeAlias = Mapping[tuple[str, str], Entry]
"""Entries by GPU (UUID, else address, else `NODE`) and kind of sighting."""


def owner_key(gpu: str, pci: str) -> str:
    """Return the key of a GPU in the ledger."""
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
    """Return the ledger with a sighting added, unless the last one is less than `apart_s` away.

    Sightings before `since` are dropped. `window_s` is the longest window of any rule about it. Of
    entries that begin with `family` (the links or places of one GPU) only the latest are kept, so
    that they displace nothing else.
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
    """Return the number of sightings after `since`, under any of the names of one GPU."""
    return sum(
        seen.count
        for owner in {name for name in owners if name}
        if (entry := ledger.get((owner, what))) is not None
        for seen in entry.sightings
        if since < seen.at <= now + _CLOCK_SLACK_S
    )


def _bounded(ledger: dict[tuple[str, str], Entry], owner: str, family: str) -> Ledger:
    """Drop the entries with the oldest sightings: of this family, of this GPU, then of all."""
    mine = [key for key in ledger if key[0] == owner]
    alike = [key for key in mine if family and key[1].startswith(family)]
    for keys, most in ((alike, MAX_ALIKE), (mine, MAX_PER_GPU), (list(ledger), MAX_ENTRIES)):
        known = sorted((k for k in keys if k in ledger), key=lambda k: ledger[k].last_at)
        for key in known[: max(0, len(known) - most)]:
            del ledger[key]
    return ledger
