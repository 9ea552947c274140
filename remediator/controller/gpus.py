"""Count the GPUs that pods request on each node, and read those held by ResourceClaims.

Requests are counted for drains of Degraded nodes only; `rules.drain.node_room` judges which pods
find no place. Never writes, and reads at most every 30 s: a place promised to a pod of one node
is not promised to another's within 90 s.
"""

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
from rules.api import object_name, resource_slices, workloads
from rules.api.object_name import BadSegmentError
from rules.api.pods import PodView
from rules.api.resource_slices import NodeDevices, ResourceSliceView
from rules.api.workloads import ResourceClaimView
from rules.drain import node_room
from rules.drain.node_room import without_room

_LOG = structlog.get_logger()

_GROUP = "resource.k8s.io"
# What a bound pod's claim holds does not change; what could not be read may be readable soon.
_CLAIMS_FRESH_S = 60.0
# A GPU keeps its device name until the driver's plugin restarts.
_SLICES_FRESH_S = 20.0
_SLICES_PAGE = 50
_SLICES_PAGES = 4
_NODES_KEPT = 100
_KEPT = 5_000
_FRESH_S = 30.0
# How long GPUs stay reserved for a pod. By then it runs on its new node or cannot be evicted.
_PROMISED_S = 90.0
_PROMISES_S = 3600.0
_PAGE = 500
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class _Place:
    """GPUs elsewhere that a pod was promised, and until when they are kept for it."""

    gpus: int
    until: float


class FreeGpus:
    """How many GPUs are requested on each node, and which were promised to pods that may leave."""

    def __init__(self, api: Api, clock: Clock, caches: Caches) -> None:
        self._api = api
        self._clock = clock
        self._caches = caches
        self._used: Mapping[str, int] = {}
        self._read_at = float("-inf")
        self._promised: dict[str, _Place] = {}
        """By pod UID; kept beyond its time, so that a pod that cannot leave is promised nothing
        again at once."""

    async def without_room(self, node: str, pods: Sequence[PodView]) -> frozenset[str]:
        """UIDs of pods that request more GPUs than any other node has free. Pods with GPUs from
        ResourceClaims are never included: their free devices are unknown.
        """
        for pod in pods:
            if pod.finished:
                self._promised.pop(pod.uid, None)
        asking = [pod for pod in pods if node_room.asks_for_room(pod) and not pod.claimed_gpus]
        if not asking:
            return frozenset()
        if self._clock.elapsed() - self._read_at > _FRESH_S:
            await self._read()
        # No await from here on: a place promised now is seen by the next node's look.
        now, own = self._clock.elapsed(), {pod.uid for pod in asking}
        taken = [p.gpus for uid, p in self._promised.items() if p.until > now and uid not in own]
        free = node_room.free_gpus(self._caches.nodes.items.values(), self._used)
        refused = without_room(asking, node, free, taken)
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
        pods = await self._api.items("/api/v1/pods", PodView, query=query, limit=_PAGE)
        for pod in pods.found:
            used[pod.spec.node_name] += pod.gpus
        self._used, self._read_at = dict(used), self._clock.elapsed()


@dataclass(frozen=True, slots=True)
class _Known:
    gpus: int
    read_at: float


class DeviceClaims:
    """Reads which GPUs pods hold through ResourceClaims.

    A cluster without dynamic resource allocation is never asked. Nothing here may fail a drain.
    """

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._groups = ApiGroups(api, clock)
        self._known: dict[tuple[str, str, str], _Known] = {}

    async def counted(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """The pods, with the GPUs that their claims hold."""
        return tuple([await self._counted(pod) for pod in pods])

    async def _counted(self, pod: PodView) -> PodView:
        names = workloads.claim_names(pod)
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
            path = object_name.api_path(
                f"/apis/{_GROUP}/{version}/namespaces", namespace, "resourceclaims", name
            )
            claim = await self._api.get(path, ResourceClaimView)
        except ApiError as error:
            if error.answer.code == 404:
                return 0
            _LOG.warning("resource claim", claim=f"{namespace}/{name}", why=str(error))
            return workloads.UNREADABLE_GPUS
        except BadSegmentError:
            return 0
        return len(claim.gpus)


class DeviceSlices:
    """Reads which GPU devices NVIDIA's DRA driver publishes for a node. An error is no devices."""

    def __init__(self, api: Api, clock: Clock, groups: ApiGroups) -> None:
        self._api = api
        self._clock = clock
        self._groups = groups
        self._known: dict[str, tuple[NodeDevices, float]] = {}

    async def of(self, node: str, *, fresh: bool = False) -> NodeDevices:
        """Return the devices of the node, with `fresh` as they are now; otherwise up to 20 s old.
        Not complete if they cannot be read.
        """
        now, known = self._clock.elapsed(), self._known.get(node)
        if known is None or fresh or now - known[1] > _SLICES_FRESH_S:
            if len(self._known) >= _NODES_KEPT:
                self._known.clear()
            known = self._known[node] = (await self._read(node), now)
        return known[0]

    async def _read(self, node: str) -> NodeDevices:
        version = (await self._groups.served()).get(_GROUP)
        if version is None:
            return NodeDevices()
        selectors = {"spec.nodeName": node, "spec.driver": resource_slices.GPU_DRIVER}
        fields = ",".join(object_name.field_selector(*item) for item in selectors.items())
        try:
            slices = await self._api.items(
                f"/apis/{_GROUP}/{version}/resourceslices",
                ResourceSliceView,
                query={"fieldSelector": fields},
                limit=_SLICES_PAGE,
                pages=_SLICES_PAGES,
            )
        except ApiError as error:
            if error.answer.code != 404:
                _LOG.warning("resource slices", node=node, why=str(error))
            return NodeDevices()
        return resource_slices.node_devices(node, slices.found, all_read=not slices.unread)
