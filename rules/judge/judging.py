"""One look at one fact: what is remembered, when it is, and the thresholds in force.

Made by `judge.judge` for each observation and handed on from judge to judge, each of which answers
with the same look and what it changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from rules.catalog.thresholds import Thresholds
from rules.judge.state import NodeState


@dataclass(frozen=True, slots=True)
class Judging:
    """The state so far, the time of judgement (wall seconds) and the numbers it rests on."""

    state: NodeState
    now: float
    thresholds: Thresholds

    def then(self, state: NodeState) -> Judging:
        """The same look after a change."""
        return Judging(state, self.now, self.thresholds)
