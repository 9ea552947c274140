"""The end of a pause, as `pause` takes it on its command line."""

from __future__ import annotations

import argparse

from rules.api.timestamps import parse_time
from rules.policy.durations import parse_duration

_PRINTED = " UTC"
"""How the times end that people are shown."""


def end(text: str) -> str:
    """An RFC 3339 time, one as the commands print it, or a duration such as 2h from now on."""
    if moment(text) is not None:
        return text
    try:
        parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is neither a time (2026-01-31T12:00:00Z) nor a duration (2h, 1h30m)"
        ) from error
    return text


def moment(text: str) -> float | None:
    """The time itself; None where it is a duration."""
    printed = text.endswith(_PRINTED)
    return parse_time(f"{text.removesuffix(_PRINTED)}Z" if printed else text)
