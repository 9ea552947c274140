"""What is served at each address: from a state to HTML text or a JSON value. Pure.

`site` calls these in a worker thread, on a state that does not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from remediator.page.fleet_page import fleet_page
from remediator.page.history_page import history_page
from remediator.page.layout import page
from remediator.page.markup import Element, as_tree, el
from remediator.page.node_page import gone_node_page, node_page
from remediator.page.nodes_page import found_page, nodes_page
from remediator.page.parts import live_regions
from remediator.page.runbook_page import runbook_page
from remediator.page.session_page import session_page
from remediator.page.session_table import sessions_page
from remediator.view import shapes
from remediator.view.fleet_view import HEALTHS, node_rows, summary
from remediator.view.history_view import history
from remediator.view.lists.paging import RequestError, page_of
from remediator.view.lists.search import MOST_FOUND, search
from remediator.view.node_view import moved_shown, node_detail
from remediator.view.session_view import (
    ended_rows,
    open_rows,
    rows_of,
    session_detail,
    urgency,
)
from remediator.view.state import PageState
from remediator.view.timeline import node_timeline
from rules.api.timestamps import format_time, parse_time
from rules.fleet.happenings import records_by_now
from rules.ledger.places import went_to

NODES_PER_PAGE = 500
MOST_REGIONS = 64
MOST_READS = 5
MOST_ASKED = 253
Query = Mapping[str, str]


class NotThereError(Exception):
    """There is nothing at this address; one sentence."""


def api_fleet(state: PageState) -> shapes.FleetSummary:
    """`/api/fleet`."""
    return summary(state, node_rows(state))


def api_nodes(state: PageState, query: Query) -> shapes.NodePage:
    """`/api/nodes`: every GPU node by pool, rack and name."""
    rows = node_rows(state)
    if wanted := query.get("health"):
        rows = [row for row in rows if row.health == wanted]
    items, token = page_of(rows, _place, query, NODES_PER_PAGE)
    return shapes.NodePage(items=tuple(items), next=token, total=len(rows))


def _place(row: shapes.NodeRow) -> tuple[str, str, str]:
    return row.pool, row.rack, row.name


def api_node(state: PageState, name: str) -> shapes.NodeDetail:
    """`/api/nodes/NAME`."""
    node = state.snapshot.nodes.get(name)
    if node is None:
        raise NotThereError(f"No GPU node {name} is known; /api/nodes lists them.")
    return node_detail(node, state)


def api_sessions(state: PageState, query: Query) -> shapes.SessionPage:
    """`/api/sessions`: open ones by urgency, or ended ones, the latest first."""
    wanted = query.get("state", "open")
    if wanted not in {"open", "ended"}:
        raise RequestError("state must be open or ended.")
    if wanted == "open":
        rows = open_rows(state)
        items, token = page_of(rows, urgency, query)
    else:
        rows = ended_rows(state)
        items, token = page_of(rows, _latest, query)
    return shapes.SessionPage(items=tuple(items), next=token, total=len(rows))


def _latest(row: shapes.SessionRow) -> tuple[float, str]:
    return -(parse_time(row.phase_since) or 0.0), row.name


def api_session(state: PageState, name: str) -> shapes.SessionDetail:
    """`/api/sessions/NAME`."""
    session = state.snapshot.quarantines.get(name)
    if session is None:
        raise NotThereError(f"There is no session {name}; /api/sessions lists them.")
    return session_detail(session, state)


def api_history(state: PageState) -> shapes.HistoryShown:
    """`/api/history`."""
    return history(state)


def document_of(state: PageState, path: str, query: Query) -> Element:
    """The page at a path of this site; NotThereError where there is none."""
    replica, now = state.replica(), state.now
    match path.strip("/").split("/"):
        case [""]:
            rows = node_rows(state)
            return fleet_page(summary(state, rows), rows, open_rows(state), now)
        case ["sessions"]:
            found, wanted = api_sessions(state, query), query.get("state", "open")
            return sessions_page(replica, found, wanted, now, first="continue" not in query)
        case ["sessions", name]:
            return session_page(api_session(state, unquote(name)), replica, now)
        case ["nodes"]:
            return _nodes(state, query)
        case ["docs", "runbooks", *_]:
            # The script asks for what changes: the frame around the text.
            return page("Runbook", "", replica)
        case ["nodes", name]:
            return _node(state, unquote(name))
        case ["history"]:
            return history_page(history(state), ended_rows(state), replica, now)
    raise NotThereError(f"There is no page {path}; the fleet is at /.")


def runbook_of(state: PageState, path: str) -> str:
    """The HTML of a runbook at a path of this site; NotThereError where there is none."""
    name = unquote(path).removeprefix("/docs/runbooks/")
    try:
        return runbook_page(name, state.replica())
    except KeyError:
        raise NotThereError(f"There is no runbook {name[:200]}.") from None


def _node(state: PageState, name: str) -> Element:
    """`/nodes/NAME`: also of one that is gone and has a past."""
    past = state.by_node.get(name)
    if name in state.snapshot.nodes or not past:
        return node_page(api_node(state, name), state.replica(), state.now)
    records = records_by_now(name, None, None, past, state.snapshot.records.values(), state.now)
    happened = node_timeline(name, past, None, records, state.now)
    snapshot = state.snapshot
    moved = moved_shown(went_to(name, snapshot.healths.values(), snapshot.records.values()))
    return gone_node_page(name, rows_of(past), happened, moved, state.replica(), state.now)


def _nodes(state: PageState, query: Query) -> Element:
    """`/nodes`: those behind a count, or those that a search found."""
    if asked := query.get("search", "").strip()[:MOST_ASKED]:
        return found_page(state.replica(), asked, search(state, asked), MOST_FOUND)
    rows = sorted(node_rows(state), key=_gravity)
    title, address = "All nodes", "/nodes?"
    if wanted := query.get("health"):
        if wanted not in HEALTHS:
            raise RequestError(f"health must be one of {', '.join(HEALTHS)}.")
        rows = [row for row in rows if row.health == wanted]
        title, address = f"Nodes that are {wanted}", f"/nodes?health={wanted}"
    elif query.get("out"):
        rows = [row for row in rows if row.unschedulable]
        title, address = "Nodes out of service", "/nodes?out=yes"
    items, token = page_of(rows, _gravity, query, NODES_PER_PAGE)
    return nodes_page(state.replica(), items, f"{title} ({len(rows):,})", token, address)


def _gravity(row: shapes.NodeRow) -> tuple[int, str]:
    return HEALTHS.index(row.health), row.name


def nodes_to_read(state: PageState, path: str) -> list[str]:
    """Healthy nodes whose verdict a page or an answer shows: they are not watched closely."""
    match path.removeprefix("/api").strip("/").split("/"):
        case ["nodes", name]:
            wanted = [unquote(name)]
        case ["sessions", name]:
            session = state.snapshot.quarantines.get(unquote(name))
            wanted = [session.spec.node_name] if session else []
        case ["history"]:
            unnamed = [one for one in api_history(state).gpus if not one.gpu.serial]
            wanted = [node for one in unnamed for node in one.nodes[-1:]]
        case _:
            wanted = []
    there = state.snapshot.nodes
    found = [name for name in dict.fromkeys(wanted) if name in there and not state.health(name)]
    return found[:MOST_READS]


def api_live(document: Element, state: PageState, wanted: list[str]) -> shapes.LivePage:
    """`/api/live`: digests of a page's regions, and the regions that were asked for."""
    regions = live_regions(document)
    return shapes.LivePage(
        at=format_time(state.now),
        digests={name: dict(one.attributes)["data-digest"] for name, one in regions.items()},
        regions={
            name: as_tree(regions[name]) for name in wanted[:MOST_REGIONS] if name in regions
        },
    )


