"""The front page: what needs somebody now, what the limits allow, and the whole fleet at a
glance.
"""

from __future__ import annotations

from remediator.page import plots
from remediator.page.heat_map import heat_map, legend
from remediator.page.layout import page, trouble
from remediator.page.markup import Element, el
from remediator.page.parts import bar, chip, live, nothing, section
from remediator.page.session_table import open_table
from remediator.view.shapes import BudgetRow, Counts, FleetSummary, NodeRow, SessionRow
from rules.api.timestamps import utc_of
from rules.text.counted import count

SHOWN_SESSIONS = 25
SHOWN_BUDGETS = 12
SHOWN_FINDINGS = 5
_NODES_BEHIND = {
    "nodes": "/nodes",
    "unschedulable": "/nodes?out=yes",
    **{word: f"/nodes?health={word}" for word in ("healthy", "degraded", "unhealthy", "unknown")},
}
DENSE_FROM = 600
"""Nodes from which each takes less room."""


def fleet_page(
    fleet: FleetSummary, rows: list[NodeRow], opened: list[SessionRow], now: float
) -> Element:
    """The whole document."""
    return page(
        headline(fleet.counts),
        "/",
        fleet.replica,
        trouble(fleet.replica),
        el("h1.quiet", "Fleet"),
        live("headline", "p", {"class": "headline", "role": "status"}, headline(fleet.counts)),
        live("counts", "dl.counts", _counts(fleet.counts)),
        live("alarms", "div.alarms", _alarms(fleet)),
        section("open", "Open sessions", _sessions(opened, fleet, now)),
        section("limits", "Budget and breaker", live("limits", "div", _limits(fleet))),
        section("day", "Last day", live("trend", "div", _last_day(fleet))),
        section("map", "Nodes", _map(rows)),
    )


def headline(counts: Counts) -> str:
    """The fleet in one sentence."""
    if not counts.nodes:
        return "No agent has found a GPU yet"
    ill = [
        f"{number} {word}"
        for number, word in (
            (counts.unhealthy, "unhealthy"),
            (counts.unknown, "unknown"),
            (counts.degraded, "degraded"),
        )
        if number
    ]
    noun = "node" if counts.nodes == 1 else "nodes"
    nodes = f"{counts.nodes:,} {noun}: " + (", ".join(ill) if ill else "all healthy")
    if not counts.open_sessions:
        need = "one that ended needs" if counts.need_human == 1 else "some that ended need"
        return f"{nodes}; no open session" + (f", {need} a person" if counts.need_human else "")
    one = "session" if counts.open_sessions == 1 else "sessions"
    need = f", {counts.need_human} of them " + ("needs" if counts.need_human == 1 else "need")
    return f"{nodes}; {counts.open_sessions} open {one}" + (
        f"{need} a person" if counts.need_human else ""
    )


def _counts(counts: Counts) -> list[Element]:
    shown = (
        ("nodes", counts.nodes, ""),
        ("healthy", counts.healthy, "ok"),
        ("degraded", counts.degraded, "warn"),
        ("unhealthy", counts.unhealthy, "bad"),
        ("unknown", counts.unknown, "dim"),
        ("unschedulable", counts.unschedulable, ""),
    )
    tiles = [
        el(
            "div",
            {"class": f"count {kind if number else 'zero'}".strip()},
            el("dt", name),
            el(
                "dd",
                el("a", {"href": _NODES_BEHIND[name],
                         "aria-label": f"{number:,} {name}: list them"},
                   f"{number:,}"),
            ),
        )
        for name, number, kind in shown
    ]  # fmt: skip
    unseen = counts.gpus - counts.gpus_seen
    gpus = el(
        "div.count.wide",
        el("dt", "usable GPUs"),
        el(
            "dd", f"{counts.gpus_healthy:,}",
            el("small", f" of {counts.gpus_seen:,} seen"),
            el("small", f", {unseen:,} not seen") if unseen else None,
        ),
    )  # fmt: skip
    return [*tiles, gpus]


