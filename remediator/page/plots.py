"""Plots as SVG, drawn on the server: bars with their numbers written on them.

Every plot says its numbers in words too (`aria-label`), carries no colour that means something by
itself, and needs no script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from remediator.page.markup import Element, el

_WIDTH = 520
_HEIGHT = 150
_BASE = 118
_TOP = 20
_ROW = 24
_NAMES = 284
_CHAR, _APART = 8.6, 10
"""Width of a character on a phone, where words are drawn larger, and space between words."""


def columns(title: str, values: Sequence[tuple[str, int]]) -> Element:
    """Upright bars over their labels, left to right."""
    most = max((value for _, value in values), default=0) or 1
    step = _WIDTH / max(1, len(values))
    every = _every([label for label, _ in values], step)
    drawn: list[Element] = []
    for position, (label, value) in enumerate(values):
        height = (_BASE - _TOP) * value / most
        middle = f"{step * (position + 0.5):.1f}"
        drawn.append(
            _box(step * position + step * 0.15, _BASE - height, step * 0.7, height)
            if value
            else el("line.none", {"x1": f"{step * (position + 0.3):.1f}",
                             "x2": f"{step * (position + 0.7):.1f}", "y1": str(_BASE - 1),
                             "y2": str(_BASE - 1)})
        )  # fmt: skip
        if value:
            drawn.append(_word(middle, f"{_BASE - height - 5:.1f}", f"{value:,}", "value"))
        if (len(values) - 1 - position) % every == 0:
            sticks_out = step * (position + 0.5) < len(label) * _CHAR / 2
            place, anchor = ("0", "start") if sticks_out else (middle, "middle")
            drawn.append(_word(place, str(_BASE + 16), label, "label", anchor))
    axis = el("line.axis", {"x1": "0", "x2": str(_WIDTH), "y1": str(_BASE), "y2": str(_BASE)})
    return _figure(title, values, _HEIGHT, [axis, *drawn])


def _every(labels: Sequence[str], step: float) -> int:
    """Which of the labels are written, counted from the last: all, unless they would touch."""
    if not all(labels):
        return 1  # whoever made them left room
    widest = max((len(label) for label in labels), default=0) * _CHAR + _APART
    return max(1, math.ceil(widest / step))


def rows(title: str, values: Sequence[tuple[str, int]]) -> Element:
    """Lying bars beside their labels, top to bottom."""
    most = max((value for _, value in values), default=0) or 1
    drawn: list[Element] = []
    for position, (label, value) in enumerate(values):
        y = position * _ROW
        length = (_WIDTH - _NAMES - 50) * value / most
        drawn.append(_word(str(_NAMES - 8), f"{y + 16}", _cut(label), "label", "end"))
        drawn.append(_box(_NAMES, y + 4, max(length, 1.0), _ROW - 8))
        drawn.append(_word(f"{_NAMES + length + 6:.1f}", f"{y + 16}", f"{value:,}", "value",
                           "start"))  # fmt: skip
    return _figure(title, values, max(_ROW, _ROW * len(values)), drawn)


def _cut(label: str) -> str:
    return label if len(label) <= 32 else label[:31] + "…"


def _box(x: float, y: float, width: float, height: float) -> Element:
    return el(
        "rect.value-bar",
        {
            "x": f"{x:.1f}",
            "y": f"{y:.1f}",
            "width": f"{width:.1f}",
            "height": f"{height:.1f}",
            "rx": "2",
        },
    )


def _word(x: str, y: str, text: str, kind: str, anchor: str = "middle") -> Element:
    return el("text", {"class": kind, "x": x, "y": y, "text-anchor": anchor}, text)


def _figure(
    title: str, values: Sequence[tuple[str, int]], height: int, drawn: Sequence[Element]
) -> Element:
    said = ", ".join(f"{label}: {value}" for label, value in values if value) or "nothing yet"
    return el(
        "figure.plot",
        el("figcaption", title),
        el(
            "svg",
            {"role": "img", "aria-label": f"{title}. {said}", "viewBox": f"0 0 {_WIDTH} {height}"},
            drawn,
        ),
    )
