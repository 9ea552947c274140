"""Keeps out of memory what nothing uses, and gives back what nothing uses any more.

`stay_small` is called by each of the agent's processes before it imports, `give_back` once it has
started: reading modules leaves half a megabyte of freed pieces in each, which the C library would
keep for ever.
"""

from __future__ import annotations

import ctypes
import sys
import types


def stay_small() -> None:
    """Keep out modules that libraries import and that are not used here: a megabyte.

    `typing_extensions`: None makes the import fail, and msgspec takes the same names from typing.
    `html.entities`: the HTTP server's library escapes and never looks an entity up.
    """
    vars(sys)["modules"].setdefault("typing_extensions", None)
    entities = types.ModuleType("html.entities")
    vars(entities)["html5"] = {}
    sys.modules.setdefault("html.entities", entities)


def give_back() -> None:
    """Ask the C library; only glibc can be asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
