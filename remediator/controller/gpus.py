"""Count the GPUs that pods request on each node, and those held by ResourceClaims.

Requests are counted for drains of Degraded nodes only; `rules.drain.room` judges which pods find
no place. Never writes, and reads at most every 30 s: a place promised to a pod of one node is not
promised to another's, and pods that left a node are remembered until they are counted where they
went.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import structlog

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.api_groups import ApiGroups
from remediator.kube.caches import Caches
from remediator.kube.clock import Clock
from rules.api.metadata import OwnerReference, View
from rules.api.object_name import BadSegmentError, api_path
from rules.api.pods import Container, PodView, gpus_of
from rules.api.workloads import (
    UNREADABLE_GPUS,
    ResourceClaimView,
    ResourceSliceView,
    claim_names,
    free_devices,
)
from rules.drain.room import asks_for_room, free_gpus, without_room

_LOG = structlog.get_logger()

_GROUP = "resource.k8s.io"
# What a bound pod's claim holds does not change; what could not be read may be readable soon.
_CLAIMS_FRESH_S = 60.0
_KEPT = 5_000
_FRESH_S = 30.0
# A pod that left is bound elsewhere and counted there by then, or waits for a place anyway.
_MOVING_S = 60.0
# A pod that a budget keeps must not keep a place free for ever.
_PROMISED_S = 60.0
_PAGE = 500
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"


class _Spec(View, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class _Meta(View, frozen=True, kw_only=True):
    uid: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """A pod that needs GPUs on another node."""

    gpus: int
    controller: str
    """UID of its controller, whose next pod takes its place; empty where it has none."""
    until: float | None = None
    """Until when a place is kept for it; None where it was promised none."""


class FreeGpus:
    """What is requested where, who was promised a place, and which pods are on their way."""

    def __init__(self, api: Api, clock: Clock, caches: Caches, devices: DeviceClaims) -> None:
        self._api = api
        self._devices = devices
        self._clock = clock
        self._caches = caches
        self._used: Mapping[str, int] = {}
        self._read_at = float("-inf")
        self._counted: Mapping[str, str] = {}
        """UID of the controller of every GPU pod of the last read, by the pod's UID."""
        self._landed: Counter[str] = Counter()
        """How many pods of a controller that read counted for the first time."""
        self._asked: dict[str, dict[str, _Claim]] = {}
        """The pods that were asking at the last look, by node and pod UID."""
        self._moving: dict[str, _Claim] = {}
        """Pods that left, by UID."""

    async def without_room(self, node: str, pods: Sequence[PodView]) -> frozenset[str]:
        """UIDs of the pods whose GPUs no other node has free."""
        asking = [pod for pod in pods if asks_for_room(pod)]
        self._note_leavers(node, pods)
        if not asking:
            return frozenset()
        if self._clock.elapsed() - self._read_at > _FRESH_S:
            await self._read()
        by_claim = any(pod.claimed_gpus for pod in asking)
        devices = await self._devices.free() if by_claim else {}
        # No await from here on: a place promised now is seen by the next node's look.
        self._drop_landed()
        now = self._clock.elapsed()
        taken = [claim.gpus for claim in self._moving.values()]
        for other, claims in self._asked.items():
            if other != node:
                taken += [c.gpus for c in claims.values() if c.until is not None and c.until > now]
        free = free_gpus(self._caches.nodes.items.values(), self._used)
        if devices:
            free = {name: count + devices.get(name, 0) for name, count in free.items()}
        if devices is None:
            # Where the devices are not known, that there is no room for them is not certain.
            pods = [pod for pod in pods if not pod.claimed_gpus]
        refused = without_room(pods, node, free, taken)
        before = self._asked.get(node, {})
        self._asked[node] = {
            pod.uid: _claim(pod, None if pod.uid in refused else _kept(before.get(pod.uid), now))
            for pod in asking
        }
        return refused

    def _note_leavers(self, node: str, pods: Sequence[PodView]) -> None:
        """Who asked and is gone or going needs a place; who ended where it was needs none."""
        now = self._clock.elapsed()
        staying = {pod.uid for pod in pods if asks_for_room(pod)}
        finished = {pod.uid for pod in pods if pod.finished}
        before = self._asked.pop(node, {})
        for uid, claim in before.items():
            if uid not in staying | finished:
                self._moving[uid] = replace(claim, until=now + _MOVING_S)
        if staying:
            self._asked[node] = {uid: claim for uid, claim in before.items() if uid in staying}
        self._moving = {u: c for u, c in self._moving.items() if c.until is None or c.until > now}

    def _drop_landed(self) -> None:
        """A controller's new pod that is counted already is the one that left, made again."""
        for uid, claim in list(self._moving.items()):
            if self._landed[claim.controller] > 0:
                self._landed[claim.controller] -= 1
                del self._moving[uid]

    async def _read(self) -> None:
        used: defaultdict[str, int] = defaultdict(int)
        counted: dict[str, str] = {}
        listed = await self._api.items(
            "/api/v1/pods", _Pod, query={"fieldSelector": _LIVE}, limit=_PAGE
        )
        for pod in listed.found:
            gpus = gpus_of(pod.spec.containers, pod.spec.init_containers)
            if gpus and pod.spec.node_name:
                used[pod.spec.node_name] += gpus
                counted[pod.metadata.uid] = _controller(pod.metadata.owner_references)
        now = self._clock.elapsed()
        # What came since an old read may be anybody's, and has nothing to do with who left now.
        recent = now - self._read_at <= _MOVING_S
        landed = (owner for uid, owner in counted.items() if owner and uid not in self._counted)
        self._landed = Counter(landed) if recent else Counter()
        self._used, self._counted, self._read_at = dict(used), counted, now


def _claim(pod: PodView, until: float | None) -> _Claim:
    return _Claim(
        gpus=pod.gpus, controller=_controller(pod.metadata.owner_references), until=until
    )


def _kept(before: _Claim | None, now: float) -> float:
    """Until when a place is kept: counted from the first promise, not renewed by each look."""
    return before.until if before is not None and before.until is not None else now + _PROMISED_S


def _controller(owners: Iterable[OwnerReference]) -> str:
    return next((owner.uid for owner in owners if owner.controller), "")


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
