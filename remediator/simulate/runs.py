"""Runs of the simulation in processes of their own, and what their seeds say together."""

from __future__ import annotations

import os
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from rules.simulate.run import Run, play
from rules.simulate.score import Score

Asked = TypeVar("Asked")
Found = TypeVar("Found")

_T95: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t for a 95 % interval from 2 to 10 seeds; 1.96 beyond."""


@dataclass(frozen=True, slots=True)
class Played:
    """A run with its score and the seconds of CPU that it took."""

    run: Run
    score: Score
    cpu_s: float


def played(run: Run) -> Played:
    """Play one run here."""
    before = os.times()
    score = play(run, random.Random)
    after = os.times()
    return Played(run, score, after.user + after.system - before.user - before.system)


def play_all(runs: Sequence[Run], workers: int | None = None) -> list[Played]:
    """Play them, as many at once as there are processors; in their order."""
    return in_processes(played, runs, workers)


def in_processes(
    call: Callable[[Asked], Found], asked: Sequence[Asked], workers: int | None = None
) -> list[Found]:
    """Call it for each, as many at once as there are processors; in their order."""
    if len(asked) <= 1:
        return [call(one) for one in asked]
    with ProcessPoolExecutor(max_workers=workers or min(len(asked), os.cpu_count() or 1)) as pool:
        found: list[Found] = []
        for one in pool.map(call, asked):
            found.append(one)
            _tell(len(found), len(asked))
        return found


def _tell(done: int, of: int) -> None:
    """A year of a fleet takes minutes: whoever sits before it sees that it goes on."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done} of {of} played" + "\n" * (done == of))
        sys.stderr.flush()


def over_seeds(run: Run, seeds: int) -> list[Run]:
    """The same run with each of so many seeds, from its own on."""
    return [replace(run, seed=run.seed + step) for step in range(seeds)]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with half the width of its 95 % interval; None of a single seed."""

    mean: float
    half: float | None

    def text(self, digits: int = 0) -> str:
        """`12.3 ± 0.4`."""
        if self.half is None:
            return f"{self.mean:,.{digits}f}"
        return f"{self.mean:,.{digits}f} ± {self.half:,.{digits}f}"


def interval(scores: Sequence[Score], read: Callable[[Score], float]) -> Interval:
    """What `read` finds in the scores, with its confidence."""
    values = [read(score) for score in scores]
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None)
    t = _T95[len(values) - 2] if len(values) - 2 < len(_T95) else 1.96
    return Interval(mean, t * statistics.stdev(values) / len(values) ** 0.5)
