"""Nodes as a list: those behind a count of the front page, or those that a search found."""

from __future__ import annotations

from urllib.parse import quote

from remediator.page.layout import page, trouble
from remediator.page.markup import Child, Content, Element, el
from remediator.page.parts import chip, live, node_link, nothing, reason, section, table
from remediator.view.shapes import FoundRow, NodeRow, ReplicaShown

_ROWS = ("Node", "Health", "Usable GPUs", "Session", "Rack")


def nodes_page(
    replica: ReplicaShown, rows: list[NodeRow], title: str, more: str, address: str
) -> Element:
    """`rows` with the sick first; `more` continues the list at `address`, "" on its last page."""
    body: Element = (
        table(title, _ROWS, [_row(row) for row in rows]) if rows else nothing("There is none.")
    )
    link = (
        el("nav.pages", {"aria-label": "Pages of the list"},
           el("a", {"href": f"{address}&continue={quote(more)}", "rel": "next"}, "Next page"))
        if more
        else None
    )  # fmt: skip
    return page(
        title, "", replica, trouble(replica), el("h1", "Nodes"),
        section("list", title, live("nodes", "div", body)), link,
    )  # fmt: skip


def found_page(replica: ReplicaShown, asked: str, found: list[FoundRow], most: int) -> Element:
    """What a search found, or that it found nothing and what it looks at."""
    title = f"{len(found)} found for {asked}"
    if not found:
        body: list[Element] = [
            nothing(
                "Nothing has it in its name, and no GPU of a sick node or on record has it in its "
                "serial number or UUID."
            )
        ]
    else:
        body = [
            table(title, ("Node", "Health", "Session", "Found by"), [_found(one) for one in found])
        ]
    if len(found) >= most:
        body.append(el("p.more", f"The first {most}; write more of the name."))
    return page(
        title, "", replica, trouble(replica), el("h1", "Search"),
        section("list", title, live("found", "div", body)),
    )  # fmt: skip


def _row(row: NodeRow) -> tuple[Content, ...]:
    health: list[Child] = [chip(row.health)]
    sick = next((mark.reason for mark in row.marks if mark.reason), "")
    if sick:
        health += [" ", reason(sick)]
    return (
        [node_link(row.name)],
        health,
        f"{row.gpus_healthy} of {row.gpus}",
        [chip(row.phase)] if row.phase else "cordoned by others" if row.unschedulable else "-",
        row.rack,
    )


def _found(found: FoundRow) -> tuple[Content, ...]:
    row = found.node
    return (
        [node_link(found.name)] if row is not None else f"{found.name} (gone)",
        [chip(row.health)] if row is not None else "-",
        [chip(row.phase)] if row is not None and row.phase else "-",
        found.why,
    )
