"""The GPUs that pods request on each node: read for drains of Degraded nodes only.

Called by `drain_look`; who finds no place is judged by `rules.pod_room`. Never writes, and reads at
most every 30 s: pods that left a node since then are remembered until they are counted again.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from remediator.api import Api
from remediator.caches import Caches
from remediator.clock import Clock
from rules.pod_room import asks_for_room, free_gpus, without_room
from rules.pod_view import GPU_RESOURCE_PREFIX, Container, PodView
from rules.snapshot import ListMeta
from rules.snapshot_meta import View

_FRESH_S = 30.0
# A pod that left is bound elsewhere and counted there by then, or waits for a place anyway.
_MOVING_S = 60.0
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
    """What is requested where, and which pods are on their way."""

    def __init__(self, api: Api, clock: Clock, caches: Caches) -> None:
        self._api = api
        self._clock = clock
        self._caches = caches
        self._used: dict[str, int] = {}
        self._read_at = float("-inf")
        self._asked: dict[str, dict[str, int]] = {}
        """GPUs of the pods that were asking at the last look, by node and pod UID."""
        self._moving: dict[str, tuple[int, float]] = {}
        """GPUs of pods that left, and until when that counts, by pod UID."""

    async def without_room(self, node: str, pods: Sequence[PodView]) -> frozenset[str]:
        """UIDs of the pods whose GPUs no other node has free."""
        asking = {pod.uid: pod.gpus for pod in pods if asks_for_room(pod)}
        self._note_leavers(node, asking)
        if not asking:
            return frozenset()
        if self._clock.elapsed() - self._read_at > _FRESH_S:
            self._used = await self._requested()
            self._read_at = self._clock.elapsed()
        free = free_gpus(self._caches.nodes.items.values(), self._used)
        return without_room(pods, node, free, [gpus for gpus, _ in self._moving.values()])

    def _note_leavers(self, node: str, asking: Mapping[str, int]) -> None:
        now = self._clock.elapsed()
        for uid, gpus in self._asked.pop(node, {}).items():
            if uid not in asking:
                self._moving[uid] = (gpus, now + _MOVING_S)
        if asking:
            self._asked[node] = dict(asking)
        self._moving = {uid: left for uid, left in self._moving.items() if left[1] > now}

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


def _gpus(containers: Iterable[Container]) -> int:
    return sum(_sum({**c.resources.limits, **c.resources.requests}) for c in containers)


def _sum(amounts: dict[str, str]) -> int:
    return sum(
        int(amount)
        for name, amount in amounts.items()
        if name.startswith(GPU_RESOURCE_PREFIX) and amount.isdigit()
    )
