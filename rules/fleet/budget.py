"""The budget: how many nodes may be unavailable, counted over the fleet and per label value.

Pure arithmetic on the snapshot, used by `rules.fleet.turns`. A node that is unavailable for any
reason (not Ready, cordoned by anyone, ours) is in the count already and costs nothing to
quarantine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rules.api.nodes import NodeView
from rules.policy.policy import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One count against one limit: the whole selection (`key` empty) or one label value."""

    key: str
    value: str
    total: int
    unavailable: int
    limit: int

    @property
    def room(self) -> int:
        """How many more nodes may become unavailable."""
        return max(0, self.limit - self.unavailable)

    @property
    def clause(self) -> str:
        """`3 of 30 nodes with rack=a are unavailable, the budget allows 3`."""
        where = f" with {self.key}={self.value}" if self.key else ""
        return (
            f"{self.unavailable} of {self.total} nodes{where} "
            f"{'is' if self.unavailable == 1 else 'are'} unavailable, the budget allows "
            f"{self.limit}"
        )

    @property
    def standing(self) -> str:
        """`used up` or `exceeded by 2`; "" while there is room."""
        if self.room:
            return ""
        over = self.unavailable - self.limit
        return f"exceeded by {over}" if over else "used up"


def limit_of(total: int, budget: Budget) -> int:
    """The smaller of percent (rounded down) and `atMost`. A share of less than one node is one, so
    that a small cluster has a budget; `atMost: 0` allows none.
    """
    share = math.floor(total * budget.max_unavailable.percent / 100 + 1e-9)
    return min(max(1, share), budget.max_unavailable.at_most)


LineKey = tuple[str, str]
"""Label key and value; both empty for the whole selection."""


def keys_of(node: NodeView, per: tuple[str, ...]) -> tuple[LineKey, ...]:
    """The lines a node counts in: the whole, and each `per` label it has."""
    labels = node.labels
    return ("", ""), *((key, labels[key]) for key in per if key in labels)


@dataclass(slots=True)
class BudgetBook:
    """The lines of one judgement; `take` books a node that gets its turn."""

    budget: Budget
    totals: dict[LineKey, int] = field(default_factory=dict)
    gone: dict[LineKey, set[str]] = field(default_factory=dict)

    def keys_of(self, node: NodeView) -> tuple[LineKey, ...]:
        """The lines a node counts in."""
        return keys_of(node, self.budget.per)

    def line(self, key: LineKey) -> BudgetLine:
        """One line as it stands."""
        total = self.totals.get(key, 0)
        return BudgetLine(
            key=key[0],
            value=key[1],
            total=total,
            unavailable=len(self.gone.get(key, ())),
            limit=limit_of(total, self.budget),
        )

    def lines(self) -> tuple[BudgetLine, ...]:
        """Every line, the whole selection first."""
        return tuple(self.line(key) for key in sorted(self.totals))

    def is_gone(self, node: NodeView) -> bool:
        """Whether the node is unavailable already and costs nothing."""
        return node.name in self.gone.get(("", ""), ())

    def tightest(self, node: NodeView) -> BudgetLine:
        """The line with the least room for this node."""
        return min((self.line(key) for key in self.keys_of(node)), key=lambda line: line.room)

    def would_exceed(self, node: NodeView) -> tuple[BudgetLine, ...]:
        """The lines that one more unavailable node exceeds; none where it is unavailable
        already.
        """
        if self.is_gone(node):
            return ()
        lines = map(self.line, self.keys_of(node))
        return tuple(line for line in lines if not line.room)

    def take(self, node: NodeView) -> None:
        """Book the node as unavailable."""
        for key in self.keys_of(node):
            self.gone.setdefault(key, set()).add(node.name)
