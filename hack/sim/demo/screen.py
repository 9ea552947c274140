"""What a person sees: a live table of the nodes that matter, and the table at the end."""

from __future__ import annotations

import time

from rich.console import Console, Group, OverflowMethod
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hack.sim.demo.ledger import Ledger
from hack.sim.demo.outcome import Act, Outcome
from hack.sim.demo.stage import Stage

_LOWEST = 16
"""Rows that the view needs to be worth looking at."""
NARROW = 110
"""Columns from which the last table is a table."""
_LINES_OF_ACT = 3
"""Of an act where it is none."""
COLOURS = {
    "Pending": "yellow",
    "Marked": "yellow",
    "Draining": "dark_orange",
    "Quarantined": "red",
    "Repairing": "yellow",
    "Validating": "cyan",
    "Released": "green",
    "Cancelled": "green",
    "NodeGone": "grey50",
}
ENDED = frozenset({"Released", "Cancelled", "NodeGone"})
HEALTH_COLOURS = {
    "healthy": "green",
    "degraded": "yellow",
    "unhealthy": "red",
    "unknown": "magenta",
}


def live(
    stage: Stage,
    playing: list[Act],
    done: dict[str, Outcome],
    began: float,
    console: Console,
    *,
    ended: bool = False,
    above: str = "",
) -> Group:
    """The view while the demo runs, as much of it as the terminal is high: what is cut off at its
    end would be the acts and the line to look around with. `ended`: nothing more is played, and
    what was said of that above has scrolled away. `above`: the line printed last before it, there
    to be copied; it stays in sight unless the terminal is too low for both.
    """
    room = console.height - -(-len(above) // console.width)
    room = room if room >= _LOWEST else console.height
    look = f"kubectl --kubeconfig {stage.kubeconfig} get gq"

    def view(rows: int | None, *, whole: bool) -> Group:
        return Group(
            _fleet_line(stage.ledger, stage.page_url),
            _nodes(stage, rows, whole=whole),
            _acts(playing, done),
            *([Text(_ended(playing, done), style="bold")] if ended else []),
            Text(f"{time.monotonic() - began:4.0f} s · {look}", overflow="ellipsis", no_wrap=True),
        )

    full = view(None, whole=True)
    if _lines(full, console) <= room:
        return full
    short = view(None, whole=False)
    over = _lines(short, console) - room
    return short if over <= 0 else view(len(_shown(stage)) - over - 1, whole=False)


def _ended(playing: list[Act], done: dict[str, Outcome]) -> str:
    true = sum(act.name in done and done[act.name].true for act in playing)
    return (
        f"{true} of {len(playing)} acts as expected; the fleet stays up to look around, "
        "Ctrl-C ends it"
    )


def _lines(view: Group, console: Console) -> int:
    return len(console.render_lines(view, pad=False))


def _shown(stage: Stage) -> list[str]:
    """The nodes of the table: with an agent or a session."""
    with_sessions = {s["spec"]["nodeName"] for s in stage.ledger.sessions.values()}
    return sorted({*stage.cast.with_agents, *with_sessions})


def _matters(stage: Stage, name: str) -> int:
    """What is to be seen first where not all fits: open sessions, then sick nodes."""
    labels = stage.ledger.nodes.get(name, {}).get("metadata", {}).get("labels") or {}
    phase = stage.ledger.status(name).get("phase", "")
    if phase and phase not in ENDED:
        return 0
    return 1 if labels.get("gpuward.io/health") in {"unhealthy", "degraded"} else 2


def _fleet_line(ledger: Ledger, page_url: str) -> Panel:
    """A square for each node, under the page's address: what is said above has scrolled away."""
    squares = Text()
    for name in sorted(ledger.nodes):
        labels = ledger.nodes[name]["metadata"].get("labels") or {}
        colour = HEALTH_COLOURS.get(labels.get("gpuward.io/health", ""), "grey50")
        out = ledger.nodes[name]["spec"].get("unschedulable")
        squares.append("▣ " if out else "■ ", style=colour)
    title = f"fleet (▣ out of service) · {page_url}/"
    return Panel(squares, title=title, title_align="left")


def _nodes(stage: Stage, rows: int | None, *, whole: bool) -> Table:
    """A row for each node; `rows` of them at most, the ones that matter; one line each unless
    `whole`.
    """
    table = Table(expand=True, box=None, pad_edge=False)
    for column, width in (("node", 12), ("health", 10), ("phase", 12)):
        table.add_column(column, min_width=width, no_wrap=True)
    how: OverflowMethod = "fold" if whole else "ellipsis"
    table.add_column("what is going on", overflow=how, no_wrap=not whole, ratio=1)
    ledger = stage.ledger
    names = _shown(stage)
    chosen = names
    if rows is not None:
        chosen = sorted(sorted(names, key=lambda name: _matters(stage, name))[: max(rows, 1)])
    before = ""
    for name in chosen:
        labels = ledger.nodes.get(name, {}).get("metadata", {}).get("labels") or {}
        health = labels.get("gpuward.io/health", "-")
        status = ledger.status(name)
        phase = status.get("phase", "")
        said = status.get("message") or ledger.healths.get(name, {}).get("status", {}).get(
            "message", ""
        )
        table.add_row(
            name,
            Text(health, style=HEALTH_COLOURS.get(health, "")),
            Text(phase, style=COLOURS.get(phase, "")),
            Text("the same" if said == before else said),
        )
        before = said
    if len(chosen) < len(names):
        table.add_row("...", "", "", f"and {len(names) - len(chosen)} more nodes")
    return table


def _acts(playing: list[Act], done: dict[str, Outcome]) -> Text:
    text = Text()
    for act in playing:
        outcome = done.get(act.name)
        mark, style = ("…", "grey50") if outcome is None else ("✔", "green")
        if outcome is not None and not outcome.true:
            mark, style = "✘", "bold red"
        text.append(f"{mark} {act.name}  ", style=style)
    return text


def _how(outcome: Outcome) -> str:
    return f"via {outcome.path}" if outcome.latency is None else str(outcome.latency)


def _narrow(console: Console, acts: list[Act], done: dict[str, Outcome]) -> None:
    """The same as lines: a table of five columns is unreadable at 80. Where a terminal is too low
    for all of them, acts that ended as expected are told in one line each.
    """
    short = console.is_terminal and _LINES_OF_ACT * len(acts) + 2 > console.height
    console.print("faults and what came of them", style="bold")
    for act in acts:
        outcome = done.get(act.name)
        word = "-" if outcome is None else "ok" if outcome.true else "NO"
        if short and outcome is not None and outcome.true:
            line = f"{word:3} {act.title}: {outcome.text}"
            console.print(Text(line), overflow="ellipsis", no_wrap=True)
            continue
        _whole(console, f"{word:3} {act.title}")
        _whole(console, f"      expected: {act.expected}")
        if outcome is not None:
            _whole(console, f"      outcome:  {outcome.text} ({_how(outcome)})")
    if short:
        _whole(console, "expected and outcome of each act: a higher terminal, or a pipe")


def _whole(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def summary(console: Console, acts: list[Act], done: dict[str, Outcome]) -> None:
    """The table at the end: fault, expected, outcome, latency or path."""
    if console.width < NARROW:
        _narrow(console, acts, done)
        return
    table = Table(title="faults and what came of them", title_justify="left")
    table.add_column("")
    for column in ("fault", "expected", "outcome", "line to unschedulable"):
        table.add_column(column, overflow="fold")
    for act in acts:
        outcome = done.get(act.name)
        if outcome is None:
            table.add_row("-", act.title, act.expected, "did not end", "")
            continue
        table.add_row(
            Text("ok", style="green") if outcome.true else Text("NO", style="bold red"),
            act.title,
            act.expected,
            outcome.text,
            _how(outcome),
        )
    console.print(table)
