"""What one node more out of service does to the budget, said before a person asks for it."""

from __future__ import annotations

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError
from rules.fleet.turns import budget_book, over_budget
from rules.policy.policy import Policy
from rules.session.snapshot import FleetSnapshot


async def budget_warning(cluster: Cluster, namespace: str, node: str) -> str:
    """A sentence where the budget is exceeded, or cannot be told; "" where there is room."""
    try:
        policy = await cluster.policy(namespace) or Policy()
        nodes = await cluster.nodes(policy.node_selector)
        sessions = await cluster.sessions()
    except CommandError as error:
        return f"Whether the budget has room is not known: {error}."
    snapshot = FleetSnapshot(
        now=cluster.now(),
        policy=policy,
        nodes={one.name: one for one in nodes},
        quarantines={one.name: one for one in sessions},
    )
    over = over_budget(node, *budget_book(snapshot))
    if not over:
        return ""
    return (
        f"It exceeds the budget ({over}): a person may, and detectors wait until nodes are back."
    )
