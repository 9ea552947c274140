"""Find the gangs on nodes that wait, so that their pods are drained together and restart once.

Reads the pods of nodes with a session in phase Pending or "Marked", in the background and at a low
rate. Every replica does this, so that a new leader knows the gangs at once. `rules.fleet.turns`
uses the gangs for order and budget. Drains, and quarantines of Degraded nodes, wait up to 10 s for
a node that was not read yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from remediator.controller.drain_reads import DrainReader
from remediator.controller.pod_groups import PodGroups
from remediator.kube import clock
from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.other_apis import ApiGroups
from remediator.world import Edge, EdgePart
from rules.api import object_name, timestamps, workloads
from rules.api.metadata import ObjectMeta, View
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.catalog.reason import Level
from rules.drain.gangs import Gang, gangs_of
from rules.session import causes
from rules.session.observation import FleetSnapshot

_SWEEP_S = 5.0
# A turn waits 10 s for a node's gangs: more than one failed read must fit into that.
_READ_AGAIN_S = 2.0
_PAUSE_S = 0.05
_FRESH_S = 20.0
# Kueue replaces a node within a minute; what it still replaces decides over the next drain.
_FRESH_KUEUE_S = 5.0
_NODES_PER_SWEEP = 10
# A session that has just begun to wait: its drain takes over the pods that were read here.
_SOON_S = 5.0
_WAITING = frozenset({"", "Pending", "Marked"})


class GangScout(EdgePart):
    """Keeps `World.gangs` up to date."""

    def __init__(
        self,
        edge: Edge,
        reader: DrainReader,
        kueue: KueueWorkloads,
        groups: PodGroups,
        *,
        follow: Callable[[str], Awaitable[tuple[PodView, ...]]],
        fleet_changed: Callable[[], None],
    ) -> None:
        """`follow` returns the pods of a node whose drain begins soon."""
        super().__init__(edge)
        self._follow = follow
        self._reader = reader
        self._kueue = kueue
        self._groups = groups
        self._fleet_changed = fleet_changed
        self._read_at: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._failed = False

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await clock.heard(self._changed, _READ_AGAIN_S if self._failed else _SWEEP_S)
            self._changed.clear()
            if not self._world.caches.problem() and await self.sweep():
                self._changed.set()
            await self._clock.sleep(_PAUSE_S)

    def sessions_changed(self) -> None:
        """Sweep soon: a node may have begun to wait."""
        self._changed.set()

    async def sweep(self) -> bool:
        """Read some nodes; return whether more are due."""
        waiting = self._waiting()
        for name in self._world.gangs.keys() - waiting:
            del self._world.gangs[name]
        now = self._clock.elapsed()
        due = [n for n in waiting if now - self._read_at.get(n, float("-inf")) >= self._fresh_s(n)]
        self._failed = False
        names = due[:_NODES_PER_SWEEP]
        for name, pods in zip(
            names, await asyncio.gather(*map(self._pods_on, names)), strict=True
        ):
            self._read_at[name] = now
            with self._isolation.guard("gangs", f"node {name}"):
                if pods is None or not await self._find(name, pods):
                    # Its turn waits for the answer: the next sweep asks again, and comes sooner.
                    del self._read_at[name]
                    self._failed = True
        self._read_at = {n: at for n, at in self._read_at.items() if n in waiting}
        return len(due) > _NODES_PER_SWEEP

    async def _pods_on(self, name: str) -> tuple[PodView, ...] | None:
        """Return the pods of one node; None if they cannot be read."""
        pods: tuple[PodView, ...] | None = None
        with self._isolation.guard("gangs", f"node {name}"):
            if self._begins_soon(name):
                pods = await self._reader.with_gpus(name, await self._follow(name))
            else:
                pods = await self._reader.cached_pods_on(name)
        return pods

    async def _find(self, name: str, pods: tuple[PodView, ...]) -> bool:
        """Store the gangs of one node; False if they cannot be read."""
        try:
            owners = await self._reader.owners_of_gpu_pods(pods)
            sick = frozenset(self._world.nodes_with_open_sessions())
            found = gangs_of(pods, owners, await self._groups.read(pods, sick))
            replacing = await self._kueue.unhealthy(found)
        except ApiError as error:
            self._isolation.note("gangs", f"node {name}", error)
            return False
        if self._replaced(found, replacing) or found != self._world.gangs.get(name):
            self._world.gangs[name] = found
            self._fleet_changed()
        return True

    def _begins_soon(self, node: str) -> bool:
        """Whether this replica drains the node within seconds, unless something blocks it."""
        session = next(iter(self._world.open_sessions(node)), None)
        if session is None or not self._may_act():
            return False
        since = timestamps.parse_time(session.status.phase_since)
        return self._clock.now() - (since or session.metadata.created_at) <= _SOON_S

    def _fresh_s(self, node: str) -> float:
        aware = any(gang.topology_aware for gang in self._world.gangs.get(node, ()))
        return _FRESH_KUEUE_S if aware else _FRESH_S

    def _replaced(self, gangs: tuple[Gang, ...], replacing: dict[str, tuple[str, ...]]) -> bool:
        """Store what Kueue replaces for these gangs; return whether that changed."""
        known = self._world.kueue_unhealthy
        now = {key: nodes for key, nodes in known.items() if key not in {g.key for g in gangs}}
        now |= replacing
        self._world.kueue_unhealthy = now
        return now != known

    def _waiting(self) -> set[str]:
        world = self._world
        waiting = [
            session
            for name in world.nodes_with_open_sessions()
            for session in world.open_sessions(name)
            if session.status.phase in _WAITING
        ]
        if not waiting:
            return set()
        snapshot = world.snapshot()
        return {s.spec.node_name for s in waiting if _drains(s, snapshot)}


def _drains(session: QuarantineView, snapshot: FleetSnapshot) -> bool:
    """Whether the node is to be drained; for an unknown node, by the level of the session."""
    node = snapshot.nodes.get(session.spec.node_name)
    if node is None:
        return session.spec.level == Level.DRAIN
    return causes.drains_now(session, node, snapshot)


_LOG = structlog.get_logger()

GROUP: Final = "kueue.x-k8s.io"
_PAGE = 500
_PAGES = 20
"""A namespace with more Workloads than this is read as far as that: memory stays bounded."""


class _UnhealthyNode(View, frozen=True, kw_only=True):
    name: str = ""


class _WorkloadStatus(View, frozen=True, kw_only=True):
    unhealthy_nodes: tuple[_UnhealthyNode, ...] = ()


class _Workload(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _WorkloadStatus = _WorkloadStatus()


class KueueWorkloads:
    """Reads which nodes Kueue still replaces for a topology-aware gang.

    The next drain of that gang waits for it. Only where Kueue's API group is served, and only in
    the namespaces of gangs that Kueue places by topology, Workloads are listed for their
    `status.unhealthyNodes` (Kueue 0.14 and later).
    """

    def __init__(self, api: Api, groups: ApiGroups) -> None:
        self._api = api
        self._groups = groups

    async def unhealthy(self, gangs: Iterable[Gang]) -> dict[str, tuple[str, ...]]:
        """Node names under replacement by gang key; ApiError when they cannot be read."""
        aware = {gang for gang in gangs if gang.topology_aware}
        version = (await self._groups.served()).get(GROUP) if aware else None
        if version is None:
            return {}
        found: dict[str, set[str]] = {}
        for namespace in sorted({gang.namespace for gang in aware}):
            for workload in await self._readable(version, namespace):
                nodes = {node.name for node in workload.status.unhealthy_nodes if node.name}
                for gang in aware:
                    if nodes and gang.namespace == namespace and _belongs(workload, gang):
                        found.setdefault(gang.key, set()).update(nodes)
        return {key: tuple(sorted(nodes)) for key, nodes in found.items()}

    async def _readable(self, version: str, namespace: str) -> list[_Workload]:
        """Return the namespace's Workloads; none without the permission or the resource."""
        try:
            return await self._list(version, namespace)
        except ApiError as error:
            if error.answer.code not in {403, 404}:
                raise
            _LOG.warning("kueue workloads", namespace=namespace, why=str(error))
            return []

    async def _list(self, version: str, namespace: str) -> list[_Workload]:
        path = object_name.api_path(
            f"/apis/{GROUP}", version, "namespaces", namespace, "workloads"
        )
        listed = await self._api.items(path, _Workload, limit=_PAGE, pages=_PAGES)
        return [w for w in listed.found if w.status.unhealthy_nodes]


def _belongs(workload: _Workload, gang: Gang) -> bool:
    """Return whether the Workload is the gang's: it has the name of the pod group, or its owner
    is the job or a group of the LeaderWorkerSet.
    """
    if gang.kind == workloads.POD_GROUP:
        return workload.metadata.name == gang.name
    own = (
        {gang.name, gang.name.rpartition("-")[0]}
        if gang.kind == "LeaderWorkerSet"
        else {gang.name}
    )
    return any(owner.name in own for owner in workload.metadata.owner_references)
