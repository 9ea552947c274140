"""Ages and lengths of time as text. Pure; no command waits for its imports."""

from __future__ import annotations

from typing import Final

from rules.api.timestamps import parse_time

NONE: Final = "<none>"


def age(since: str | None, now: float) -> str:
    """`42s`, `14m`, `3h`, `5d` since an RFC 3339 time; `<none>` where there is none."""
    at = parse_time(since or "")
    if at is None:
        return NONE
    return span(now - at)


def span(seconds: float) -> str:
    """A length of time in one unit, as kubectl writes ages."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def duration(seconds: float) -> str:
    """`45 s`, `3 min`, `2.5 h`."""
    if seconds < 120:
        return f"{int(seconds)} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min"
    return f"{seconds / 3600:.1f} h"
