"""Words that somebody else wrote, and that stand in a command which people copy to a shell."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,252}", re.ASCII)
"""No letter that a shell gives a meaning, no blank, and no dash in front, which begins a flag."""


def is_pasteable(word: str) -> bool:
    """Whether a shell takes `word` as the one word it is: a reason, an address, a UUID.

    An agent writes them, and a person pastes what names them where an agent has no rights.
    """
    return _PLAIN.fullmatch(word) is not None
