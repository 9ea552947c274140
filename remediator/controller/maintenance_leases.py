"""Leases of other operators on nodes: while somebody maintains a node, nothing is done to it.

The medik8s operators (node maintenance, node health check and their remediators) take a Lease
`node-<name>` in one namespace before they touch a node. Only where one of their API groups is
served, every replica lists that namespace every few seconds into `World.maintenance_leases`, so
that a new leader knows them at once; what a lease means is judged in `rules.session.exclusions`.
"""

from __future__ import annotations

from collections.abc import Callable

from remediator.kube.answer import ApiError
from remediator.kube.other_apis import ApiGroups
from remediator.world import Edge, EdgePart
from rules.api.nodes import LeaseView
from rules.session.exclusions import MAINTENANCE_NAMESPACE, leases_by_node
from rules.session.snapshot import too_old

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{MAINTENANCE_NAMESPACE}/leases"
_GROUP = ".medik8s.io"
_SWEEP_S = 5.0
_REFUSED_S = 60.0
_PAGE = 500


class MaintenanceLeases(EdgePart):
    """Keeps `World.maintenance_leases` for one process."""

    def __init__(self, edge: Edge, groups: ApiGroups, *, changed: Callable[[str], None]) -> None:
        super().__init__(edge)
        self._groups = groups
        self._changed = changed
        self._read_at = float("-inf")
        self._failing_since: float | None = None
        self._problem = ""

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(await self.sweep())

    def too_old(self) -> str:
        """Why no harm may rest on the leases, a clause; empty when it may."""
        now, failing_since = self._clock.elapsed(), self._failing_since
        return too_old(
            "other operators' maintenance leases",
            quiet_s=max(now - self._read_at, self._groups.overdue_s()),
            unfollowed_s=0.0 if failing_since is None else now - failing_since,
            problem=self._problem,
        )

    async def sweep(self) -> float:
        """Read the leases once; seconds until the next time."""
        served = await self._groups.served()
        if not any(group.endswith(_GROUP) for group in served):
            self._take({})
            return _SWEEP_S
        try:
            found = await self._list()
        except ApiError as error:
            # What was known stays: a lease that cannot be read has not ended.
            self._isolation.note("maintenance", "leases of other operators", error)
            self._problem = str(error)
            if self._failing_since is None:
                self._failing_since = self._clock.elapsed()
            return _REFUSED_S if error.answer.code == 403 else _SWEEP_S
        self._take(found)
        return _SWEEP_S

    async def _list(self) -> dict[str, LeaseView]:
        listed = await self._api.items(LEASES, LeaseView, limit=_PAGE)
        return leases_by_node(listed.found)

    def _take(self, found: dict[str, LeaseView]) -> None:
        self._read_at, self._failing_since, self._problem = self._clock.elapsed(), None, ""
        before = self._world.maintenance_leases
        self._world.maintenance_leases = found
        for node in before.keys() | found.keys():
            if before.get(node) != found.get(node):
                self._changed(node)
