"""Plots of the benchmark as SVG files: one bar per policy, with its interval and its number."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from remediator.simulate.runs import Interval

_WIDTH: Final = 720
_LEFT: Final = 210
_ROW: Final = 30
_TOP: Final = 44
_BAR: Final = 16
_COLOURS: Final = ("#2f6f4f", "#c2803a", "#7a8fb8", "#a05195")
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#222}.t{font-weight:600}.n{fill:#555;font-size:12px}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.n{fill:#aaa}line{stroke:#bbb}}"
)


def bars(title: str, rows: Sequence[tuple[str, Interval]], digits: int = 0) -> str:
    """Lying bars, one per policy; the whisker is the 95 % interval over the seeds."""
    most = max((value.mean + (value.half or 0.0) for _, value in rows), default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - 150) / most
    drawn = []
    for position, (name, value) in enumerate(rows):
        y = _TOP + position * _ROW
        length = max(1.0, value.mean * scale)
        drawn.append(_text(_LEFT - 10, y + 13, name, "end"))
        drawn.append(_bar(_LEFT, y, length, _COLOURS[0 if position == 0 else 2]))
        end = length
        if value.half:
            low = max(0.0, value.mean - value.half) * scale
            end = (value.mean + value.half) * scale
            drawn.append(_whisker(_LEFT + low, _LEFT + end, y + _BAR / 2))
        drawn.append(_text(_LEFT + end + 8, y + 13, value.text(digits), "start", "n"))
    said = ", ".join(f"{name} {value.text(digits)}" for name, value in rows)
    return _file(title, said, _TOP + len(rows) * _ROW + 8, drawn)


def stacks(title: str, parts: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Lying bars of several parts, with a legend and the sum."""
    most = max((sum(values) for _, values in rows), default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - 110) / most
    drawn = []
    for index, part in enumerate(parts):
        left = _LEFT + index * 110
        drawn.append(f'<rect x="{left}" y="30" width="11" height="11" fill="{_COLOURS[index]}"/>')
        drawn.append(_text(left + 16, 40, part, "start", "n"))
    top = _TOP + 14
    for position, (name, values) in enumerate(rows):
        y = top + position * _ROW
        drawn.append(_text(_LEFT - 10, y + 13, name, "end"))
        x = float(_LEFT)
        for index, value in enumerate(values):
            drawn.append(_bar(x, y, value * scale, _COLOURS[index]))
            x += value * scale
        drawn.append(_text(x + 8, y + 13, f"{sum(values):,.0f}", "start", "n"))
    said = "; ".join(
        f"{name}: " + ", ".join(f"{p} {v:,.0f}" for p, v in zip(parts, values, strict=True))
        for name, values in rows
    )
    return _file(title, said, top + len(rows) * _ROW + 8, drawn)


def _file(title: str, said: str, height: int, drawn: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}. {escape(said)}"><style>{_STYLE}</style>'
    )
    return "\n".join([head, _text(0, 18, title, "start", "t"), *drawn, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{of_kind}>{escape(text)}</text>'


def _bar(x: float, y: float, length: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>'


def _whisker(low: float, high: float, y: float) -> str:
    return (
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#222"'
        ' stroke-width="1.5"/>'
    )
