"""Checks of temperature, clocks and power limits, listed in `judge.facts.checks`.

The limits are in `rules.catalog.thresholds`.
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
    0x1: "idle", 0x2: "application clocks setting", 0x4: "software power cap",
    0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown", 0x80: "external power brake", 0x100: "display clocks",
    0x200: "board limit", 0x400: "reliability",
}  # fmt: skip
"""Bits of the clock event reasons. Source: NVML reference, nvmlClocksEventReasons."""

_NO_TEMPERATURE: Final = 150
"""Degrees Celsius that no working GPU reaches: such a reading comes from a broken sensor."""
_LOWEST_SLOWDOWN: Final = 85
"""Degrees Celsius below which no data center GPU slows down; used if the driver reports no
slowdown temperature. Source: gpuward, from published thermal limits."""


def clock_event_names(bits: int) -> tuple[str, ...]:
    """Return the names of the reasons whose bits are set."""
    return tuple(name for bit, name in _CLOCK_EVENTS.items() if bits & bit)


def clocks(
    mask: int, *, unless: int = 0, times: tuple[Signal, ...] = ()
) -> Callable[[Sample, Threshold], CheckResult | None]:
    """Return a check for a slowdown that is active now, or was for too much of the time since the
    last poll.
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
        names = ", ".join(clock_event_names(bits))
        shown = f"clock_event_reasons={bits:#x}{f' ({names})' if names else ''}"
        parts = [] if reasons is None else [shown]
        if share:
            parts.append(f"slowed down for {share:.0%} of the time since the last reading")
        evidence = ", ".join(parts)
        if on and (temperature := _temperature(sample)) is not None:
            evidence += f", temperature_celsius={temperature:g}"
        return CheckResult(on or share >= limit.value, not on and share <= limit.clear, evidence)

    return measure


def alone(mask: int) -> Callable[[Sample, Threshold], CheckResult | None]:
    """Return a check for a clock event reason that at most half of the node's other GPUs have.

    A reason that most GPUs have comes from their load or their design. A GPU without others of its
    product is not compared.
    """

    def measure(sample: Sample, _: Threshold) -> CheckResult | None:
        reasons = sample.number(Signal.CLOCK_EVENT_REASONS)
        if reasons is None or not sample.clock_events:
            return None
        same = sum(bool(int(other) & mask) for other in sample.clock_events)
        names = ", ".join(clock_event_names(int(reasons)))
        evidence = (
            f"clock_event_reasons={int(reasons):#x} ({names}), the same on {same} of"
            f" {len(sample.clock_events)} other GPUs"
        )
        bad = bool(int(reasons) & mask) and same * 2 <= len(sample.clock_events)
        return standing.flag(bad, evidence)

    return measure


def power_limit(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Check for a power limit below the board's default and below those of the other GPUs."""
    now, default = sample.number(Signal.POWER_LIMIT), sample.last(Signal.POWER_LIMIT_DEFAULT)
    if not now or not default or not sample.limits:
        return None
    others = median(sample.limits)
    if others <= 0:
        return None
    evidence = f"power_limit_watts={now:g}, default {default:g}, {others:g} on the other GPUs"
    return standing.below(limit, now / min(default, others), evidence)


def margin_left(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Check the degrees left to hardware slowdown, by T.Limit and by the slowdown temperature.

    A T.Limit of zero counts only if the temperature is near slowdown, too.
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
            cold = f"thermal_margin_celsius={margin:g} at {temperature:g} degrees"
            return standing.flag(bad=False, evidence=cold)
    if not left:
        return None
    return standing.below(limit, min(left), ", ".join(evidence))


def _temperature(sample: Sample) -> float | None:
    """Return the GPU's temperature, or None if no working GPU can have it."""
    now = sample.number(Signal.TEMPERATURE)
    return now if now is not None and 0 < now < _NO_TEMPERATURE else None


def _is_cool(sample: Sample, temperature: float | None, slowdown: float | None) -> bool:
    """Return whether GPU and memory are far below slowdown, whatever the margin is."""
    if temperature is None:
        return False
    memory = sample.last(Signal.MEMORY_TEMPERATURE)
    hottest = max(temperature, memory if memory is not None else temperature)
    return hottest <= (slowdown or _LOWEST_SLOWDOWN) - sample.thresholds["TemperatureDoubt"].value


def memory_temperature(sample: Sample, limit: Threshold) -> CheckResult | None:
    """Check the degrees left to the memory's highest operating temperature."""
    now = sample.number(Signal.MEMORY_TEMPERATURE)
    most = sample.last(Signal.MEMORY_MAX_TEMPERATURE)
    if now is None or not most:
        return None
    return standing.below(limit, most - now, f"memory_temperature_celsius={now:g} of {most:g}")
