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
_LEAST_FOLDED: Final = 24
"""A column for sentences that is narrower is no easier to read than lines that wrap."""
_UNDER: Final = "  "
"""Before a row whose first column stands above it."""
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


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under upper-case headers, three spaces apart, the last column ragged."""
    return "\n".join(_aligned(_cells(header, rows)))


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    spare: Sequence[str] = (),
    wide: bool = False,
) -> str:
    """Columns for standard output. On a terminal that they are too wide for, `spare` ones are left
    out unless that is what was asked for (`wide`), and under the table it says which; sentences
    in the last column are folded. Whatever reads a pipe gets all of it.

    Those that say nothing go first, then the others in the order of `spare`. Where that does not
    suffice, the first column stands on lines of its own.
    """
    lines = _cells(header, rows)
    room = _terminal(sys.stdout)
    if room is None:
        return "\n".join(_aligned(lines))
    if wide:
        return "\n".join(_aligned(_folded(lines, room)))
    kept = _fitting(lines, spare, room)
    told = _aligned(_folded(kept, room))
    if _width(told) > room and len(header) > 1:
        # A name as long as clouds give them leaves no room beside it, but has a line of its own.
        under = _fitting([line[1:] for line in lines], spare, room - len(_UNDER))
        below = [f"{_UNDER}{line}" for line in _aligned(under)]
        if _width(below) <= room:
            kept = [(header[0], *under[0])]
            told = [
                part for pair in zip(lines, below, strict=True) for part in (pair[0][0], pair[1])
            ]
    if gone := [title for title in header if title not in kept[0]]:
        told.append(f"left out to fit; -o wide shows: {', '.join(gone)}")
    return "\n".join(told)


def _fitting(
    lines: Sequence[tuple[str, ...]], spare: Sequence[str], room: int
) -> list[tuple[str, ...]]:
    """The lines without so many of the spare columns that the others fit, if they can."""
    kept = list(lines)
    waiting = sorted(spare, key=lambda title: _says(lines, title))
    while waiting and len(kept[0]) > 1 and _width(_aligned(kept)) > room:
        at = kept[0].index(waiting.pop(0))
        kept = [line[:at] + line[at + 1 :] for line in kept]
    return kept


def _width(lines: Sequence[str]) -> int:
    return max(map(width_of, lines))


def _cells(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    return [tuple(header), *(tuple(printable(cell) or NONE for cell in row) for row in rows)]


def _says(lines: Sequence[Sequence[str]], title: str) -> bool:
    """Whether any row has something in that column."""
    at = lines[0].index(title)
    return any(line[at] not in {NONE, "-"} for line in lines[1:])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(width_of(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    return [_BETWEEN.join([*map(padded, line[:-1], widths), line[-1]]) for line in lines]


def _folded(lines: Sequence[tuple[str, ...]], room: int) -> list[tuple[str, ...]]:
    """The lines with the sentences of their last column in pieces under each other, where it has
    enough room for that.
    """
    before = _width(_aligned([(*line[:-1], "") for line in lines]))
    if room - before < _LEAST_FOLDED:
        return list(lines)
    return [
        (*(line[:-1] if not i else ("",) * (len(line) - 1)), piece)
        for line in lines
        for i, piece in enumerate(fold(line[-1], room - before + GUTTER))
    ]


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
