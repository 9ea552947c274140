"""The words that `pause` takes on its command line: labels and an end."""

from __future__ import annotations

import argparse
import re
from typing import Final

from rules.api.selectors import parse_selector
from rules.api.timestamps import parse_time
from rules.policy.durations import parse_duration

EQUAL: Final = re.compile(r"\s*([^=!\s]+)\s*==?\s*([^=!\s]*)\s*")


def selector(text: str) -> str:
    """`rack=a17,pool=train`: the object form of a pause knows equality in this short form."""
    try:
        parse_selector(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not text or not all(EQUAL.fullmatch(part) for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r:.80} must be key=value, several with commas")
    return text


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
