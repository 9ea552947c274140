"""RFC 3339 times as API objects spell them, to and from seconds since the epoch.

Called wherever a rule compares a time found in an object with ``now``. Never reads a clock.
"""

import datetime
import functools


@functools.lru_cache(maxsize=65_536)
def parse_time(text: str) -> float | None:
    """Seconds since the epoch, or None where ``text`` is no RFC 3339 time with a zone."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def format_time(at: float) -> str:
    """``2026-01-31T12:00:00Z``: whole seconds, as metav1.Time is stored."""
    return datetime.datetime.fromtimestamp(int(at), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(at: float) -> str:
    """With microseconds, as metav1.MicroTime is stored (Leases, Events)."""
    moment = datetime.datetime.fromtimestamp(round(at, 6), datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def clock(at: float) -> str:
    """``12:03``: the time of day (UTC) in a sentence for people."""
    return datetime.datetime.fromtimestamp(int(at), datetime.UTC).strftime("%H:%M")
