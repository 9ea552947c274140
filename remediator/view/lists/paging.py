"""Pages of a list: `limit` and `continue`, as the API server spells them.

The token says after which item to go on, not where in the list: what comes and goes meanwhile
neither repeats an item nor skips one.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
Key = tuple[object, ...]

LIMIT: Final = 100
MOST: Final = 1000
_TOKEN_CHARS: Final = 2048


class RequestError(Exception):
    """The request cannot be understood; one sentence that says what is allowed."""


def limit_of(query: Mapping[str, str], default: int = LIMIT) -> int:
    """The `limit` of a request."""
    text = query.get("limit", "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MOST):
        raise RequestError(f"limit must be a number from 1 to {MOST}.")
    return int(text)


def page_of(
    items: Sequence[T], key: Callable[[T], Key], query: Mapping[str, str], default: int = LIMIT
) -> tuple[list[T], str]:
    """One page of `items`, which are ordered by `key`, and the token of the next; "" on the
    last.
    """
    limit = limit_of(query, default)
    token = query.get("continue", "")
    try:
        after = _read(token) if token else None
        rest = [one for one in items if after is None or key(one) > after]
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise RequestError(
            "continue is not a token of this list; leave it out to start at its beginning."
        ) from None
    shown = rest[:limit]
    return shown, _write(key(shown[-1])) if len(rest) > limit else ""


def _write(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _read(token: str) -> Key:
    if len(token) > _TOKEN_CHARS:
        raise ValueError("too long")
    padded = token + "=" * (-len(token) % 4)
    value = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    if not isinstance(value, list):
        raise TypeError("not a list")
    return tuple(value)
