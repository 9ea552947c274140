"""Records: which parts fail again and again, how often things fail, and which repairs hold."""

from __future__ import annotations

from remediator.page import plots
from remediator.page.layout import page, trouble
from remediator.page.markup import Content, Element, el
from remediator.page.parts import ago, chip, facts, live, node_link, nothing, section, table
from remediator.view.ledger_view import (
    RateRow,
    RecordRow,
    ShareRow,
    StatsShown,
    SurvivalRow,
    is_node,
)
from remediator.view.shapes import ReplicaShown
from remediator.view.text import duration
from rules.text.counted import count

SHOWN = 25
SHOWN_GROUPS = 10
"""`/api/records` names more."""
_CURVE_DAYS = 28


def records_page(found: StatsShown, replica: ReplicaShown, now: float) -> Element:
    """The whole document."""
    lemons = [row for row in found.records if row.lemon]
    others = [row for row in found.records if not row.lemon]
    return page(
        "Records",
        "/records",
        replica,
        trouble(replica),
        el("h1", "Records"),
        el("p.under", _scope(found)),
        section("lemons", "Lemons", live("lemon-rows", "div", _rows(lemons, now, "lemon"))),
        section("rates", _rates_title(found), live("rate-rows", "div", _rates(found))),
        section("repairs", "Repairs and drains", live("repair-rows", "div", _repairs(found))),
        section("all", "Likeliest to fail again", live("rows", "div", _rows(others, now, ""))),
    )


def _rates_title(found: StatsShown) -> str:
    return "Faults" if found.young else "Faults per 1,000 GPU-days"


def _scope(found: StatsShown) -> str:
    return (
        f"{count(found.total.faults, 'fault')} in {found.over}."
        f"{' Too short for rates: look at the counts.' if found.young else ''}"
        f"{_gone(found)} "
        "A lemon is never a cause: it changes how a fault is repaired."
    )


def _gone(found: StatsShown) -> str:
    """What the tables leave out, a sentence each."""
    nodes = count(found.elsewhere, "fault")
    said = [f" {nodes} on nodes that are gone: in no rate."] if found.elsewhere else []
    said += [f" {old.clause}: in no row below." for old in found.old_groups[:SHOWN_GROUPS]]
    return "".join(said)


def _rows(rows: list[RecordRow], now: float, what: str) -> list[Element]:
    if not rows:
        return [nothing("No lemon." if what else "Nothing else is on record.")]
    return [
        table(
            "Lemons, the likeliest to fail first" if what else "GPUs and nodes on record",
            ("What", "Serial", "Node", "Faults", "Back", "Return in 7 days", "Last", "Reason"),
            [_row(row, now) for row in rows[:SHOWN]],
        )
    ]


def _row(row: RecordRow, now: float) -> tuple[Content, ...]:
    name = "the node" if is_node(row) else row.uuid
    return (
        [chip("Lemon") if row.lemon else None, " ", el("code.long", name)],
        row.serial or "not known",
        [node_link(row.node)] if row.node else "not known",
        str(row.faults),
        str(row.came_back),
        f"{row.score} %",
        ago(row.last_at, now, after=" ago"),
        row.last_reason,
    )


def _rates(found: StatsShown) -> list[Element]:
    drawn = []
    for title, rows in (
        ("product", found.by_product),
        ("driver", found.by_driver),
        ("rack", found.by_rack),
        ("reason", found.by_reason),
    ):
        if any(row.faults for row in rows):
            counts = [(row.group, row.faults) for row in rows[:SHOWN_GROUPS]]
            drawn.append(plots.rows(f"Faults by {title}", counts))
            drawn.append(_rate_table(title, rows, young=found.young))
    return drawn or [nothing("No fault is on record.")]


def _rate_table(title: str, rows: tuple[RateRow, ...], *, young: bool) -> Element:
    """Counts alone where the time is too short: a rate of hours would be any number."""
    header = (title.capitalize(), "Faults", "GPU-days", "Rate", "Between")
    shown = len(header) - (2 if young else 0)
    return table(
        f"Faults by {title}"
        if young
        else f"Faults per 1,000 GPU-days by {title}, with 95 % intervals",
        header[:shown],
        [_rate(row)[:shown] for row in rows[:SHOWN_GROUPS]],
    )


def _rate(row: RateRow) -> tuple[str, ...]:
    return (
        row.group,
        str(row.faults),
        f"{row.gpu_days:,}",
        _per(row.rate),
        f"{_per(row.low)} and {_per(row.high)}",
    )


def _per(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.2f}"


def _repairs(found: StatsShown) -> list[Element]:
    out = found.out
    return [
        facts(
            [
                ("Absences", f"{out.absences:,}"),
                ("Median", duration(3600 * out.median)),
                ("90 % within", duration(3600 * out.p90)),
                ("In all", duration(3600 * out.total)),
                ("Drains that a person undid", _share(found.undone)),
            ],
            kind="inline",
        ),
        table(
            "Repair steps after which a week went by without a fault",
            ("Step", "Held"),
            [(step.what, _share(step)) for step in found.steps],
        )
        if found.steps
        else nothing("No repair step can be judged yet."),
        *_lasting(found.survival),
    ]


def _lasting(rows: tuple[SurvivalRow, ...]) -> list[Element]:
    """How long repairs last, drawn and as a table."""
    if not rows:
        return []
    drawn = [(row.what, row.curve) for row in rows]
    return [
        plots.curves("Percent of nodes still well, by days after the repair", _CURVE_DAYS, drawn),
        table(
            "How long repairs last, by step",
            ("Step", "Repairs", "Well after 1 day", "7 days", "28 days", "Half failed after"),
            [
                (
                    row.what,
                    str(row.repairs),
                    *(_percent(share) for share in (row.day1, row.day7, row.day28)),
                    "not yet" if row.half_days is None else f"{row.half_days} days",
                )
                for row in rows
            ],
        ),
    ]


def _percent(share: int | None) -> str:
    return "not known yet" if share is None else f"{share} %"


def _share(row: ShareRow) -> str:
    if not row.of:
        return "none to judge by yet"
    return f"{row.hits} of {row.of}, {row.percent} % ({row.low} to {row.high})"
