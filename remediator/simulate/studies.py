"""What the year's score does not say, as tables: lemons, foresight, the size of the ledger.

`gpuward-remediator simulate --study WHAT` prints one; the benchmark's page has them all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from remediator.simulate.runs import in_processes
from rules.api.quarantine import Mode
from rules.ledger.rates import count_interval
from rules.policy.policy import Policy
from rules.simulate.studies.foresight import Foreseen, foresee, stay_sound
from rules.simulate.studies.ledger import LedgerSize, ledger_size
from rules.simulate.studies.lemons import LemonScore, LemonYear, lemon_score, play_lemons
from rules.simulate.truth.precursors import PRECURSORS
from rules.simulate.truth.year import GPUS

META: Final = "Meta's own, as published"
META_ACCURACY: Final = 0.85
"""Of its lemon nodes (RSC clusters, 2024)."""
_SOUND_NODES: Final = 10
"""Nodes over which healthy GPU-days are spread: one process each."""


class Study(StrEnum):
    """What can be asked for."""

    LEMONS = "lemons"
    FORESIGHT = "foresight"
    LEDGER = "ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySize:
    """How much is played."""

    lemon_nodes: int = 1000
    lemon_days: float = 365.0
    lemon_seeds: int = 2
    failing_nodes: int = 10
    """For each precursor."""
    sound_gpu_days: float = 10_000.0
    ledger_nodes: int = 10_000
    ledger_days: float = 365.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A table, and the numbers behind it."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: Any

    def markdown(self) -> str:
        """For the page."""
        lines = [self.head, ("---", *("---:" for _ in self.head[1:])), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def text(self) -> str:
        """For a terminal."""
        lines = (self.head, *self.rows)
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        return "".join(
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            + "\n"
            for line in lines
        )


def answer(study: Study, size: StudySize, seed: int = 1) -> Answer:
    """Play one study."""
    if study is Study.LEMONS:
        return lemons(size, seed)
    return foresight(size, seed) if study is Study.FORESIGHT else ledger(size, seed)


# ---------------------------------------------------------------------- lemons


def lemons(size: StudySize, seed: int) -> Answer:
    """Our records beside a plain rule and what an operator published."""
    years = in_processes(
        _lemon_year,
        [(size.lemon_nodes, size.lemon_days, seed + n) for n in range(size.lemon_seeds)],
    )
    ours = lemon_score((year.bad, year.by_record) for year in years)
    plain = lemon_score((year.bad, year.by_plain_rule) for year in years)
    return Answer(
        head=("rule", "called lemons", "precision", "recall", "days to find half of those found"),
        rows=(
            _lemon_row("ours, by GPURecord", ours),
            _lemon_row("3 sessions in 7 days", plain),
            (META, "-", f"{META_ACCURACY:.0%} accuracy", "-", "-"),
        ),
        numbers={
            "bad": ours.bad,
            "ours": msgspec.to_builtins(ours),
            "plain": msgspec.to_builtins(plain),
        },
    )


def _lemon_year(asked: tuple[int, float, int]) -> LemonYear:
    nodes, days, seed = asked
    enforced = msgspec.structs.replace(Policy(), mode=Mode.ENFORCE)
    return play_lemons(nodes, days, seed, enforced, random.Random)


def _lemon_row(name: str, score: LemonScore) -> tuple[str, ...]:
    middle = "-" if score.middle is None else f"{score.middle:.0f}"
    return (
        name,
        f"{score.called}",
        f"{score.precision:.0%} ({score.right} of {score.called})",
        f"{score.recall:.0%} ({score.right} of {score.bad})",
        middle,
    )


# ---------------------------------------------------------------------- foresight


def foresight(size: StudySize, seed: int) -> Answer:
    """For each precursor how long before the failure it is named; then sound nodes."""
    asked = [
        (number, f"{seed} {node}")
        for number, _ in enumerate(PRECURSORS)
        for node in range(size.failing_nodes)
    ]
    days = size.sound_gpu_days / GPUS / _SOUND_NODES
    sound = [(days, f"{seed} {node}") for node in range(_SOUND_NODES)]
    failing = in_processes(_fails, asked)
    healthy = in_processes(_stays, sound)
    rows, numbers = [], {}
    for number, precursor in enumerate(PRECURSORS):
        mine = [one for (which, _), one in zip(asked, failing, strict=True) if which == number]
        rows.append(_foresight_row(f"{precursor.name}, {precursor.days:g} days", mine))
        numbers[precursor.name] = [msgspec.to_builtins(one) for one in mine]
    rows.append(_foresight_row("nothing is wrong, drivers change", healthy))
    numbers["healthy"] = [msgspec.to_builtins(one) for one in healthy]
    return Answer(
        head=("precursor", "nodes", "named before", "lead, p50", "lead, p10", "GPU-days",
              "false alarms per 1,000 GPU-days (95 %)"),
        rows=tuple(rows),
        numbers=numbers,
    )  # fmt: skip


def _fails(asked: tuple[int, str]) -> Foreseen:
    number, seed = asked
    return foresee(PRECURSORS[number], random.Random(f"{PRECURSORS[number].name} {seed}"))


def _stays(asked: tuple[float, str]) -> Foreseen:
    days, seed = asked
    return stay_sound(days, random.Random(f"sound {seed}"))


def _foresight_row(name: str, nodes: Sequence[Foreseen]) -> tuple[str, ...]:
    leads = sorted(one.lead_h for one in nodes if one.lead_h is not None)
    gpu_days = sum(one.gpu_days for one in nodes)
    false = sum(one.false for one in nodes)
    per = 1000.0 / gpu_days if gpu_days else 0.0
    sound = name.startswith("nothing")
    return (
        name,
        f"{len(nodes)}",
        "-" if sound else f"{len(leads)}",
        f"{leads[len(leads) // 2]:.0f} h" if leads else "-",
        f"{leads[len(leads) // 10]:.0f} h" if leads else "-",
        f"{gpu_days:,.0f}",
        f"{false * per:.1f} (up to {count_interval(false)[1] * per:.1f})" if gpu_days else "-",
    )


# ---------------------------------------------------------------------- the ledger


def ledger(size: StudySize, seed: int) -> Answer:
    """How many records, how large, how many writes."""
    found = _ledger(size, seed)
    return Answer(
        head=("nodes", "faults", "records at once, most", "largest record", "all records",
              "writes a day"),
        rows=(
            (
                f"{found.nodes:,}",
                f"{found.faults:,}",
                f"{found.most:,}",
                f"{found.largest / 1000:.1f} KB",
                f"{found.bytes_in_all / 1_000_000:.1f} MB",
                f"{found.writes_a_day:.0f}",
            ),
        ),
        numbers=msgspec.to_builtins(found),
    )  # fmt: skip


def _ledger(size: StudySize, seed: int) -> LedgerSize:
    return ledger_size(size.ledger_nodes, size.ledger_days, random.Random(seed))
