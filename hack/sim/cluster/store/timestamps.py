"""Times on the wire, and ages as people read them.

Used wherever an object carries a time.  The clock itself is never read here.
"""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at: float) -> str:
    """Seconds since the epoch as the API writes a `Time`."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(text: str | None) -> float | None:
    """The time behind a wire timestamp, None for none or an unreadable one."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, TypeError):
        return None


def age(since: str | None, now: float) -> str:
    """How long ago, as kubectl's tables print it."""
    began = epoch(since)
    return "<unknown>" if began is None else duration(now - began)


def duration(seconds: float) -> str:
    """A span with at most two units: `90s`, `5m30s`, `3h12m`, `6d4h`, `2y40d`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(0, whole)}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(high: int, high_unit: str, low: int, low_unit: str) -> str:
    return f"{high}{high_unit}" + (f"{low}{low_unit}" if low else "")
