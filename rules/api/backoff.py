"""How long to wait for the API server, and before trying again what failed, in every program."""

from __future__ import annotations

from typing import Final

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