def _alarms(fleet: FleetSummary) -> list[Element]:
    found = _blind(fleet.counts)
    if fleet.breaker.open:
        found.append(
            el("p.banner.warn", el("strong", "The breaker is open. "),
               sentence(fleet.breaker.message))
        )  # fmt: skip
    for pause in fleet.pauses:
        by = f" by {pause.by}" if pause.by else ""
        until = utc_of(pause.until) or "somebody ends it"
        found.append(
            el("p.banner.warn", el("strong", f"Paused{by}. "),
               f"{pause.scope}, until {until}: {pause.reason or 'no reason given'}")
        )  # fmt: skip
    told = [one for one in fleet.findings[:SHOWN_FINDINGS] if one not in fleet.breaker.message]
    return [*found, *(el("p.banner.warn", sentence(finding)) for finding in told)]


def _blind(counts: Counts) -> list[Element]:
    """Most GPUs unseen: then a calm page means nothing, and that is the first thing to say."""
    unseen = counts.gpus - counts.gpus_seen
    if unseen * 2 <= counts.gpus:
        return []
    told = (
        f"{unseen:,} of {counts.gpus:,}: their agents are silent or blind, so nothing is known of "
        "them and nothing is done. Look at the agents: "
    )
    return [
        el("p.banner.bad", {"role": "alert"},
           el("strong", "Most GPUs are not seen. "), told,
           el("code", "kubectl get pods -A -l app.kubernetes.io/component=agent -o wide"))
    ]  # fmt: skip


def sentence(text: str) -> str:
    """A clause of the rules as a sentence of its own."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _sessions(opened: list[SessionRow], fleet: FleetSummary, now: float) -> list[Element]:
    shown = opened[:SHOWN_SESSIONS]
    body = (
        [open_table(shown, now, told=fleet.breaker.message)]
        if shown
        else [nothing("No node is in quarantine and none is waiting to be.")]
    )
    if len(opened) > len(shown):
        body.append(
            el("p.more",
               el("a", {"href": "/sessions"}, f"All {len(opened):,} open sessions"))
        )  # fmt: skip
    return [live("sessions", "div", body)]


def _limits(fleet: FleetSummary) -> list[Element | None]:
    breaker = fleet.breaker
    state = (
        el("p", chip("Storm"), " Why and until when: above.")
        if breaker.open
        else el("p.calm", "Breaker closed: it holds nothing back.")
    )
    full = sorted((row for row in fleet.budgets[1:] if not row.room), key=lambda row: row.scope)
    shown = [*fleet.budgets[:1], *full[: SHOWN_BUDGETS - 1]]
    hidden = len(fleet.budgets) - len(shown)
    without = len(full) + 1 - len(shown)
    return [
        state,
        el("ul.budgets", [_budget(row) for row in shown]),
        el(
            "p.more",
            f"{count(hidden, 'more budget')}"
            + (f", {without:,} of them without room." if without else " with room."),
        )
        if hidden
        else None,
    ]


def _last_day(fleet: FleetSummary) -> list[Element]:
    """Whether it gets worse: sessions hour by hour; a calm day needs no plot."""
    total = sum(fleet.last_day)
    if not total:
        return [nothing("No session was opened in the last 24 hours.")]
    hours = len(fleet.last_day)
    values = [
        (f"-{hours - at} h" if at % 6 == 0 else "", count)
        for at, count in enumerate(fleet.last_day)
    ]
    return [plots.columns(f"Sessions opened in the last 24 hours: {total:,}", values)]


def _budget(row: BudgetRow) -> Element:
    words = f"{row.unavailable:,} unavailable, {row.limit:,} allowed"
    share = row.unavailable / row.limit if row.limit else 1.0
    full = "bad" if row.unavailable > row.limit else "warn" if row.room == 0 else "ok"
    return el(
        "li",
        el("span.scope", {"title": row.scope}, row.scope.rpartition("/")[2]),
        bar([(full, min(share, 1.0))], words),
        el("span.words", f"{words}, room for {row.room:,} more; {row.nodes:,} nodes in all"),
    )


def _map(rows: list[NodeRow]) -> list[Element]:
    if not rows:
        return [nothing("No node carries the label gpuward.io/gpus; look at the agent's pods.")]
    size = "heat dense" if len(rows) > DENSE_FROM else "heat"
    return [legend(), el("div", {"class": size}, heat_map(rows))]
