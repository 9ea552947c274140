"""How the commands print: aligned columns as kubectl does, ages, and hostile text made harmless.

Evidence and messages come from kernel lines and annotations; control characters in them could
rewrite a terminal, so everything printed passes `printable`.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from rules.session_time import parse_time

NONE = "<none>"


def printable(text: str) -> str:
    """One line without control or formatting characters."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def age(since: str | None, now: float) -> str:
    """`42s`, `14m`, `3h`, `5d` since an RFC 3339 time; `<none>` where there is none."""
    at = parse_time(since or "")
    if at is None:
        return NONE
    seconds = max(0, int(now - at))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under upper-case headers, three spaces apart, the last column ragged."""
    lines = [tuple(header), *(tuple(printable(cell) or NONE for cell in row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header) - 1)]
    return "\n".join(
        "   ".join([*(c.ljust(w) for c, w in zip(line[:-1], widths, strict=True)), line[-1]])
        for line in lines
    )


def document(value: Any, form: str) -> str:
    """The value as `json` or `yaml`."""
    if form == "json":
        return json.dumps(value, indent=2, ensure_ascii=True)
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False).rstrip()
