"""`gpuward-remediator simulate --benchmark DIR`: the published page, its numbers and its plots.

All policies on the same years; then two faults planted by hand. Everything on the page comes from
these runs but the words, which say how to read it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from remediator.simulate.plots import bars, stacks
from remediator.simulate.runs import Interval, Played, interval, over_seeds, play_all
from remediator.simulate.studies import Answer, Study, StudySize, answer
from remediator.simulate.table import ROWS, as_json, kind_row, kinds_of, recall, seconds
from rules.api.quarantine import Mode
from rules.catalog.data_file import data_file
from rules.policy.policy import Policy
from rules.simulate.peers.policies import PEERS
from rules.simulate.run import Run
from rules.simulate.score import Loss, Score
from rules.simulate.truth.kinds import EFFECTS
from rules.simulate.truth.year import Plants

OURS: Final = "gpuward"
_PLANTED: Final = ("nvsentinel-like", "karpenter-like", "any-xid")
_FALSE_ALARMS: Final = Plants(false_alarms=1.0)
_MANY_ALARMS: Final = Plants(false_alarms=20.0)
_MANY_DAYS: Final = 15.0
_BAD_DRIVER: Final = Plants(bad_driver_day=10.0)
_DRIVER_DAYS: Final = 15.0
_DRIVER_NODES: Final = 200
PUBLISHED: Final = StudySize()

Results = dict[str, list[Played]]


def write_benchmark(
    folder: Path, nodes: int, days: float, seeds: int, size: StudySize = PUBLISHED
) -> None:
    """Play everything and write `benchmark.md`, `benchmark.json` and the plots into `folder`."""
    ours = msgspec.structs.replace(Policy(), mode=Mode.ENFORCE)
    policies: list[tuple[str, Policy | None]] = [(OURS, ours), *((name, None) for name in PEERS)]
    runs: list[tuple[str, Run]] = []
    for name, policy in policies:
        run = Run(name=name, nodes=nodes, days=days, seed=1, policy=policy)
        runs += [("fleet", each) for each in over_seeds(run, seeds)]
        if name == OURS or name in _PLANTED:
            alarms = replace(run, plants=_FALSE_ALARMS)
            runs.append(("alarms", alarms))
            many = replace(run, plants=_MANY_ALARMS, days=min(_MANY_DAYS, days))
            runs.append(("many", many))
            driver = replace(
                run,
                plants=_BAD_DRIVER,
                days=min(_DRIVER_DAYS, days),
                nodes=min(_DRIVER_NODES, nodes),
            )
            runs.append(("driver", driver))
    played = play_all([run for _, run in runs])
    found: dict[str, Results] = {"fleet": {}, "alarms": {}, "many": {}, "driver": {}}
    for (part, run), one in zip(runs, played, strict=True):
        found[part].setdefault(run.name, []).append(one)
    _write(folder, found, {study: answer(study, size) for study in Study}, size)


def _write(
    folder: Path, found: dict[str, Results], answers: dict[Study, Answer], size: StudySize
) -> None:
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    plain: dict[str, Any] = {
        part: {name: [as_json(one) for one in played] for name, played in results.items()}
        for part, results in found.items()
    }
    plain |= {study.value: one.numbers for study, one in answers.items()}
    (folder / "benchmark.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    for name, drawn in _plots(found["fleet"]).items():
        (images / f"benchmark-{name}.svg").write_text(drawn, encoding="utf-8")
    (folder / "benchmark.md").write_text(page(found, answers, size), encoding="utf-8")


def _scores(played: Sequence[Played]) -> list[Score]:
    return [one.score for one in played]


def _plots(fleet: Results) -> dict[str, str]:
    def each(index: int) -> list[tuple[str, Interval]]:
        _, read, _ = ROWS[index]
        return [(name, interval(_scores(played), read)) for name, played in fleet.items()]

    rows = {what: index for index, (what, _, _) in enumerate(ROWS)}
    losses = (Loss.FAULT, Loss.DRAIN, Loss.RESTART)
    lost = [
        (name, [interval(_scores(played), lambda s, x=loss: s.lost[x]).mean for loss in losses])  # type: ignore[misc]
        for name, played in fleet.items()
    ]
    return {
        "lost": stacks("GPU-hours lost a year, repair apart", [str(x) for x in losses], lost),
        "recall": bars("Terminal faults found, %", each(0), 1),
        "wrong": bars("Nodes taken with nothing wrong", each(rows["... with nothing wrong"])),
        "avoidable": bars("Jobs interrupted avoidably", each(rows["... avoidably"])),
    }


def page(found: dict[str, Results], answers: dict[Study, Answer], size: StudySize) -> str:
    """The page: words of the package with the tables in their places."""
    fleet = found["fleet"]
    first = fleet[OURS][0].run
    ours = _scores(fleet[OURS])
    words = data_file("benchmark_page.md", "remediator").decode()
    faults = sum(score.terminal[0] for score in ours)
    hits = sum(score.terminal[1] for score in ours)
    parts = {
        "nodes": f"{first.nodes}",
        "days": f"{first.days:g}",
        "seeds": f"{len(ours)}",
        "faults": f"{sum(sum(score.faults.values()) for score in ours):,}",
        "terminal": f"{faults:,}",
        "found": f"{hits:,}",
        "recall": f"{100.0 * hits / faults if faults else 100.0:.2f}",
        "wrong": f"{sum(score.wrong_drains for score in ours)}",
        "cpu": f"{interval_of_cpu(fleet[OURS]):.0f}",
        "records": f"{max(score.records for score in ours):,}",
        "record_writes": f"{interval(ours, lambda s: s.record_writes / s.days).text(1)}",
        "record_bytes": f"{max(score.record_bytes for score in ours) / 1000:.1f}",
        "lemon_nodes": f"{size.lemon_nodes:,}",
        "lemon_days": f"{size.lemon_days:g}",
        "lemon_seeds": f"{size.lemon_seeds}",
        "policies": _policies(fleet),
        "kinds": _kinds(ours),
        "losses": _recalls(fleet),
        "alarms": _policies(found["alarms"], _PLANTED_ROWS),
        "many": _policies(found["many"], _PLANTED_ROWS),
        "many_days": f"{found['many'][OURS][0].run.days:g}",
        "driver": _policies(found["driver"], _PLANTED_ROWS),
        "driver_nodes": f"{found['driver'][OURS][0].run.nodes}",
        "driver_days": f"{found['driver'][OURS][0].run.days:g}",
        "correlated": f"{interval(_scores(found['driver'][OURS]), lambda s: s.correlated).text()}",
    }
    parts |= {study.value: one.markdown() for study, one in answers.items()}
    for key, text in parts.items():
        words = words.replace("{" + key + "}", text)
    return words


def interval_of_cpu(played: Sequence[Played]) -> float:
    """Seconds of CPU of one run on average."""
    return sum(one.cpu_s for one in played) / len(played)


_PLANTED_ROWS: Final = (
    "nodes taken",
    "... with nothing wrong",
    "... and pods told to go",
    "most nodes taken at once",
    "node-hours waiting for the budget",
    "hours with the breaker open",
    "GPU-hours lost to drains, idle",
    "GPU-hours lost to repair",
    "jobs interrupted",
    "... avoidably",
)


def _policies(results: Results, only: Sequence[str] = ()) -> str:
    names = list(results)
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for what, read, digits in ROWS:
        if only and what not in only:
            continue
        cells = [interval(_scores(results[name]), read).text(digits) for name in names]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _kinds(scores: Sequence[Score]) -> str:
    lines = [
        "| fault | terminal | faults | node taken | p50 | p95 |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for kind in kinds_of(scores):
        faults, hits, middle, late = kind_row(scores, kind)
        terminal = "yes" if EFFECTS[kind].terminal else ""
        lines.append(
            f"| {kind.value} | {terminal} | {faults} | {hits} | {seconds(middle)} | "
            f"{seconds(late)} |"
        )
    return "\n".join(lines)


def _recalls(fleet: Results) -> str:
    """For each terminal kind the share that each policy found."""
    kinds = [
        kind
        for kind in kinds_of([s for played in fleet.values() for s in _scores(played)])
        if EFFECTS[kind].terminal
    ]
    names = list(fleet)
    lines = [f"| found, and after how long (p50) | {' | '.join(names)} |",
             f"|---|{'---:|' * len(names)}"]  # fmt: skip
    for kind in kinds:
        cells = []
        for name in names:
            faults, hits, middle, _ = kind_row(_scores(fleet[name]), kind)
            share = f"{100.0 * hits / faults:.0f} %" if faults else "-"
            cells.append(f"{share}, {seconds(middle)}" if hits else share)
        lines.append(f"| {kind.value} | {' | '.join(cells)} |")
    total = [interval(_scores(fleet[name]), lambda s: 100.0 * recall(s)).text(1) for name in names]
    lines.append(f"| all terminal faults, % | {' | '.join(total)} |")
    return "\n".join(lines)
