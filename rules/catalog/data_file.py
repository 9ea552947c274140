"""The data files of one program (`agent/data`, `remediator/data`), and those that both share."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

_ROOT: Final = Path(__file__).parents[2]
# Not importlib.resources: it brings tempfile, random and zip along into every agent.


def data_file(name: str, of: Literal["agent", "remediator", "rules"] = "rules") -> bytes:
    """The bytes of one file."""
    return (_ROOT / of / "data" / name).read_bytes()
