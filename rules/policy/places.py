"""Where in a policy a problem stands: its path as text and as steps. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

Place = tuple[str, ...]
"""The steps to it: `pods`, `[0]`, `selector`."""
_SHOWN: Final = 80
_STEP: Final = re.compile(r"[^.\[\]]+|\[\d+\]|\[\.\.\.\]")


def path_of(text: str) -> str:
    """Where msgspec found something wrong: `[0].level`."""
    at = text.partition(" - at `")[2].removeprefix("key` in `")
    return at.rstrip("`").removeprefix("$").removeprefix(".")


def steps_of(path: str) -> Place:
    """`pods`, `[0]`, `selector` of a path."""
    return tuple(_STEP.findall(path))


def joined(steps: Sequence[str]) -> str:
    """The path again, keys of mappings as those of sections."""
    shown = (s if s.startswith("[") else f".{s[:_SHOWN]}" for s in steps)
    return "".join(shown).removeprefix(".")


def touches(one: Place, other: Place) -> bool:
    """Whether they are the same place or one holds the other."""
    return one[: len(other)] == other[: len(one)]