def split_page(page_address: str) -> tuple[str, dict[str, str]]:
    """Path and query of the page that the script stands on."""
    if not page_address.startswith("/") or len(page_address) > 4096:
        raise RequestError("page must be the path of a page of this site, for example /.")
    try:
        parts = urlsplit(page_address)
        return parts.path, dict(parse_qsl(parts.query, max_num_fields=8))
    except ValueError:
        raise RequestError("page is not an address that can be read.") from None


def find(state: PageState, name: str) -> str:
    """Where a search goes: the node or session of that name, the only one that it may mean, else
    the list of all. An address on this server, quoted.
    """
    name = name.strip()[:MOST_ASKED]
    if name in state.snapshot.nodes:
        return f"/nodes/{quote(name, safe='')}"
    if name in state.snapshot.quarantines:
        return f"/sessions/{quote(name, safe='')}"
    found = search(state, name)
    if not found:
        raise NotThereError(
            f"No node and no session is called {name}, and no GPU of a sick node or on record. A "
            "part of a name, a serial number or a UUID is enough."
        )
    if len(found) == 1:
        only = found[0]
        past = state.by_node.get(only.name)
        if only.node is not None:
            return f"/nodes/{quote(only.name, safe='')}"
        if past:
            return f"/sessions/{quote(past[-1].name, safe='')}"
    return f"/nodes?search={quote(name, safe='')}"


def problem_page(state: PageState, title: str, sentence: str) -> Element:
    """A page that says why there is nothing else to show."""
    return page(
        title,
        "",
        state.replica(),
        el("h1", title),
        el("p.sentence", sentence),
        el("p", el("a", {"href": "/"}, "To the fleet")),
    )
