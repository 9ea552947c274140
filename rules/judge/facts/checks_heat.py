"""The checks on heat and clocks: slowdowns, the margin to them, hot memory.

Listed in `judge.facts.checks`. Numbers stand in `rules.catalog.thresholds`.
"""

from collections.abc import Callable
from statistics import median
from typing import Final

from rules.catalog.signals import Signal
from rules.catalog.thresholds import Threshold
from rules.judge.facts import standing
from rules.judge.facts.standing import CheckResult, Sample

_NANOSECONDS: Final = 1e9

_CLOCK_EVENTS: Final = {
    0x1: "idle", 0x2: "clocks set by a program", 0x4: "power cap in software",
    0x8: "hardware slowdown", 0x10: "kept in step with others", 0x20: "heat, in software",
    0x40: "heat, in hardware", 0x80: "power brake from outside", 0x100: "display clocks",
}  # fmt: skip
"""Bits of the clock event reasons. Source: NVML reference, nvmlClocksEventReasons."""

_NO_TEMPERATURE: Final = 150
"""No silicon works at this many degrees Celsius: a reading of it is a broken sensor's."""
_LOWEST_SLOWDOWN: Final = 85
"""Where the driver names no slowdown temperature: no data-centre GPU slows down below this many
degrees Celsius. Source: gpuward, from published thermal limits."""


def clocks(
    mask: int, *, unless: int = 0, times: tuple[Signal, ...] = ()
) -> Callable[[Sample, Threshold], CheckResult | None]:
    """A slowdown that is on now, or that took too large a share of the time since the last
    poll.
    """

    def measure(sample: Sample, _: Threshold) -> CheckResult | None:
        reasons = sample.number(Signal.CLOCK_EVENT_REASONS)
        shares = [sample.rates[time] / _NANOSECONDS for time in times if time in sample.rates]
        if reasons is None and not shares:
            return None
        bits = int(reasons or 0)
        limit = sample.thresholds["SlowdownShare"]
        share = max(shares, default=0.0)
        on = bool(bits & mask) and not bits & unless
        words = ", ".join(word for bit, word in _CLOCK_EVENTS.items() if bits & bit)
        shown = f"clock_event_reasons={bits:#x}{f' ({words})' if words else ''}"
        said = [] if reasons is None else [shown]
        if share:
            said.append(f"slowed down for {share:.0%} of the time since the last reading")
        evidence = ", ".join(said)
        if on and (temperature := _temperature(sample)) is not None:
            evidence += f", temperature_celsius={temperature:g}"
        return CheckResult(on or share >= limit.value, not on and share <= limit.clear, evidence)

    return measure


def power_limit(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Well under what the board boots with, and under what the others of the node are set to."""
    now, default = sample.number(Signal.POWER_LIMIT), sample.last(Signal.POWER_LIMIT_DEFAULT)
    if not now or not default or not sample.limits:
        return None
    beside = median(sample.limits)
    if beside <= 0:
        return None
    evidence = f"power_limit_watts={now:g}, default {default:g}, {beside:g} on the other GPUs"
    return standing.below(limit, now / min(default, beside), evidence)


def margin_left(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Degrees left to hardware slowdown: the fewer of T.Limit's and the two temperatures'.

    A T.Limit that is used up is believed only where the temperature is near slowdown, too.
    """
    left: list[float] = []
    evidence = []
    temperature, slowdown = _temperature(sample), sample.last(Signal.SLOWDOWN_TEMPERATURE)
    if temperature is not None and slowdown:
        left.append(slowdown - temperature)
        evidence.append(
            f"temperature_celsius={temperature:g} slowdown_temperature_celsius={slowdown:g}"
        )
    margin = sample.number(Signal.THERMAL_MARGIN)
    if margin is not None:
        by_limit = margin - (sample.last(Signal.SLOWDOWN_MARGIN) or 0.0)
        cool = _is_cool(sample, temperature, slowdown)
        if by_limit > limit.value or not cool:
            left.append(by_limit)
            evidence.append(f"thermal_margin_celsius={margin:g} ({by_limit:g} above slowdown)")
        elif not left:
            said = f"thermal_margin_celsius={margin:g} at {temperature:g} degrees"
            return standing.flag(bad=False, evidence=said)
    if not left:
        return None
    return standing.below(limit, min(left), ", ".join(evidence))


def _temperature(sample: Sample) -> float | None:
    """The GPU's temperature, if it is one that a working GPU can have."""
    now = sample.number(Signal.TEMPERATURE)
    return now if now is not None and 0 < now < _NO_TEMPERATURE else None


def _is_cool(sample: Sample, temperature: float | None, slowdown: float | None) -> bool:
    """Whether nothing here can be near its slowdown, whatever a margin says."""
    if temperature is None:
        return False
    memory = sample.last(Signal.MEMORY_TEMPERATURE)
    hottest = max(temperature, memory if memory is not None else temperature)
    return hottest <= (slowdown or _LOWEST_SLOWDOWN) - sample.thresholds["TemperatureDoubt"].value


def memory_temperature(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Degrees left to the memory's highest operating temperature."""
    now = sample.number(Signal.MEMORY_TEMPERATURE)
    most = sample.last(Signal.MEMORY_MAX_TEMPERATURE)
    if now is None or not most:
        return None
    return standing.below(limit, most - now, f"memory_temperature_celsius={now:g} of {most:g}")
