"""Parse the timestamps of log lines.

A timestamp since boot has no wall time. One without a year is the last such day before `now`.
Fractions of a second are dropped. Minutes are cached, because busy logs repeat them.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov",
                  "Dec")  # fmt: skip
_LEAD: Final = rb"(?:<\d{1,10}>(?:1 )?)?(?:[a-z]{2,9} *:[a-z]{3,7} *: )?\[?(?:[A-Z][a-z]{2} )?"
_ISO: Final = re.compile(
    _LEAD + rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d):(\d\d)(?:[.,]\d{1,9})?(?: ?(Z|UTC|[+-]\d\d:?\d\d))?"
)
_CTIME: Final = re.compile(
    _LEAD + rb"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d):(\d\d)(?:\.\d{1,9})?(?: (\d{4})\b)?"
)
_EPOCH: Final = re.compile(rb"(?:<\d{1,10}>)?(\d{9,11})\.\d{1,9} ")
_SINCE_BOOT: Final = re.compile(
    rb"(?:<\d{1,10}>|[a-z]{2,9} *:[a-z]{3,7} *: )?\[ *(\d{1,12}\.\d{1,9})\]"
)
_LEVEL: Final = re.compile(rb"[a-z]{2,9} *:[a-z]{3,7} *: ")
_RECORD: Final = re.compile(rb"\d{1,10},\d{1,20},(\d{1,18})[,;]")


class Stamp(NamedTuple):
    """`wall` is seconds since the epoch, None if unknown; `text` is for display."""

    text: bytes
    wall: float | None


NO_STAMP: Final = Stamp(b"", None)


def stamp_of(line: bytes, now: float) -> Stamp:
    """Return the time of one line. Never raises, for any bytes."""
    for pattern, read in _BY_FIRST_BYTE.get(line[:1], _ANY):
        if found := pattern.match(line):
            return read(found, now)
    return NO_STAMP


def _since_boot(found: re.Match[bytes], _now: float) -> Stamp:
    return Stamp(b"+" + found[1], None)


def _iso(found: re.Match[bytes], _now: float) -> Stamp:
    minute, second, zone = found.groups()
    return _at(_iso_minute(minute, zone), second)


def _ctime(found: re.Match[bytes], now: float) -> Stamp:
    month, day, clock, second, year = found.groups()
    return _at(_ctime_minute(month, day, clock, year, int(now) // 3600), second)


def _record(found: re.Match[bytes], _now: float) -> Stamp:
    return Stamp(since_boot_text(found[1]), None)


def since_boot_text(microseconds: bytes) -> bytes:
    """Return the time of a record of /dev/kmsg."""
    return b"+%.6f" % (int(microseconds) / 1e6)


def _epoch(found: re.Match[bytes], _now: float) -> Stamp:
    minute, second = divmod(int(found[1]), 60)
    return _at(_minute(datetime.fromtimestamp(minute * 60, UTC)), b"%02d" % second)


def _levelled(found: re.Match[bytes], now: float) -> Stamp:
    for pattern, read in _ANY[:3]:
        if inner := pattern.match(found.string):
            return read(inner, now)
    return NO_STAMP


_ANY: Final = ((_SINCE_BOOT, _since_boot), (_ISO, _iso), (_CTIME, _ctime), (_EPOCH, _epoch))
_BY_FIRST_BYTE: Final = {
    b"[": _ANY[:3],
    **{b"%d" % digit: ((_RECORD, _record), (_ISO, _iso), (_EPOCH, _epoch)) for digit in range(10)},
    **{bytes((letter,)): ((_CTIME, _ctime),) for letter in b"ADFJMNOSTW"},
    **{bytes((letter,)): ((_LEVEL, _levelled),) for letter in range(ord("a"), ord("z") + 1)},
}
"""The timestamp formats that can start with each byte, so that others are not tried."""


def _at(minute: Stamp, second: bytes) -> Stamp:
    if minute.wall is None:
        return NO_STAMP
    return Stamp(b"%s:%sZ" % (minute.text, second), minute.wall + int(second))


def _minute(at: datetime) -> Stamp:
    at = at.astimezone(UTC)
    return Stamp(at.strftime("%Y-%m-%dT%H:%M").encode(), at.timestamp())


@lru_cache(maxsize=1024)
def _iso_minute(minute: bytes, zone: bytes | None) -> Stamp:
    """Return the start of a minute; without a zone in the zone of this machine."""
    named = b"" if zone is None else b"+00:00" if zone in (b"Z", b"UTC") else zone
    if len(named) == len("+0100"):
        named = named[:3] + b":" + named[3:]
    try:
        at = datetime.fromisoformat((minute.replace(b" ", b"T") + b":00" + named).decode())
        return _minute(at)
    except (ValueError, OverflowError, OSError):
        return NO_STAMP


@lru_cache(maxsize=1024)
def _ctime_minute(month: bytes, day: bytes, clock: bytes, year: bytes | None, hours: int) -> Stamp:
    """Return the start of `Feb 23 16:24`; `hours` is now, in hours since the epoch."""
    try:
        today = datetime.fromtimestamp(hours * 3600.0).astimezone()
        at = datetime(
            int(year) if year else today.year,
            _MONTHS.index(month.decode()) + 1,
            int(day),
            int(clock[:2]),
            int(clock[3:]),
        ).astimezone()
        if year is None and at > today + timedelta(days=1):
            at = at.replace(year=at.year - 1)
        return _minute(at)
    except (ValueError, OverflowError, OSError):
        return NO_STAMP
