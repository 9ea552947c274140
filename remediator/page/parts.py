"""Small pieces that every page is made of: chips, ages, tables, bars, live regions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from remediator.page.markup import Attributes, Child, Content, Element, digest, el
from remediator.view.text import age
from rules.api.timestamps import utc_of

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHAPES = {
    "healthy": "ok",
    "degraded": "warn",
    "unhealthy": "bad",
    "unknown": "dim",
    "Fatal": "bad",
    "Degraded": "warn",
    "Info": "dim",
    "Pending": "wait",
    "Marked": "act",
    "Draining": "act",
    "Quarantined": "held",
    "Repairing": "act",
    "Validating": "act",
    "Released": "ok",
    "Cancelled": "dim",
    "NodeGone": "dim",
    "Blocked": "bad",
    "NeedsHuman": "bad",
    "Storm": "warn",
    "Paused": "warn",
    "OptOut": "warn",
    "StandDown": "warn",
    "UndoneAgain": "bad",
    "NotSelected": "dim",
    "NodeUnreachable": "warn",
    "Replace": "bad",
    "RepairProposed": "warn",
    "Shadow": "dim",
    "Enforce": "act",
    "Planned": "wait",
    "Asked": "act",
    "Held": "held",
    "Proven": "ok",
    "Failed": "bad",
    "pass": "ok",
    "fail": "bad",
}
_SPELLED = {
    "NeedsHuman": "needs a person",
    "RepairProposed": "repair proposed",
    "NodeUnreachable": "node unreachable",
    "NodeGone": "node gone",
    "Replace": "replace the part",
    "Storm": "breaker holds it",
    "OptOut": "opted out",
    "StandDown": "another owner works on it",
    "UndoneAgain": "undone by a controller",
    "NotSelected": "not selected by the policy",
    "ViewTooOld": "view too old",
    "PolicyIsShadow": "policy is Shadow",
    "PolicyUnread": "no policy was read",
}


def shape_of(word: str) -> str:
    """The class that gives a state its colour."""
    return _SHAPES.get(word, "dim")


def chip(word: str) -> Element:
    """A state as a small label: the word itself, its colour only underlines it."""
    return el(f"span.chip.{shape_of(word)}", spelled(word))


def spelled(word: str) -> str:
    """A state in plain words, where it has some."""
    return _SPELLED.get(word, word)


def reason(code: str) -> Element:
    """A reason code, which may be broken between its words where there is little room."""
    words = _WORDS.split(code)
    broken: list[Child] = [words[0]]
    for word in words[1:]:
        broken.extend((el("wbr"), word))
    return el("span.reason", broken)


def ago(since: str, now: float, *, before: str = "", after: str = "") -> Element:
    """How long ago, with the exact time on hover and for machines."""
    words = age(since, now) if since else "-"
    return el(
        "time",
        {"datetime": since, "title": utc_of(since, seconds=True)},
        f"{before}{words}{after}",
    )


def node_link(name: str) -> Element:
    """The node's page."""
    return el("a", {"href": f"/nodes/{quote(name, safe='')}"}, name)


def session_link(name: str, text: str = "") -> Element:
    """The session's page."""
    return el("a", {"href": f"/sessions/{quote(name, safe='')}"}, text or name)


def live(name: str, tag: str, *content: Content | Attributes) -> Element:
    """A region that the script keeps up to date by its id."""
    region = el(tag, *content)
    named = (("id", name), ("data-digest", digest(region)))
    return Element(region.tag, (*named, *region.attributes), region.children)


def live_regions(root: Element) -> dict[str, Element]:
    """Every live region of a page, by id."""
    found: dict[str, Element] = {}
    waiting: list[Child] = [root]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            continue
        given = dict(item.attributes)
        if "data-digest" in given:
            found[given["id"]] = item
        else:
            waiting.extend(item.children)
    return found


def table(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[Content]], *, kind: str = ""
) -> Element:
    """A table whose first column names the row. On a phone each row becomes a card."""
    return el(
        "table",
        {"class": f"rows {kind}".strip()},
        el("caption.quiet", caption),
        el("thead", el("tr", [el("th", {"scope": "col"}, name) for name in header])),
        el("tbody", [_row(header, row) for row in rows]),
    )


def _row(header: Sequence[str], cells: Sequence[Content]) -> Element:
    first, *rest = zip(header, cells, strict=True)
    return el(
        "tr",
        el("th", {"scope": "row"}, first[1]),
        [el("td", {"data-label": name}, cell) for name, cell in rest],
    )


def facts(pairs: Sequence[tuple[str, Content]], *, kind: str = "") -> Element:
    """Names and values; a pair without a value is left out."""
    return el(
        "dl",
        {"class": f"facts {kind}".strip()},
        [
            el("div", el("dt", name), el("dd", value))
            for name, value in pairs
            if value not in (None, "", [], ())
        ],
    )


def bar(parts: Sequence[tuple[str, float]], label: str, *, width: int = 240) -> Element:
    """Shares of a whole side by side, as (class, share of 1)."""
    x, drawn = 0.0, []
    for kind, share in parts:
        length = max(0.0, min(share, 1.0 - x / width)) * width
        if length > 0:
            drawn.append(
                el(
                    "rect",
                    {
                        "class": kind,
                        "x": f"{x:.1f}",
                        "y": "0",
                        "width": f"{length:.1f}",
                        "height": "10",
                    },
                )
            )
        x += length
    return el(
        "svg.bar",
        {
            "role": "img",
            "aria-label": label,
            "viewBox": f"0 0 {width} 10",
            "width": str(width),
            "height": "10",
        },
        el("rect.track", {"x": "0", "y": "0", "width": str(width), "height": "10", "rx": "2"}),
        drawn,
    )


def evidence_lines(lines: Sequence[str]) -> Element:
    """Verbatim lines, one under the other."""
    return el(
        "ol.verbatim",
        {"aria-label": "evidence, verbatim"},
        [el("li", el("code", line)) for line in lines],
    )


def section(name: str, title: str, *content: Content) -> Element:
    """A titled part of a page that can be jumped to."""
    return el(
        "section",
        {"aria-labelledby": f"{name}-title", "class": f"part part-{name}"},
        el("h2", {"id": f"{name}-title"}, title),
        *content,
    )


def nothing(sentence: str) -> Element:
    """What stands where a list would be, when it is empty."""
    return el("p.nothing", sentence)
