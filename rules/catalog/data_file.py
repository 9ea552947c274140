"""The package data of the rules (`rules/data`), read by the catalogs that are made from it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_DATA: Final = Path(__file__).parents[1] / "data"
# Not importlib.resources: it brings tempfile, random and zip along into every agent.


def data_file(name: str) -> bytes:
    """The bytes of one file."""
    return (_DATA / name).read_bytes()
