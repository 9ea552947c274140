"""Scores as a table of text, as JSON, and as rows for the page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

from remediator.simulate.runs import Played, interval
from rules.simulate.score import AVOIDABLE, Loss, Score
from rules.simulate.truth.kinds import EFFECTS, Kind
from rules.text.counted import count

ROWS: Final[tuple[tuple[str, Callable[[Score], float], int], ...]] = (
    ("terminal faults found, %", lambda s: recall(s) * 100.0, 1),
    ("nodes taken", lambda s: s.taken, 0),
    ("... with nothing wrong", lambda s: s.wrong, 1),
    ("... and pods told to go", lambda s: s.wrong_drains, 1),
    ("... whose work could go on", lambda s: s.needless, 0),
    ("nodes that people had to find", lambda s: s.by_people, 0),
    ("GPU-hours lost to faults", lambda s: s.lost[Loss.FAULT], 0),
    ("GPU-hours lost to drains, idle", lambda s: s.lost[Loss.DRAIN], 0),
    ("GPU-hours lost to repair", lambda s: s.lost[Loss.REPAIR], 0),
    ("GPU-hours lost to restarts", lambda s: s.lost[Loss.RESTART], 0),
    ("jobs interrupted", lambda s: s.interruptions, 0),
    ("... avoidably", lambda s: s.avoidable, 0),
    ("evictions refused by a budget", lambda s: s.refused, 0),
    ("pods deleted past a budget", lambda s: s.bypassed, 0),
    ("most nodes taken at once", lambda s: s.most_out, 1),
    ("node-hours waiting for the budget", lambda s: s.budget_h, 1),
    ("hours with the breaker open", lambda s: s.breaker_h, 1),
)


def recall(score: Score) -> float:
    """Share of terminal faults that the policy took the node for; 1.0 where there were none."""
    faults, found = score.terminal
    return found / faults if faults else 1.0


def kinds_of(scores: Sequence[Score]) -> list[Kind]:
    """Every kind of fault that happened, the terminal ones first."""
    happened = {kind for score in scores for kind in score.faults}
    return sorted(happened, key=lambda kind: (not EFFECTS[kind].terminal, kind.value))


def kind_row(scores: Sequence[Score], kind: Kind) -> tuple[int, int, float | None, float | None]:
    """(faults, found, median delay, 95th percentile) over all seeds; delays in seconds."""
    delays = sorted(at for score in scores for at in score.delays.get(kind, ()))
    faults = sum(score.faults[kind] for score in scores)
    if not delays:
        return faults, 0, None, None
    late = delays[min(len(delays) - 1, int(0.95 * len(delays)))]
    return faults, len(delays), statistics.median(delays), late


def text_table(played: Sequence[Played]) -> str:
    """One policy over its seeds, for a terminal."""
    scores = [one.score for one in played]
    run = played[0].run
    lines = [
        (
            f"{run.name}: {count(run.nodes, 'node')}, {run.days:g} days, "
            f"{count(len(scores), 'seed')} from {run.seed}"
        ),
        "",
    ]
    for what, read, digits in ROWS:
        lines.append(f"  {what:36}{interval(scores, read).text(digits):>22}")
    lines += ["", f"  {'fault':28}{'terminal':>9}{'faults':>8}{'found':>7}{'p50':>10}{'p95':>10}"]
    for kind in kinds_of(scores):
        faults, found, middle, late = kind_row(scores, kind)
        terminal = "yes" if EFFECTS[kind].terminal else ""
        lines.append(
            f"  {kind.value:28}{terminal:>9}{faults:8}{found:7}{seconds(middle):>10}"
            f"{seconds(late):>10}"
        )
    lines += ["", f"  {sum(one.cpu_s for one in played):.0f} s of CPU"]
    return "\n".join(lines) + "\n"


def seconds(value: float | None) -> str:
    """A delay for people."""
    if value is None:
        return "-"
    if value < 120.0:
        return f"{value:.1f} s"
    return f"{value / 60.0:.0f} min" if value < 7200.0 else f"{value / 3600.0:.1f} h"


def _delays(score: Score, kind: Kind) -> dict[str, float] | None:
    _, _, middle, late = kind_row([score], kind)
    if middle is None or late is None:
        return None
    return {"p50": round(middle, 1), "p95": round(late, 1)}


def as_json(one: Played) -> dict[str, Any]:
    """One run with all its counts."""
    score, run = one.score, one.run
    faults, found = score.terminal
    return {
        "policy": run.name,
        "nodes": run.nodes,
        "days": run.days,
        "seed": run.seed,
        "terminal": {"faults": faults, "found": found},
        "kinds": {
            kind.value: {
                "terminal": EFFECTS[kind].terminal,
                "faults": score.faults[kind],
                "found": score.found[kind],
                "delaySeconds": _delays(score, kind),
            }
            for kind in kinds_of([score])
        },
        "taken": score.taken,
        "wrong": score.wrong,
        "wrongDrains": score.wrong_drains,
        "needless": score.needless,
        "foundByPeople": score.by_people,
        "gpuHoursLost": {loss.value: round(score.lost[loss], 1) for loss in Loss},
        "interruptions": {how.value: count for how, count in sorted(score.ended.items())},
        "avoidable": {"count": score.avoidable, "what": sorted(how.value for how in AVOIDABLE)},
        "evictions": {
            "accepted": score.evictions,
            "refused": score.refused,
            "pastBudget": score.bypassed,
        },
        "mostTakenAtOnce": score.most_out,
        "budgetHours": round(score.budget_h, 2),
        "breakerHours": round(score.breaker_h, 2),
        "correlatedSessions": score.correlated,
        "records": {
            "most": score.records,
            "largestBytes": score.record_bytes,
            "writes": score.record_writes,
        },
        "cpuSeconds": round(one.cpu_s, 1),
    }
