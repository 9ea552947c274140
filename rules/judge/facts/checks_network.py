"""Checks of one network port: error counters, a missing port, missing device files.

The table is in `rules.judge.facts.checks`. A check returns None if the port lacks its counters.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rules.catalog.thresholds import Threshold
from rules.judge.facts import standing
from rules.judge.facts.standing import CheckResult
from rules.judge.observation import PortCounter

HOUR_S: Final = 3600.0


class PortSample(msgspec.Struct, frozen=True, kw_only=True):
    """One poll of a network port.

    `rates` are increases per second; `last_hour` are increases within an hour, of which
    `counted_s` were observed. `flaps` is how often the link went down within it. `missing_s`: how
    long the port has been absent, 0 if present.
    """

    name: str
    rates: Mapping[PortCounter, float] = msgspec.field(default_factory=dict)
    last_hour: Mapping[PortCounter, int] = msgspec.field(default_factory=dict)
    counted_s: float = 0.0
    flaps: int | None = None
    missing_s: float = 0.0
    missing_files: tuple[str, ...] | None = None

    def within_hour(self, limit: Threshold, count: int, what: str) -> CheckResult:
        """Return the result of a count; it is good only after an entire hour was observed."""
        good = count <= limit.clear and self.counted_s >= HOUR_S
        return CheckResult(count >= limit.value, good, f"{self.name}: {what} {count} in an hour")


def _name(counter: PortCounter) -> str:
    return counter.rpartition("/")[2]


def rate(*counters: PortCounter, per_s: int = 1) -> Callable[..., CheckResult | None]:
    """Return the measure of a rate: the sum of the counters per second or per `per_s` seconds."""
    unit = {1: "second", 60: "minute"}[per_s]

    def measure(sample: PortSample, limit: Threshold) -> CheckResult | None:
        rates = {each: sample.rates[each] * per_s for each in counters if each in sample.rates}
        if not rates:
            return None
        worst = ", ".join(f"{_name(each)} {value:.1f}" for each, value in rates.items() if value)
        return standing.above(limit, sum(rates.values()), f"{sample.name}: {worst} a {unit}")

    return measure


def per_hour(counter: PortCounter) -> Callable[..., CheckResult | None]:
    """Return the measure of the increase of a counter within an hour."""

    def measure(sample: PortSample, limit: Threshold) -> CheckResult | None:
        count = sample.last_hour.get(counter)
        return None if count is None else sample.within_hour(limit, count, _name(counter))

    return measure


def flaps(sample: PortSample, limit: Threshold) -> CheckResult | None:
    """Check how often the link went down within an hour."""
    if sample.flaps is None:
        return None
    return sample.within_hour(limit, sample.flaps, "link downs:")


def missing(sample: PortSample, limit: Threshold) -> CheckResult:
    """Check for a port that was active earlier in this boot and no longer exists."""
    evidence = f"{sample.name}: missing for {sample.missing_s:.0f} s, was active in this boot"
    return standing.above(limit, sample.missing_s, evidence)


def device_files(sample: PortSample, limit: Threshold) -> CheckResult | None:
    """Check for device files that an active port lacks."""
    if sample.missing_files is None:
        return None
    named = ", ".join(f"/dev/infiniband/{each}*" for each in sample.missing_files)
    evidence = f"{sample.name}: is active, but lacks {named}"
    return standing.above(limit, len(sample.missing_files), evidence)
