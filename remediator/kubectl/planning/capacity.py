"""What one node more out of service does to the budget, said before a person asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.ready.policy_said import policy_of
from rules.api.nodes import NodeView
from rules.api.quarantine import Mode
from rules.fleet.budget import BudgetBook
from rules.fleet.turns import budget_book, over_budget
from rules.policy.policy import Budget, Policy
from rules.session.snapshot import FleetSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many nodes are unavailable, those that one command asks for included."""

    unknown: str = ""
    """Why nobody can tell; "" where it is known."""
    selected: Mapping[str, NodeView] = field(default_factory=dict)
    book: BudgetBook = field(default_factory=lambda: BudgetBook(Budget()))

    def warning(self, node: str) -> str:
        """A sentence where the budget is exceeded, or cannot be told; "" where there is room."""
        if self.unknown:
            return f"Whether the budget has room is not known: {self.unknown}."
        over = over_budget(node, self.selected, self.book)
        if not over:
            return ""
        return (
            f"It exceeds the budget ({over}): a person may, and detectors wait until nodes are "
            "back."
        )

    def take(self, node: str) -> None:
        """Count a node that was asked for: the next one finds that much less room."""
        if node in self.selected:
            self.book.take(self.selected[node])


async def capacity(cluster: Cluster, namespace: str) -> Capacity:
    """Read once, for all nodes that a command is about."""
    return await cluster.once("capacity", lambda: _read(cluster, namespace))


async def _read(cluster: Cluster, namespace: str) -> Capacity:
    try:
        found = await policy_of(cluster, namespace)
        policy = found or Policy()
        nodes = await cluster.nodes(policy.node_selector)
        sessions = await cluster.sessions()
    except CommandError as error:
        return Capacity(unknown=str(error))
    if found is not None and found.mode == Mode.SHADOW:
        return Capacity()  # what is only played makes no node unavailable
    snapshot = FleetSnapshot(
        now=cluster.now(),
        policy=policy,
        nodes={one.name: one for one in nodes},
        quarantines={one.name: one for one in sessions},
    )
    selected, book = budget_book(snapshot)
    return Capacity(selected=selected, book=book)
