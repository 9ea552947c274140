"""Tables of sessions, and the page that lists them all."""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote

from remediator.page.layout import page, trouble
from remediator.page.markup import Content, Element, el
from remediator.page.parts import (
    ago,
    chip,
    live,
    node_link,
    nothing,
    reason,
    section,
    session_link,
    table,
)
from remediator.view.shapes import ReplicaShown, SessionPage, SessionRow
from remediator.view.shared_waits import without

_TELLING = ("NeedsHuman", "Storm", "Paused", "OptOut", "StandDown", "NotSelected",
            "NodeUnreachable", "Replace")  # fmt: skip
"""Conditions worth a chip in a table; Blocked is said by NeedsHuman or by the sentence."""


def open_table(
    rows: list[SessionRow] | tuple[SessionRow, ...], now: float, told: str = ""
) -> Element:
    """Open sessions: node, phase, age, reason, the sentence; what several wait for is said once,
    above. `told`: what the page has said of the breaker already.
    """
    held = Counter(row.waits_for for row in rows if row.waits_for)
    shared = [(clause, nodes) for clause, nodes in held.most_common() if nodes > 1]
    listed = table(
        "Open sessions, those that need a person first",
        ("Node", "Phase", "For", "Reason", "What was done, what is next, what blocks it"),
        [
            (
                [session_link(row.name, row.node)],
                _phase(row),
                ago(row.phase_since, now),
                [reason(row.reason), *_more_causes(row)],
                without(row.message, [clause for clause, _ in shared]),
            )
            for row in rows
        ],
        kind="sessions",
    )
    # Of a list that is one page of several its own rows are counted, so it speaks of no others.
    waits = [
        el("p", f"{nodes} of those below wait: {clause}.")
        if clause != told
        else el("p", f"{nodes} of those below wait for the breaker: see above.")
        for clause, nodes in shared
    ]
    return el("div", waits, listed) if waits else listed


def ended_table(rows: list[SessionRow] | tuple[SessionRow, ...], now: float) -> Element:
    """Ended sessions: node, how it ended, when, reason."""
    return table(
        "Ended sessions, the latest first",
        ("Session", "Node", "Ended", "When", "Reason", "Evicted"),
        [
            (
                [session_link(row.name)],
                [node_link(row.node)],
                _phase(row),
                ago(row.phase_since, now, after=" ago"),
                [reason(row.reason), *_more_causes(row)],
                str(row.evicted),
            )
            for row in rows
        ],
        kind="ended",
    )


def _phase(row: SessionRow) -> Content:
    chips = [chip(row.phase)]
    if row.mode == "Shadow":
        chips.append(chip("Shadow"))
    return [*chips, *(chip(word) for word in _TELLING if word in row.conditions)]


def _more_causes(row: SessionRow) -> list[Element]:
    more = row.causes - 1
    return [el("small", f" and {more} more")] if more > 0 else []


def sessions_page(
    replica: ReplicaShown, found: SessionPage, state: str, now: float, first: bool
) -> Element:
    """One page of the list; `state` is `open` or `ended`."""
    other = "ended" if state == "open" else "open"
    make = open_table if state == "open" else ended_table
    title = "Open sessions" if state == "open" else "Ended sessions"
    body: list[Element] = (
        [make(found.items, now)] if found.items else [nothing(f"There is no {state} session.")]
    )
    here = f"/sessions?state={state}"
    links = [] if first else [el("a", {"href": here}, "First page")]
    if found.next:
        links.append(el("a", {"href": f"{here}&continue={quote(found.next)}", "rel": "next"},
                        "Next page"))  # fmt: skip
    return page(
        title,
        "/sessions",
        replica,
        trouble(replica),
        el("h1", "Sessions"),
        el(
            "nav.tabs",
            {"aria-label": "Which sessions"},
            el("a", {"href": f"/sessions?state={state}", "aria-current": "page"},
               f"{state} ({found.total:,})"),
            el("a", {"href": f"/sessions?state={other}"}, other),
        ),
        section("list", title, live("sessions", "div", body)),
        el("nav.pages", {"aria-label": "Pages of the list"}, links) if links else None,
    )  # fmt: skip
