"""How many of what, as people write it."""

from __future__ import annotations


def count(number: int, one: str, many: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
