"""A node's timeline: every lane over one axis, drawn on the server, and the same as a table.

Lengths across are shares of the width and heights are pixels, so that text stays readable on a
phone. Time is not to scale: a month of quiet and a reset of ten seconds fit one picture. Colour
only underlines what bar, lane and table say in words.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from remediator.page.markup import Element, el
from remediator.page.parts import chip, nothing, reason, session_link, shape_of, table
from remediator.view.shapes import NodeTimeline, TimelineItem
from remediator.view.timeline import Lane, lasted
from rules.api.quarantine import Phase
from rules.api.timestamps import format_time, parse_time, utc, utc_of

_TITLES: Final = {
    Lane.FAULT: "Faults",
    Lane.SESSION: "Sessions",
    Lane.REPAIR: "Repairs",
    Lane.TEST: "Tests",
    Lane.NODE: "Node",
    Lane.PERSON: "People",
}
_TITLE_PX, _ROW_PX, _BAR_PX, _GAP_PX, _AXIS_PX = 17, 22, 18, 6, 22
_MOST_ROWS: Final = 5
"""Of one lane; more at the same time lie over each other."""
_LEAST: Final = 1.2
"""Percent of the width that anything takes at least, so that it can be seen."""
_SPOKEN: Final = 7.0
"""Percent from which a bar has room for its name."""
_CHAR_PX, _PHONE_PX = 7.0, 330.0
"""Width of a character, and of the drawing on a phone."""
_TOUCH: Final = 0.01
_TICKS_APART: Final = 27.0
_SHORT_S: Final = 10.0
"""Times are told apart down to about this; longer ones grow with their logarithm."""
_MINUTE_S: Final = 60.0


class _Axis:
    """Times to percent of the width: between two things that happened, time runs evenly."""

    def __init__(self, times: Sequence[float]) -> None:
        self.cuts = sorted(set(times))
        self._at = [0.0]
        for begin, end in zip(self.cuts, self.cuts[1:], strict=False):
            self._at.append(self._at[-1] + math.log1p((end - begin) / _SHORT_S))
        self._whole = self._at[-1] or 1.0

    def percent(self, at: float) -> float:
        index = bisect_right(self.cuts, at) - 1
        if index < 0:
            return 0.0
        if index >= len(self.cuts) - 1:
            return 100.0 * self._at[-1] / self._whole
        begin, end = self.cuts[index], self.cuts[index + 1]
        share = (at - begin) / (end - begin)
        return (
            100.0
            * (self._at[index] + share * (self._at[index + 1] - self._at[index]))
            / (self._whole)
        )

    def ticks(self) -> list[float]:
        """The first, the last, and what lies far enough from both and from each other."""
        chosen = [self.cuts[0]]
        for at in self.cuts[1:-1]:
            here = self.percent(at)
            if here - self.percent(chosen[-1]) >= _TICKS_APART and here <= 100 - _TICKS_APART:
                chosen.append(at)
        return chosen if len(self.cuts) == 1 else [*chosen, self.cuts[-1]]


def timeline_parts(timeline: NodeTimeline, now: float) -> list[Element]:
    """Drawing, then table."""
    if not timeline.items:
        return [nothing("Nothing is on record of this node.")]
    # Whole minutes: what goes on need not be drawn anew at every look.
    today = math.ceil(now / _MINUTE_S) * _MINUTE_S
    drawn = [(item, *_span(item, today)) for item in timeline.items]
    axis = _Axis([at for _, begin, end in drawn for at in (begin, end)])
    earlier = f" {timeline.earlier} older ones are left out." if timeline.earlier else ""
    return [
        el(
            "figure.time",
            _drawing(drawn, axis),
            el(
                "figcaption",
                "Times are UTC. Time is not to scale: quiet stretches are shortened." + earlier,
            ),
        ),
        table(
            "The same as a table, the latest first",
            ("When", "What", "For", "Said"),
            [_row(item) for item in reversed(timeline.items)],
            kind="happened",
        ),
    ]


def _span(item: TimelineItem, now: float) -> tuple[float, float]:
    begin = parse_time(item.at) or 0.0
    end = now if not item.until else parse_time(item.until) or begin
    return begin, max(begin, end)


def _drawing(drawn: Sequence[tuple[TimelineItem, float, float]], axis: _Axis) -> Element:
    parts: list[Element] = []
    y = 0
    for lane, title in _TITLES.items():
        its = [one for one in drawn if one[0].lane == lane and not _passing(one[0])]
        if not its:
            continue
        parts.append(_text("0", y + 12, title, "lane"))
        y += _TITLE_PX
        rows = _in_rows([(item, *_place(axis, begin, end)) for item, begin, end in its])
        for number, row in enumerate(rows):
            for place, (item, left, right) in enumerate(row):
                until = row[place + 1][1] if place + 1 < len(row) else 100.0
                parts += _bar(item, left, right, until, y + number * _ROW_PX)
        y += len(rows) * _ROW_PX + _GAP_PX
    ticks = axis.ticks()
    for place, at in enumerate(ticks):
        x = f"{axis.percent(at):.2f}%"
        anchor = "start" if place == 0 else "end" if place == len(ticks) - 1 else "middle"
        before = ticks[place - 1] if place else None
        parts.insert(0, el("line.tick", {"x1": x, "x2": x, "y1": "0", "y2": str(y)}))
        parts.append(_text(x, y + 14, _clock(at, before), "when", anchor))
    return el(
        "svg",
        {
            "role": "img",
            "aria-label": _spoken(drawn),
            "width": "100%",
            "height": str(y + _AXIS_PX),
        },
        parts,
    )


_Placed = tuple[TimelineItem, float, float]
"""An item with where it begins and ends, in percent."""


def _passing(item: TimelineItem) -> bool:
    """A phase that was over in the same second: the table has it."""
    ended = item.state in {Phase.RELEASED, Phase.CANCELLED, Phase.NODE_GONE}
    return item.lane == Lane.SESSION and item.until == item.at and not ended


def _place(axis: _Axis, begin: float, end: float) -> tuple[float, float]:
    left = min(axis.percent(begin), 100 - _LEAST)
    return left, max(axis.percent(end), left + _LEAST)


def _in_rows(placed: Sequence[_Placed]) -> list[list[_Placed]]:
    """Each item in the first row that is free there."""
    rows: list[list[_Placed]] = []
    for one in placed:
        free = next((row for row in rows if row[-1][2] <= one[1] + _TOUCH), None)
        if free is not None:
            free.append(one)
        elif len(rows) < _MOST_ROWS:
            rows.append([one])
        else:
            rows[-1].append(one)
    return rows


def _bar(item: TimelineItem, left: float, right: float, until: float, y: int) -> list[Element]:
    """A box of its own, so that its name is cut where it ends; beside it where more of the name
    fits there.
    """
    name = item.what.partition(" by ")[0]
    kind = "person" if item.lane == Lane.PERSON else shape_of(item.state or "")
    wide, room = right - left, until - right
    goes_on = "" if item.until else ".going"
    within = wide >= _SPOKEN and (wide >= _needed(name) or wide >= room)
    box = el(
        f"svg.span.{kind}{goes_on}",
        {"x": f"{left:.2f}%", "y": str(y), "width": f"{wide:.2f}%", "height": str(_BAR_PX)},
        el("rect", {"x": "0", "y": "0", "width": "100%", "height": str(_BAR_PX), "rx": "3"}),
        _text("5", 13, name, "name") if within else None,
    )
    if within or room < _SPOKEN:
        return [box]
    beside = el(
        "svg.beside",
        {"x": f"{right:.2f}%", "y": str(y), "width": f"{room:.2f}%", "height": str(_BAR_PX)},
        _text("4", 13, name, "name"),
    )
    return [box, beside]


def _needed(name: str) -> float:
    """Percent of the width that a name takes on a phone."""
    return len(name) * _CHAR_PX / _PHONE_PX * 100


def _text(x: str, y: float, said: str, kind: str, anchor: str = "start") -> Element:
    return el(f"text.{kind}", {"x": x, "y": str(y), "text-anchor": anchor}, said)


def _clock(at: float, before: float | None) -> str:
    """`03-05 12:00`, without the day where the tick before has the same."""
    text = format_time(at)
    if before is not None and format_time(before)[:10] == text[:10]:
        return text[11:19] if at - before < 120 else text[11:16]
    return f"{text[5:10]} {text[11:16]}"


def _spoken(drawn: Sequence[tuple[TimelineItem, float, float]]) -> str:
    counts = [
        f"{sum(1 for one in drawn if one[0].lane == lane)} in {title}"
        for lane, title in _TITLES.items()
        if any(one[0].lane == lane for one in drawn)
    ]
    since = utc(min(begin for _, begin, _ in drawn))
    until = utc(max(end for _, _, end in drawn))
    return f"Timeline from {since} to {until}: {', '.join(counts)}. The table below says the same."


def _row(item: TimelineItem) -> Sequence[Element | str | list[Element | str]]:
    what: list[Element | str] = [el("strong", reason(item.what))]
    if item.state and item.state not in item.what:
        what += [" ", chip(item.state)]
    if item.by:
        what.append(f" by {item.by}")
    said: list[Element | str] = [item.said or "-"]
    if item.session and item.lane in {Lane.SESSION, Lane.PERSON}:
        said += [" ", session_link(item.session, "session")]
    shown = utc_of(item.at, seconds=True)
    return [el("time", {"datetime": item.at}, shown)], what, lasted(item) or "-", said
