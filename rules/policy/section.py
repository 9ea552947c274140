"""Base of every part of the policy, and durations as people write them: `10m`, `1h30m`, `7d`.

Go's spelling (h, m, s, ms) plus `d`, which operators write and Go does not have.
"""

import re
from typing import Final

import msgspec


class Section(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base of every part of the policy: camelCase keys, none unknown."""


_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_S: Final = 366 * 86_400.0


class Seconds(float):
    """A duration in seconds that is written as text such as `1h30m` in a policy file."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_duration(self)


class PositiveSeconds(Seconds):
    """A duration longer than nothing, such as a window in which something is counted."""

    __slots__ = ()


def parse_duration(text: object) -> Seconds:
    """Read `text`; ValueError says what is wrong with it and how to write it."""
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
    """An exact spelling: 5400 is `1h30m`, 86400 is `24h`, 604800 is `7d`, 0 is `0s`."""
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
