"""When a line was written, by the stamp in front of it.

Called by `gpuward-agent decode` for recognised lines. A stamp that counts from the boot is no wall
time; one without a year is taken for the last such day before `now`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

_MONTHS: Final = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")  # fmt: skip
_ISO: Final = re.compile(
    rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6})\d{0,3})?(?: ?(Z|UTC|[+-]\d\d:?\d\d))?"
)
_CTIME: Final = re.compile(rb"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: (\d{4})\b)?")
_EPOCH: Final = re.compile(rb"(?:<\d+>)?(\d{9,11}\.\d{1,9}) ")
_SINCE_BOOT: Final = re.compile(rb"(?:<\d+>|[a-z]+ *:[a-z]+ *: )?\[ *(\d{1,12}\.\d{1,9})\]")
_RECORD: Final = re.compile(rb"\d{1,10},\d{1,20},(\d{1,18})[,;]")
_HEAD: Final = 80
"""A stamp stands in front; what a message quotes is not looked at."""


class Stamp(NamedTuple):
    """`wall` is seconds since the epoch, None where not known; `text` is for people."""

    text: str
    wall: float | None


NO_STAMP: Final = Stamp("", None)


def stamp_of(line: bytes, now: float) -> Stamp:
    """The time of one line. Raises nothing, whatever the bytes."""
    head = line[:_HEAD]
    for mark in (b"NVRM:", b"nvidia-"):
        head = head.partition(mark)[0]
    if found := _RECORD.match(head):
        return Stamp(f"+{int(found[1]) / 1e6:.6f}", None)
    if found := _EPOCH.match(head):
        return _wall(datetime.fromtimestamp(float(found[1]), UTC))
    try:
        if found := _ISO.search(head):
            return _wall(_iso(*found.groups()))
        if found := _CTIME.search(head):
            return _wall(_ctime(found, now))
    except (ValueError, OverflowError, OSError):
        return NO_STAMP
    if found := _SINCE_BOOT.match(head):
        return Stamp(f"+{float(found[1]):.6f}", None)
    return NO_STAMP


def _wall(at: datetime) -> Stamp:
    at = at.astimezone(UTC)
    return Stamp(at.strftime("%Y-%m-%dT%H:%M:%SZ"), at.timestamp())


def _iso(day: bytes, clock: bytes, fraction: bytes | None, zone: bytes | None) -> datetime:
    at = datetime.fromisoformat(f"{day.decode()}T{clock.decode()}")
    at = at.replace(microsecond=int((fraction or b"0").ljust(6, b"0")))
    if zone is None:
        return at.astimezone()  # as the machine that reads it
    if zone in (b"Z", b"UTC"):
        return at.replace(tzinfo=UTC)
    text = zone.decode().replace(":", "")
    return datetime.strptime(f"{at:%Y-%m-%dT%H:%M:%S.%f}{text}", "%Y-%m-%dT%H:%M:%S.%f%z")


def _ctime(found: re.Match[bytes], now: float) -> datetime:
    month, day, hour, minute, second, year = found.groups()
    today = datetime.fromtimestamp(now).astimezone()
    at = datetime(
        int(year) if year else today.year,
        _MONTHS.index(month) + 1,
        int(day),
        int(hour),
        int(minute),
        int(second),
    ).astimezone()
    if year is None and at > today + timedelta(days=1):
        at = at.replace(year=at.year - 1)
    return at
