"""Parse and format RFC 3339 times, ages and back-off delays.

Never reads a clock. Any number can be added to a result of `parse_time`: the format functions
accept every value.
"""

import datetime
import functools
import math
from dataclasses import dataclass
from typing import Final

_LONGEST_CHARS: Final = 64
"""An RFC 3339 time has at most 35 characters; longer texts are not cached."""
_FIRST: Final = 0.0
_LAST: Final = 250_000_000_000.0
"""In the year 9892, a century before the latest date of Python. Times before 1970 are invalid, too
(Go's zero time is in year 1)."""


@functools.lru_cache(maxsize=8_192)  # up to 1.4 MB
def _parsed(text: str) -> float | None:
    try:
        moment = datetime.datetime.fromisoformat(text)
        at = moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
    return at if at is not None and _FIRST <= at <= _LAST else None


def parse_time(text: str) -> float | None:
    """Return seconds since the epoch; None if `text` is no RFC 3339 time with a zone, or out of
    range (before 1970, or after 9892).
    """
    return _parsed(text) if len(text) <= _LONGEST_CHARS else None


def _moment(at: float) -> datetime.datetime:
    """Return the time, limited to the valid range, so that formatting never fails."""
    known = min(max(at, _FIRST), _LAST) if math.isfinite(at) else _FIRST
    return datetime.datetime.fromtimestamp(known, datetime.UTC)


def format_time(at: float) -> str:
    """Return `2026-01-31T12:00:00Z`, as metav1.Time is stored."""
    return _moment(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(at: float) -> str:
    """Return the time with microseconds, as metav1.MicroTime is stored (Leases, Events)."""
    return _moment(round(at, 6) if math.isfinite(at) else at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc(at: float, *, seconds: bool = False) -> str:
    """Return `2026-01-31 12:03 UTC`, the format of times in messages."""
    return _moment(at).strftime(f"%Y-%m-%d %H:%M{':%S' if seconds else ''} UTC")


def utc_of(text: str, *, seconds: bool = False) -> str:
    """Return the same for an RFC 3339 time; other texts are returned unchanged and unescaped."""
    at = parse_time(text)
    return text if at is None else utc(at, seconds=seconds)


NONE: Final = "<none>"


def age(since: str | None, now: float) -> str:
    """Return `42s`, `14m`, `3h` or `5d` since an RFC 3339 time; `<none>` without one."""
    at = parse_time(since or "")
    return NONE if at is None else span(now - at)


def span(seconds: float) -> str:
    """Return a duration in one unit, as kubectl prints ages."""
    total = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if total >= 2 * size:
            return f"{total // size}{unit}"
    return f"{total}s"


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """Format the times of an answer, relative to `now` or `absolute`. A text that is no RFC 3339
    time is kept.
    """

    now: float
    absolute: bool = False

    def ago(self, at: float | str) -> str:
        """Return `14m ago` or `2026-01-31 12:03:00 UTC`."""
        return self._either(at, "{} ago", "{}")

    def since(self, at: float | str) -> str:
        """Return `for 14m` or `since 2026-01-31 12:03:00 UTC`."""
        return self._either(at, "for {}", "since {}")

    def until(self, at: float | str) -> str:
        """Return `for another 2h` or `until 2026-01-31 12:03:00 UTC`."""
        return self._either(at, "for another {}", "until {}", ahead=True)

    def _either(
        self, at: float | str, relative: str, absolute: str, *, ahead: bool = False
    ) -> str:
        known = parse_time(at) if isinstance(at, str) else at
        if known is None:
            return absolute.format(at or NONE)
        if self.absolute:
            return absolute.format(utc(known, seconds=True))
        return relative.format(span(known - self.now if ahead else self.now - known))


_MOST: Final = 16
"""The most doublings, so that no number overflows."""

WATCH_SILENCE_S: Final = 90.0
"""A watch without an event for this long is dead. The API server sends a bookmark about once a
minute (allowWatchBookmarks), and one may be late by half a minute."""


def backoff_s(failures: int, low_s: float, high_s: float) -> float:
    """Return the delay after `failures` in a row: `low_s`, doubled each time, at most `high_s`."""
    return min(high_s, low_s * 2.0 ** min(max(failures - 1, 0), _MOST))


def failed_again(failures: int, lasted_s: float, sound_s: float) -> int:
    """Return the number of failures in a row; it restarts at 1 after a run of `sound_s`."""
    return 1 if lasted_s >= sound_s else failures + 1
