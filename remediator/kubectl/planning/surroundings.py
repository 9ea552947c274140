"""What the drains of a plan have in common, read once however many nodes are drained.

A list of every pod is thousands of objects: read again for each node, a plan of a large fleet
would take the API server hours.
"""

from __future__ import annotations

from remediator.kubectl.cluster import Cluster
from rules.api.budgets import PdbView
from rules.api.pods import DaemonSetView


class Surroundings:
    """The cluster around the nodes of one plan; each list is as it was when first asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._pdbs: tuple[PdbView, ...] | None = None
        self._daemon_sets: tuple[DaemonSetView, ...] | None = None
        self._gpus_requested: dict[str, int] | None = None

    async def pdbs(self) -> tuple[PdbView, ...]:
        """Every PodDisruptionBudget."""
        if self._pdbs is None:
            self._pdbs = await self.cluster.pdbs()
        return self._pdbs

    async def daemon_sets(self) -> tuple[DaemonSetView, ...]:
        """Every DaemonSet."""
        if self._daemon_sets is None:
            self._daemon_sets = await self.cluster.daemon_sets()
        return self._daemon_sets

    async def gpus_requested(self) -> dict[str, int]:
        """GPUs that live pods request, by node."""
        if self._gpus_requested is None:
            self._gpus_requested = await self.cluster.gpus_requested()
        return self._gpus_requested
