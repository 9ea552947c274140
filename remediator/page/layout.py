"""The frame around every page: head, navigation, search, footer. Works without the script."""

from __future__ import annotations

from markupsafe import Markup

from remediator.page.markup import Content, Element, document, el, render
from remediator.page.parts import chip, live
from remediator.view.shapes import ReplicaShown
from rules.api.timestamps import utc_of

PLACES = (
    ("/", "Fleet"),
    ("/sessions", "Sessions"),
    ("/history", "History"),
)


def page(title: str, here: str, replica: ReplicaShown, *content: Content) -> Element:
    """A whole document. `here` is the address of the navigation entry that is current."""
    return el(
        "html",
        {"lang": "en"},
        _head(title),
        el(
            "body",
            el("a.skip", {"href": "#main"}, "Skip to the content"),
            _header(here, replica),
            el("main", {"id": "main", "tabindex": "-1"}, *content),
            _footer(replica),
        ),
    )


def frame(title: str, replica: ReplicaShown) -> dict[str, Markup]:
    """The parts of `templates/base.html` around the content of a page."""
    parts = {"head": _head(title), "header": _header("", replica), "footer": _footer(replica)}
    return {name: Markup(render(part)) for name, part in parts.items()}  # noqa: S704 (escaped)


def _head(title: str) -> Element:
    return el(
        "head",
        el("meta", {"charset": "utf-8"}),
        el("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        el("meta", {"name": "color-scheme", "content": "light dark"}),
        el("link", {"rel": "icon", "type": "image/svg+xml", "href": "/static/icon.svg"}),
        [
            el("link", {"rel": "stylesheet", "href": f"/static/{name}.css"})
            for name in ("page", "parts", "details", "map")
        ],
        el("script", {"src": "/static/page.js", "defer": "defer"}),
        el("title", f"{title} · gpuward"),
    )


def opening() -> str:
    """What every page begins with, whatever it shows: with it a browser can fetch what all pages
    look like while this one is made.
    """
    whole = document(el("html", {"lang": "en"}, _head("")))
    return whole[: whole.index("<title>")]


def _header(here: str, replica: ReplicaShown) -> Element:
    return el(
        "header.top",
        el("a.brand", {"href": "/"}, "gpuward"),
        el(
            "nav",
            {"aria-label": "Pages"},
            [_place(address, name, here) for address, name in PLACES],
        ),
        el(
            "form.find",
            {"role": "search", "method": "get", "action": "/find"},
            el("label.quiet", {"for": "find"}, "Node, session, GPU serial or UUID"),
            el(
                "input",
                {
                    "id": "find",
                    "name": "name",
                    "type": "search",
                    "placeholder": "node or serial",
                    "maxlength": "253",
                    "autocomplete": "off",
                    "spellcheck": "false",
                },
            ),
            el("button", {"type": "submit"}, "Find"),
        ),
        live("mode", "p.mode", _mode(replica)),
    )


def _mode(replica: ReplicaShown) -> list[Element]:
    what = {
        "Shadow": "Shadow: nothing is touched; sessions say what would be done",
        "Enforce": "Enforce: nodes are marked and drained",
    }.get(replica.mode, replica.mode)
    return [el("span", {"title": what}, chip(replica.mode))]


def _place(address: str, name: str, here: str) -> Element:
    current = {"aria-current": "page"} if address == here else {}
    return el("a", {"href": address, **current}, name)


def _footer(replica: ReplicaShown) -> Element:
    role = "leads" if replica.leading else "stands by"
    return el(
        "footer",
        el(
            "p",
            f"State of {utc_of(replica.at, seconds=True)}, from "
            f"{replica.identity or 'this replica'}, which {role}. "
            "Read-only: people act with kubectl gpuward. ",
            el("span", {"id": "pulse"}),
        ),
        el("p", "The same as JSON: ", el("a", {"href": "/api/fleet"}, "/api/fleet"), ", ",
           el("a", {"href": "/api/nodes"}, "/api/nodes"), ", ",
           el("a", {"href": "/api/sessions"}, "/api/sessions"), ", ",
           el("a", {"href": "/api/history"}, "/api/history"), ", schema at ",
           el("a", {"href": "/api/schema"}, "/api/schema"), "."),
    )  # fmt: skip


def trouble(replica: ReplicaShown) -> Element:
    """A banner while the replica does not see everything, one while the one that leads cannot act,
    and one while its policy is not that of its file; an empty region otherwise.
    """
    said = (
        ("The view is incomplete or old. ", replica.problem),
        ("The remediator leads and cannot act. ", replica.leader_problem),
        ("The policy file is not valid. ", replica.policy_problem),
    )
    banners = [el("p.banner.bad", el("strong", what), why) for what, why in said if why]
    return live("trouble", "div", {"role": "status"}, banners)
