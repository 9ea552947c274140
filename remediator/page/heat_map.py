"""The heat map: one square per node with its GPUs inside, by pool and rack.

A healthy node is one element: its GPUs are drawn by the style sheet from its class. Only a node
with a GPU that is not healthy carries one element per GPU, so 5,000 nodes stay a page that paints
at once. Colour never stands alone: every state has its own shape, and every node says its state in
words.
"""

from __future__ import annotations

import functools
import hashlib
from itertools import groupby
from urllib.parse import quote

from remediator.page.markup import Element, el
from remediator.page.parts import live
from remediator.view.fleet_view import MAX_GPUS
from remediator.view.shapes import NodeRow
from rules.text.counted import count

_DRAWN_BY_STYLE = {1, 2, 4, 8, 16}
_LEGEND = (
    ("healthy", "GPU healthy"),
    ("degraded", "degraded"),
    ("unhealthy", "unhealthy"),
    ("unknown", "unknown"),
)


def heat_map(rows: list[NodeRow]) -> list[Element]:
    """Pools with their racks; `rows` ordered by pool, rack and name."""
    return [_pool(pool, list(its)) for pool, its in groupby(rows, key=lambda row: row.pool)]


def _pool(name: str, rows: list[NodeRow]) -> Element:
    racks = [(rack, tuple(its)) for rack, its in groupby(rows, key=lambda row: row.rack)]
    nodes = f"{len(rows):,} {'node' if len(rows) == 1 else 'nodes'}"
    size = f"{nodes} in {len(racks):,} racks" if len(racks) > 1 else nodes
    ident = f"pool-{_short(name)}"
    return el(
        "section.pool",
        {"aria-labelledby": ident},
        el("h3", {"id": ident}, name, " ", el("small", size)),
        el("div.racks", [_rack(name, rack, its) for rack, its in racks]),
    )


@functools.lru_cache(maxsize=2048)
def _rack(pool: str, name: str, rows: tuple[NodeRow, ...]) -> Element:
    sick = sum(row.health != "healthy" for row in rows)
    words = (
        f"{name}: {count(len(rows), 'node')}, {sick} not healthy"
        if sick
        else f"{name}: all healthy"
    )
    return live(
        f"rack-{_short(pool, name)}",
        "div",
        {"class": "rack", "role": "group", "aria-label": words},
        el("span.name", {"aria-hidden": "true"}, name),
        [_node(row) for row in rows],
    )


def _short(*names: str) -> str:
    """An element id for names that anybody may have written."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:10]


def _node(row: NodeRow) -> Element:
    words = described(row)
    plain = row.health == "healthy" and not row.marks and row.gpus == row.gpus_healthy
    known = row.gpus in _DRAWN_BY_STYLE
    classes = ["n", row.health]
    if row.session:
        classes.append("session" if row.mode == "Enforce" else "shadow")
    elif row.unschedulable:
        classes.append("cordoned")
    if known:
        classes.append(f"g{row.gpus}")
    if plain and known:
        classes.append("even")
    attributes = {
        "class": " ".join(classes),
        "href": f"/nodes/{quote(row.name, safe='')}",
        "title": words,
        "aria-label": words,
    }
    return el("a", attributes, None if plain and known else _gpus(row))


def described(row: NodeRow) -> str:
    """A node in words: what the square shows, for those who do not see it."""
    parts = [f"{row.name}: {row.health}", f"{row.gpus_healthy} of {row.gpus} GPUs usable"]
    if row.phase:
        parts.append(row.phase if row.mode == "Enforce" else f"{row.phase} (Shadow)")
    elif row.unschedulable:
        parts.append("cordoned, not by gpuward")
    if row.ready != "True":
        parts.append("kubelet not ready")
    return ", ".join(parts)


def _gpus(row: NodeRow) -> list[Element]:
    marked = {mark.index: mark.health for mark in row.marks}
    count = min(row.gpus, MAX_GPUS)
    rest = "healthy" if marked or row.health == "degraded" else row.health
    # Without a verdict only the label's number is known: that many squares are healthy.
    words = [
        marked.get(i, "healthy" if marked or i < row.gpus_healthy else rest) for i in range(count)
    ]
    return [el(f"span.q.{word}") for word in words]


def legend() -> Element:
    """What the shapes mean."""
    return el(
        "ul.legend",
        {"aria-label": "Legend"},
        [
            el("li", el("span", {"class": f"q {word}", "aria-hidden": "true"}), text)
            for word, text in _LEGEND
        ],
        el("li", el("span.key.session", {"aria-hidden": "true"}),
           "in a session"),
        el("li", el("span.key.shadow", {"aria-hidden": "true"}),
           "Shadow session"),
        el("li", el("span.key.cordoned", {"aria-hidden": "true"}),
           "cordoned by others"),
    )  # fmt: skip
