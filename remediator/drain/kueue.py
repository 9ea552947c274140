"""Which nodes Kueue still replaces for a topology-aware gang: the next one waits until it is done.

`drain.gang_scout` asks before it publishes the gangs of a node. Only where Kueue's API group is
served, and only in the namespaces of gangs that Kueue places by topology, Workloads are listed for
their `status.unhealthyNodes` (Kueue 0.14 and later).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.api_groups import ApiGroups
from rules.api.metadata import View
from rules.api.nodes import ObjectMeta
from rules.api.object_name import api_path
from rules.api.workload.gang_markers import POD_GROUP
from rules.drain.gangs import Gang

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
    """Reads Workloads for one process; keeps nothing."""

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
        """Without the permission nothing is known; drains of a gang still go one by one."""
        try:
            return await self._list(version, namespace)
        except ApiError as error:
            if error.answer.code not in {403, 404}:
                raise
            _LOG.warning("kueue workloads", namespace=namespace, why=str(error))
            return []

    async def _list(self, version: str, namespace: str) -> list[_Workload]:
        path = api_path(f"/apis/{GROUP}", version, "namespaces", namespace, "workloads")
        listed = await self._api.items(path, _Workload, limit=_PAGE, pages=_PAGES)
        return [w for w in listed.found if w.status.unhealthy_nodes]


def _belongs(workload: _Workload, gang: Gang) -> bool:
    """A Workload belongs to the job that owns it; groups of a LeaderWorkerSet carry its name, and
    that of a pod group is called like the group.
    """
    if gang.kind == POD_GROUP:
        return workload.metadata.name == gang.name
    own = (
        {gang.name, gang.name.rpartition("-")[0]}
        if gang.kind == "LeaderWorkerSet"
        else {gang.name}
    )
    return any(owner.name in own for owner in workload.metadata.owner_references)
