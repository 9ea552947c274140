"""RFC 3339 times as Kubernetes writes them, and the short durations of our annotations.

Every controller and the fake kubelets use these. Nothing here reads a clock: time comes in.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def stamp(at: datetime) -> str:
    """The time with whole seconds, as metav1.Time is written."""
    return _utc(at, "seconds")


def stamp_micro(at: datetime) -> str:
    """The time with microseconds, as metav1.MicroTime (Lease, Event) is written."""
    return _utc(at, "microseconds")


def _utc(at: datetime, precision: str) -> str:
    """RFC 3339 with a Z: ten times faster than strftime, which shows in big fleets."""
    return at.astimezone(UTC).isoformat(timespec=precision).removesuffix("+00:00") + "Z"


def parse_stamp(text: str) -> datetime:
    """The moment that an API timestamp names. Raises ValueError for anything else."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def parse_duration_s(text: str) -> float:
    """Seconds in `10s`, `1m30s`, `250ms`. Raises ValueError naming the text."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"not a duration: {text!r} (write it as 10s, 1m30s or 250ms)")
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
