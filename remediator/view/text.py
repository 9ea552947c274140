"""How the commands print: aligned columns as kubectl does, ages, and hostile text made harmless.

Evidence and messages come from kernel lines and annotations; control characters in them could
rewrite a terminal, so everything printed passes `printable`.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from rules.api.timestamps import parse_time
from rules.text.printable import padded, printable, width_of

NONE: Final = "<none>"
GUTTER: Final = 9
NARROWEST: Final = 40
WIDTH: Final = 100
"""Sentences are folded here; evidence, which somebody may copy, is not."""
_SCREEN: Final = {"Unhealthy": 31, "FAIL": 31, "Unknown": 33, "Degraded": 33, "warn": 33,
                  "Draining": 35, "Marked": 35, "Quarantined": 35, "Pending": 36, "Repairing": 36,
                  "Validating": 36, "Healthy": 32, "ok": 32}  # fmt: skip
_WHOLE: Final = re.compile(
    r"\bkubectl [^;:,()]+?(?=[;:,()]|\.(?:\s|$)|$)|\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? UTC"
)
"""What is one word in a sentence: a command up to the end of its clause, a moment and its zone."""
_BETWEEN: Final = "   "
"""What stands between two columns, and in no sentence."""
_VERDICT: Final = re.compile(r"^(FAIL|warn|ok) +")
"""The first word of a sentence of `preflight`, set apart as in a column."""
_UNBROKEN: Final = "\x00"
"""Stands for a blank where no line may end; printable text has none."""
_WORD: Final = re.compile(
    r"(?m)^(FAIL|warn|ok)\b|(?<=[ :])("
    + "|".join(word for word in _SCREEN if word[0].isupper() and word != "FAIL")
    + r")\b"
)
_QUOTE: Final = "> "


def age(since: str | None, now: float) -> str:
    """`42s`, `14m`, `3h`, `5d` since an RFC 3339 time; `<none>` where there is none."""
    at = parse_time(since or "")
    if at is None:
        return NONE
    return span(now - at)


def span(seconds: float) -> str:
    """A length of time in one unit, as kubectl writes ages."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def duration(seconds: float) -> str:
    """`45 s`, `3 min`, `2.5 h`."""
    if seconds < 120:
        return f"{int(seconds)} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min"
    return f"{seconds / 3600:.1f} h"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    spare: Sequence[str] = (),
    wide: bool = False,
) -> str:
    """Rows under upper-case headers, three spaces apart, the last column ragged. On a terminal
    that they are too wide for, `spare` columns are left out in their order unless that is what was
    asked for (`wide`), and under the table it says which. A pipe gets all of it.
    """
    lines = [tuple(header), *(tuple(printable(cell) or NONE for cell in row) for row in rows)]
    room = _terminal(sys.stdout)
    gone: list[str] = []
    for title in () if room is None or wide else spare:
        if len(lines[0]) > 1 and max(map(width_of, _aligned(lines))) > (room or 0):
            at = lines[0].index(title)
            lines = [line[:at] + line[at + 1 :] for line in lines]
            gone.append(title)
    note = [f"left out to fit; -o wide shows: {', '.join(gone)}"] if gone else []
    return "\n".join([*_aligned(lines), *note])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(width_of(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    return [_BETWEEN.join([*map(padded, line[:-1], widths), line[-1]]) for line in lines]


def labelled(label: str, lines: Iterable[str], width: int | None = None) -> list[str]:
    """Lines under a label in the left gutter: `cause    Xid79 ...`. Long sentences are folded, to
    `width` or to what standard output shows.
    """
    width = width_for(sys.stdout) if width is None else width
    found: list[str] = []
    for line in lines:
        found += fold(printable(line), width)
    indent = " " * GUTTER
    return [(indent if i else label.ljust(GUTTER)) + line for i, line in enumerate(found)]


def width_for(stream: TextIO) -> int:
    """How wide lines may be: as the terminal is, between 40 and `WIDTH` columns."""
    return min(WIDTH, _terminal(stream) or WIDTH)


def _terminal(stream: TextIO) -> int | None:
    """How many columns a terminal has, at least 40; None for what is none."""
    if not stream.isatty():
        return None
    return max(NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)


def fold(line: str, width: int = WIDTH) -> list[str]:
    """A sentence in pieces of at most `width`; evidence and commands, to copy, stay in one."""
    if line.lstrip().startswith((_QUOTE, "kubectl ")):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    room = width - GUTTER - len(indent) - 2

    def kept(found: re.Match[str]) -> str:
        # Half a command that is pasted does something else, and half a moment is another one.
        return found[0].replace(" ", _UNBROKEN) if len(found[0]) <= room else found[0]

    folded = textwrap.wrap(
        _WHOLE.sub(kept, line), width - GUTTER, subsequent_indent=indent + "  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [piece.replace(_UNBROKEN, " ") for piece in folded] or [""]


def fitted(text: str, stream: TextIO) -> str:
    """On a terminal, sentences that are wider than it are folded at words; rows of tables and
    evidence stay whole, as does everything that goes elsewhere.
    """
    width = _terminal(stream)
    if width is None:
        return text
    return "\n".join(
        piece
        for line in text.split("\n")
        for piece in (
            fold(line, width + GUTTER)
            if len(line) > width and _BETWEEN not in _VERDICT.sub("", line.strip())
            else [line]
        )
    )


def quoted(text: str) -> str:
    """Evidence as it was read, marked as a quotation."""
    return f"{_QUOTE}{text}"


def document(value: Any, form: str) -> str:
    """The value as `json` or `yaml`."""
    # Imported here: most answers are lines.
    import json

    import msgspec
    import yaml

    value = msgspec.to_builtins(value)
    if form == "json":
        return json.dumps(value, indent=2, ensure_ascii=True)
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=WIDTH).rstrip()


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Colour only for eyes: a terminal that can, and nobody said NO_COLOR (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def coloured(text: str) -> str:
    """The first phase or verdict word of each line in colour; nothing depends on seeing it."""
    return "\n".join(_tinted(line) for line in text.split("\n"))


def _tinted(line: str) -> str:
    if line.lstrip().startswith(_QUOTE):
        return line
    return _WORD.sub(lambda found: f"\x1b[{_SCREEN[found[0]]}m{found[0]}\x1b[0m", line, count=1)
