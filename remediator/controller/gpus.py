"""Count the GPUs that pods request on each node, and those held by ResourceClaims.

Requests are counted for drains of Degraded nodes only; `rules.drain.node_room` judges which pods
find no place. Never writes, and reads at most every 30 s: a place promised to a pod of one node
is not promised to another's within 90 s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.caches import Caches
from remediator.kube.clock import Clock
from remediator.kube.other_apis import ApiGroups
from rules.api.metadata import View
from rules.api.object_name import BadSegmentError, api_path
from rules.api.pods import Container, PodView, gpus_of
from rules.api.workloads import (
    UNREADABLE_GPUS,
    ResourceClaimView,
    ResourceSliceView,
    claim_names,
    free_devices,
)
from rules.drain.node_room import asks_for_room, free_gpus, without_room

_LOG = structlog.get_logger()

_GROUP = "resource.k8s.io"
# What a bound pod's claim holds does not change; what could not be read may be readable soon.
_CLAIMS_FRESH_S = 60.0
_KEPT = 5_000
_FRESH_S = 30.0
# A pod that was promised a place has left and is counted where it went by then, or cannot leave.
_PROMISED_S = 90.0
_PROMISES_S = 3600.0
_PAGE = 500
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"


class _Spec(View, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    spec: _Spec = _Spec()


@dataclass(frozen=True, slots=True)
class _Place:
    """GPUs elsewhere that a pod was promised, and until when they are kept for it."""

    gpus: int
    until: float


class FreeGpus:
    """How many GPUs are requested on each node, and which were promised to pods that may leave."""

    def __init__(self, api: Api, clock: Clock, caches: Caches, devices: DeviceClaims) -> None:
        self._api = api
        self._devices = devices
        self._clock = clock
        self._caches = caches
        self._used: Mapping[str, int] = {}
        self._read_at = float("-inf")
        self._promised: dict[str, _Place] = {}
        """By pod UID; kept beyond its time, so that a pod that cannot leave is promised nothing
        again at once."""

    async def without_room(self, node: str, pods: Sequence[PodView]) -> frozenset[str]:
        """UIDs of the pods whose GPUs no other node has free."""
        for pod in pods:
            if pod.finished:
                self._promised.pop(pod.uid, None)
        asking = [pod for pod in pods if asks_for_room(pod)]
        if not asking:
            return frozenset()
        if self._clock.elapsed() - self._read_at > _FRESH_S:
            await self._read()
        by_claim = any(pod.claimed_gpus for pod in asking)
        devices = await self._devices.free() if by_claim else {}
        # No await from here on: a place promised now is seen by the next node's look.
        now, own = self._clock.elapsed(), {pod.uid for pod in asking}
        taken = [p.gpus for uid, p in self._promised.items() if p.until > now and uid not in own]
        free = free_gpus(self._caches.nodes.items.values(), self._used)
        if devices:
            free = {name: count + devices.get(name, 0) for name, count in free.items()}
        if devices is None:
            # Where the devices are not known, that there is no room for them is not certain.
            pods = [pod for pod in pods if not pod.claimed_gpus]
        refused = without_room(pods, node, free, taken)
        for pod in asking:
            if pod.uid in refused:
                self._promised.pop(pod.uid, None)
            else:
                self._promised.setdefault(pod.uid, _Place(pod.gpus, now + _PROMISED_S))
        self._promised = {u: p for u, p in self._promised.items() if now - p.until < _PROMISES_S}
        return refused

    async def _read(self) -> None:
        used: defaultdict[str, int] = defaultdict(int)
        query = {"fieldSelector": _LIVE}
        for pod in (await self._api.items("/api/v1/pods", _Pod, query=query, limit=_PAGE)).found:
            gpus = gpus_of(pod.spec.containers, pod.spec.init_containers)
            if gpus and pod.spec.node_name:
                used[pod.spec.node_name] += gpus
        self._used, self._read_at = dict(used), self._clock.elapsed()


@dataclass(frozen=True, slots=True)
class _Known:
    gpus: int
    read_at: float


class DeviceClaims:
    """Reads which GPUs pods hold through ResourceClaims, and which are free.

    A cluster without dynamic resource allocation is never asked. Nothing here may fail a drain.
    """

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._groups = ApiGroups(api, clock)
        self._known: dict[tuple[str, str, str], _Known] = {}
        self._free: Mapping[str, int] | None = None
        self._free_at = float("-inf")

    async def counted(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """The pods, with the GPUs that their claims hold."""
        return tuple([await self._counted(pod) for pod in pods])

    async def free(self) -> Mapping[str, int] | None:
        """GPUs that no claim holds, by node name; None when that cannot be read."""
        now = self._clock.elapsed()
        if now - self._free_at > _CLAIMS_FRESH_S / 2:
            self._free, self._free_at = await self._read_free(), now
        return self._free

    async def _counted(self, pod: PodView) -> PodView:
        names = claim_names(pod)
        if not names or pod.finished:
            return pod
        gpus = sum([await self._gpus(pod, name) for name in names])
        return msgspec.structs.replace(pod, claimed_gpus=gpus) if gpus else pod

    async def _gpus(self, pod: PodView, name: str) -> int:
        key = (pod.uid, pod.metadata.namespace, name)
        now, known = self._clock.elapsed(), self._known.get(key)
        if known is None or now - known.read_at > _CLAIMS_FRESH_S:
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[key] = _Known(await self._read(pod.metadata.namespace, name), now)
        return known.gpus

    async def _read(self, namespace: str, name: str) -> int:
        version = (await self._groups.served()).get(_GROUP)
        if version is None:
            return 0
        try:
            path = api_path(
                f"/apis/{_GROUP}/{version}/namespaces", namespace, "resourceclaims", name
            )
            claim = await self._api.get(path, ResourceClaimView)
        except ApiError as error:
            if error.answer.code == 404:
                return 0
            _LOG.warning("resource claim", claim=f"{namespace}/{name}", why=str(error))
            return UNREADABLE_GPUS
        except BadSegmentError:
            return 0
        return len(claim.gpus)

    async def _read_free(self) -> Mapping[str, int] | None:
        version = (await self._groups.served()).get(_GROUP)
        if version is None:
            return None
        root = f"/apis/{_GROUP}/{version}"
        try:
            slices = await self._api.items(
                f"{root}/resourceslices", ResourceSliceView, limit=_PAGE
            )
            claims = await self._api.items(
                f"{root}/resourceclaims", ResourceClaimView, limit=_PAGE
            )
        except ApiError as error:
            _LOG.warning("resource slices", why=str(error))
            return None
        return free_devices(slices.found, claims.found)
