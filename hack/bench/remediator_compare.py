"""Two runs of a benchmark beside each other, as ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Runs = Mapping[str, Any]
"""As `--json` writes it: per bench a list of runs, each figure by name."""


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of every figure that is a number in all runs."""
    return {
        name: statistics.median(run[name] for run in runs)
        for name in runs[0]
        if all(isinstance(run.get(name), int | float) for run in runs)
    }


def ratios(before: Runs, after: Runs) -> dict[str, dict[str, float]]:
    """Per bench of both: each figure's median now by its median then, where that is not zero."""
    found: dict[str, dict[str, float]] = {}
    for title, runs in after.items():
        earlier = before.get(title)
        if not isinstance(runs, list) or not isinstance(earlier, list) or not runs or not earlier:
            continue
        then = medians(earlier)
        found[title] = {
            name: value / then[name] for name, value in medians(runs).items() if then.get(name)
        }
    return found
