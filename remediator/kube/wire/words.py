"""What headers and errors say, as values and words."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from functools import lru_cache

from remediator.kube.wire.aiohttp_alone import aiohttp

_TLS_OBJECT = re.compile(r" ssl:(<[^>]*>|\w+)")
"""What aiohttp prints of the TLS context: an address in memory."""


@lru_cache(maxsize=16)
def served_at(date: str) -> float | None:
    """The Date header in seconds since the epoch; it is the same for all answers of a second."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None


def seconds(header: str) -> float | None:
    """What `Retry-After` asks for, an hour at most; None where it gives no number."""
    try:
        return max(0.0, min(float(header), 3600.0))
    except ValueError:
        return None


def why(error: Exception) -> str:
    """Why nothing was answered, in a clause."""
    said = _TLS_OBJECT.sub("", " ".join(str(error).split()))
    if isinstance(error, aiohttp.ClientConnectorError) and said:
        return said[:200]  # it says all that there is to know, and its class nothing more
    return f"{type(error).__name__}: {said}"[:200] if said else type(error).__name__
