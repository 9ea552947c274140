"""The end of a pause, as `pause` takes it on its command line."""

from __future__ import annotations

import argparse

from rules.api.timestamps import parse_time
from rules.policy.durations import parse_duration


def end(text: str) -> str:
    """An RFC 3339 time, or a duration such as 2h from now on."""
    if parse_time(text) is not None:
        return text
    try:
        parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is neither a time (2026-01-31T12:00:00Z) nor a duration (2h, 1h30m)"
        ) from error
    return text
