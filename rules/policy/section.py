"""Base of every section of the policy, and durations such as `10m`, `1h30m` and `7d`.

Go's format (h, m, s, ms) plus `d`.
"""

import re
from typing import Final

import msgspec


class Section(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base of every section of the policy: camelCase keys, no unknown keys."""


_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_S: Final = 366 * 86_400.0


class Seconds(float):
    """A duration in seconds that is written as text such as `1h30m` in a policy file."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_duration(self)


class PositiveSeconds(Seconds):
    """A duration longer than 0s, such as a window."""

    __slots__ = ()


def parse_duration(text: object) -> Seconds:
    """Parse `text`; ValueError has the problem and the correct format."""
    if not isinstance(text, str):
        raise ValueError(f"a duration is text such as 10m, 24h or 1h30m, not {text!r:.40}")
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r:.40} is no duration; write it as 10m, 24h or 1h30m")
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    if seconds > _LONGEST_S:
        raise ValueError(f"{text!r:.40} is longer than a year")
    return Seconds(seconds)


def format_duration(seconds: float) -> str:
    """Return the exact text: 5400 is `1h30m`, 86400 is `24h`, 604800 is `7d`, 0 is `0s`."""
    rest = round(seconds * 1000)
    if rest <= 0:
        return "0s"
    if rest % 86_400_000 == 0 and rest > 86_400_000:
        return f"{rest // 86_400_000}d"
    text = ""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            text += f"{count}{unit}"
    return text
