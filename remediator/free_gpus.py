"""Whether an evicted GPU pod would find GPUs elsewhere: asked for drains of Degraded nodes only.

A degraded GPU still works, so a pod that fits nowhere else is better off where it is. Counts the
GPUs that pods on other nodes request; affinity, quotas and taints of others are the scheduler's
business, so an answer of "there is room" is a hope, while "no room" is certain.
"""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from remediator.api import Api
from remediator.caches import Caches
from remediator.clock import Clock
from rules.pod_view import GPU_RESOURCE_PREFIX, Container, PodView
from rules.snapshot import ListMeta, NodeView
from rules.snapshot_meta import View

_FRESH_S = 30.0
_PAGE = 1_000
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"


class _Spec(View, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    spec: _Spec = _Spec()


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ListMeta = ListMeta()
    items: list[_Pod] | None = None


class FreeGpus:
    """Free GPUs of the nodes that take pods, read at most every 30 s."""

    def __init__(self, api: Api, clock: Clock, caches: Caches) -> None:
        self._api = api
        self._clock = clock
        self._caches = caches
        self._used: dict[str, int] = {}
        self._read_at = float("-inf")

    async def without_room(self, node: str, pods: Iterable[PodView]) -> frozenset[str]:
        """UIDs of the pods whose GPUs no other node has free."""
        asking = [pod for pod in pods if pod.gpus and not pod.finished and not pod.terminating]
        if not asking:
            return frozenset()
        if self._clock.elapsed() - self._read_at > _FRESH_S:
            self._used = await self._requested()
            self._read_at = self._clock.elapsed()
        most = max(
            (
                _allocatable(other) - self._used.get(name, 0)
                for name, other in self._caches.nodes.items.items()
                if name != node and other.ready == "True" and not other.spec.unschedulable
            ),
            default=0,
        )
        return frozenset(pod.uid for pod in asking if pod.gpus > most)

    async def _requested(self) -> dict[str, int]:
        used: defaultdict[str, int] = defaultdict(int)
        query = {"fieldSelector": _LIVE, "limit": str(_PAGE)}
        while True:
            page = await self._api.get("/api/v1/pods", _Page, query=query)
            for pod in page.items or ():
                used[pod.spec.node_name] += _gpus(pod.spec.containers)
            if not page.metadata.continue_:
                return dict(used)
            query["continue"] = page.metadata.continue_


def _allocatable(node: NodeView) -> int:
    return _sum(node.status.allocatable)


def _gpus(containers: Iterable[Container]) -> int:
    return sum(_sum({**c.resources.limits, **c.resources.requests}) for c in containers)


def _sum(amounts: dict[str, str]) -> int:
    return sum(
        int(amount)
        for name, amount in amounts.items()
        if name.startswith(GPU_RESOURCE_PREFIX) and amount.isdigit()
    )
