"""History: is the fleet getting worse, how long do drains take, and which parts keep failing."""

from __future__ import annotations

from remediator.page import plots
from remediator.page.layout import page, trouble
from remediator.page.markup import Element, el
from remediator.page.parts import (
    ago,
    chip,
    facts,
    live,
    node_link,
    nothing,
    section,
    table,
)
from remediator.page.session_table import ended_table
from remediator.view.shapes import DrainTimes, GpuOffender, HistoryShown, ReplicaShown, SessionRow
from remediator.view.text import duration

SHOWN_REASONS = 10
SHOWN_ENDED = 25
SHOWN_OFFENDERS = 10
"""`/api/history` names more."""


def history_page(
    past: HistoryShown, ended: list[SessionRow], replica: ReplicaShown, now: float
) -> Element:
    """The whole document."""
    return page(
        "History",
        "/history",
        replica,
        trouble(replica),
        el("h1", "History"),
        el("p.under", _scope(past)),
        section("trend", "Trend", live("plots", "div.plots", _plots(past))),
        section("nodes", "Repeat offenders by node", live("nodes", "div", _nodes(past, now))),
        section("gpus", "Repeat offenders by GPU", live("gpus", "div", _gpus(past, now))),
        section("ended", "Ended sessions", live("ended", "div", _ended(ended, now))),
    )


def _scope(past: HistoryShown) -> str:
    one = "session" if past.sessions == 1 else "sessions"
    return (
        f"{past.sessions:,} {one} on record, {past.ended:,} ended; the policy says how long they "
        "are kept."
    )


def _plots(past: HistoryShown) -> list[Element]:
    weeks = [(week.start[5:], week.sessions) for week in past.weeks]
    reasons = [(one.reason, one.sessions) for one in past.reasons[:SHOWN_REASONS]]
    return [
        plots.columns("Quarantines opened per week (from Monday, UTC)", weeks),
        el("div.beside", _drain_times(past.drain_times)),
        plots.rows("Top reasons", reasons)
        if reasons
        else nothing("No reason yet: no session was opened."),
    ]


def _drain_times(times: DrainTimes) -> list[Element]:
    if not times.drains:
        return [nothing("No drain has finished yet.")]
    return [
        plots.columns("Time to drain (drains that took up to)", list(times.buckets)),
        facts(
            [
                ("Drains", f"{times.drains:,}"),
                ("Median", duration(times.median_seconds)),
                ("90 % within", duration(times.p90_seconds)),
                ("Longest", duration(times.longest_seconds)),
            ],
            kind="inline",
        ),
    ]


def _nodes(past: HistoryShown, now: float) -> list[Element]:
    if not past.nodes:
        return [nothing("No node has been in quarantine twice.")]
    return [
        table(
            "Nodes with more than one session",
            ("Node", "Sessions", "Last", "Reasons"),
            [
                (
                    [node_link(one.node)],
                    str(one.sessions),
                    ago(one.last_opened, now, after=" ago"),
                    [chip("Replace") if one.replace else None, " ", ", ".join(one.reasons)],
                )
                for one in past.nodes[:SHOWN_OFFENDERS]
            ],
        )
    ]


def _gpus(past: HistoryShown, now: float) -> list[Element]:
    if not past.gpus:
        return [nothing("No GPU was named by two sessions.")]
    return [
        table(
            "GPUs that several sessions name",
            ("GPU", "Serial", "Nodes", "Sessions", "Last", "Reasons"),
            [_gpu(one, now) for one in past.gpus[:SHOWN_OFFENDERS]],
        )
    ]


def _gpu(one: GpuOffender, now: float) -> tuple[Element | str, ...]:
    return (
        el("code.long", one.gpu.uuid),
        one.gpu.serial or "not known",
        el("span", [part for name in one.nodes[:4] for part in (node_link(name), " ")]),
        str(one.sessions),
        ago(one.last_opened, now, after=" ago"),
        ", ".join(one.reasons),
    )


def _ended(ended: list[SessionRow], now: float) -> list[Element]:
    if not ended:
        return [nothing("No session has ended yet.")]
    shown = ended[:SHOWN_ENDED]
    link = el("a", {"href": "/sessions?state=ended"}, f"All {len(ended):,} ended sessions")
    more = el("p.more", link)
    return [ended_table(shown, now), *([more] if len(ended) > len(shown) else [])]
