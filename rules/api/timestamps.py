"""RFC 3339 times as API objects spell them, and how long to wait before trying again.

Called wherever a rule compares a time found in an object with `now`. Never reads a clock. What
`parse_time` answers can be computed with: whatever is added to it or taken from it, `format_time`
and the others spell the result without an error.
"""

import datetime
import functools
import math
import re
from typing import Final

_LONGEST_CHARS: Final = 64
"""An RFC 3339 time has at most 35; a hostile one must not fill the memory of what was parsed."""
_FIRST: Final = 0.0
_LAST: Final = 250_000_000_000.0
"""In the year 9892: a century before the last moment that a date can hold. Before 1970 there was
no Kubernetes, so an earlier time is no time either (Go's zero time is of the year 1)."""


@functools.lru_cache(maxsize=65_536)
def _parsed(text: str) -> float | None:
    try:
        moment = datetime.datetime.fromisoformat(text)
        at = moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
    return at if at is not None and _FIRST <= at <= _LAST else None


def parse_time(text: str) -> float | None:
    """Seconds since the epoch, or None where `text` is no RFC 3339 time with a zone, or one that
    nothing can be computed with (before 1970, or at the end of the calendar).
    """
    return _parsed(text) if len(text) <= _LONGEST_CHARS else None


def _moment(at: float) -> datetime.datetime:
    """What is outside the calendar is spelled as its edge: a sentence must not end a program."""
    known = min(max(at, _FIRST), _LAST) if math.isfinite(at) else _FIRST
    return datetime.datetime.fromtimestamp(known, datetime.UTC)


def format_time(at: float) -> str:
    """`2026-01-31T12:00:00Z`: whole seconds, as metav1.Time is stored."""
    return _moment(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(at: float) -> str:
    """With microseconds, as metav1.MicroTime is stored (Leases, Events)."""
    return _moment(round(at, 6) if math.isfinite(at) else at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc(at: float, *, seconds: bool = False) -> str:
    """`2026-01-31 12:03 UTC`, the one way in which people are reported a moment: a case outlives
    its day, and whoever reads of it may sit in any zone. With `seconds` where one thing quickly
    follows another.
    """
    return _moment(at).strftime(f"%Y-%m-%d %H:%M{':%S' if seconds else ''} UTC")


def utc_of(text: str, *, seconds: bool = False) -> str:
    """The same of a time as an object spells it; what is no time stays as it was written, for the
    caller to make harmless.
    """
    at = parse_time(text)
    return text if at is None else utc(at, seconds=seconds)


NONE: Final = "<none>"


def age(since: str | None, now: float) -> str:
    """`42s`, `14m`, `3h`, `5d` since an RFC 3339 time; `<none>` where there is none."""
    at = parse_time(since or "")
    return NONE if at is None else span(now - at)


def span(seconds: float) -> str:
    """A length of time in one unit, as kubectl writes ages."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


_SHOWN: Final = re.compile(
    r"(?:\b(since|at|until|before) )?\b(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d)?) UTC\b"
)


def with_ages(text: str, now: float) -> str:
    """Return the text with the times that `utc` wrote as ages: `since T` becomes `for 14m`, `at T`
    `14m ago`, `until T` `for the next 2h`.
    """

    def age_of(found: re.Match[str]) -> str:
        preposition, day, clock = found.groups()
        at = parse_time(f"{day}T{clock}Z")
        if at is None:
            return found[0]
        bound = preposition in {"until", "before"}
        if at > now:
            return f"{'for the next' if bound else 'in'} {span(at - now)}"
        if bound:
            return found[0]
        return f"for {span(now - at)}" if preposition == "since" else f"{span(now - at)} ago"

    return _SHOWN.sub(age_of, text)


_MOST: Final = 16
"""Doublings: far above every limit in use, and no number overflows however long it goes on."""

WATCH_SILENCE_S: Final = 90.0
"""A watch that was silent for this long is dead. The API server sends a bookmark about once a
minute to who asks for them (allowWatchBookmarks), so one may be late by half a minute."""


def backoff_s(failures: int, low_s: float, high_s: float) -> float:
    """Seconds after `failures` in a row: `low_s` after the first, then twice as long each time, at
    most `high_s`.
    """
    return min(high_s, low_s * 2.0 ** min(max(failures - 1, 0), _MOST))


def failed_again(failures: int, lasted_s: float, sound_s: float) -> int:
    """Failures in a row with the one that ended just now: it is the first where what failed had
    lasted for `sound_s` before.
    """
    return 1 if lasted_s >= sound_s else failures + 1
