"""The driver's branch, its major number, from whatever spells its version."""

from __future__ import annotations


def driver_branch(version: str | None) -> int | None:
    """Return 580 for `580.82.07`; None for anything that does not start with a number."""
    head = (version or "").lstrip("rRvV").partition(".")[0]
    return int(head) if head.isascii() and head.isdigit() and len(head) <= 4 else None
