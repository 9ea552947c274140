"""Who is called a lemon on a fleet with planted bad parts: by our records and by a plain rule.

The fleet is played whole: faults become lines, verdicts, sessions and GPURecords by the real
rules, and only what stands in those decides who is called a lemon.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from rules.policy.policy import Policy
from rules.simulate.cluster.gpuward import Gpuward
from rules.simulate.cluster.world import BEGIN, World
from rules.simulate.truth.dice import Dice
from rules.simulate.truth.year import DAY_S, Plants, draw_year

SHARE: Final = 0.01
"""Of all nodes."""
PLAIN_COUNT, PLAIN_DAYS = 3, 7.0
"""The plain rule: so many sessions in so many days."""

Called = Mapping[str, float]
"""The day on which each node was first called a lemon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LemonYear:
    """One fleet's year: who is bad, and who was called so when."""

    bad: frozenset[str]
    by_record: Called
    by_plain_rule: Called


@dataclass(frozen=True, slots=True, kw_only=True)
class LemonScore:
    """How one rule did over all years."""

    called: int
    right: int
    bad: int
    days: tuple[float, ...]
    """From the first day to when each bad one was called, shortest first."""

    @property
    def precision(self) -> float:
        """Share of those called that are bad; 1.0 where nobody was."""
        return self.right / self.called if self.called else 1.0

    @property
    def recall(self) -> float:
        """Share of the bad ones that were called; 1.0 where there were none."""
        return self.right / self.bad if self.bad else 1.0

    @property
    def middle(self) -> float | None:
        """Days to find half of those that were found; None where none was."""
        return self.days[len(self.days) // 2] if self.days else None


def play_lemons(
    nodes: int,
    days: float,
    seed: int,
    policy: Policy,
    dice: Callable[[str], Dice],
    share: float = SHARE,
) -> LemonYear:
    """Play a year under `policy` and see who was called a lemon."""
    year = draw_year(dice(f"year {seed}"), nodes, days, Plants(lemons=share))
    ours = Gpuward(policy)
    World(year, ours, dice(f"work {seed}")).run()
    sessions = ((node, (at - BEGIN) / DAY_S) for node, at in ours.opened)
    return LemonYear(
        bad=year.lemons,
        by_record={node: (at - BEGIN) / DAY_S for node, at in ours.records.lemons.items()},
        by_plain_rule=called_by_plain_rule(sessions),
    )


def called_by_plain_rule(sessions: Iterable[tuple[str, float]]) -> dict[str, float]:
    """By the (node, day) of sessions, in the order of time."""
    starts: defaultdict[str, list[float]] = defaultdict(list)
    called: dict[str, float] = {}
    for node, day in sessions:
        starts[node].append(day)
        if sum(day - at <= PLAIN_DAYS for at in starts[node]) >= PLAIN_COUNT:
            called.setdefault(node, day)
    return called


def lemon_score(years: Iterable[tuple[Set[str], Called]]) -> LemonScore:
    """Of one rule: (who is bad, who was called when) of each year."""
    called = right = bad = 0
    days: list[float] = []
    for truth, found in years:
        hits = found.keys() & truth
        called, right, bad = called + len(found), right + len(hits), bad + len(truth)
        days += [found[node] for node in hits]
    return LemonScore(called=called, right=right, bad=bad, days=tuple(sorted(days)))
