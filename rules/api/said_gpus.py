"""The annotation by which people say how many GPUs a node should have."""

from __future__ import annotations

import re
from typing import Final

MAX_GPUS: Final = 64
"""More than any node has; a larger claim is a mistake and is not believed."""
_COUNT: Final = re.compile(r"\d{1,2}")


def said_count(annotation: str) -> int | None:
    """The number that it says; None where it is none from 0 to `MAX_GPUS`."""
    said = _COUNT.fullmatch(annotation.strip())
    return int(said[0]) if said and int(said[0]) <= MAX_GPUS else None
