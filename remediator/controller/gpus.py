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
from rules.api.health import Holders
from rules.api.object_name import BadSegmentError
from rules.api.pods import PodView
from rules.api.resource_slices import NodeDevices, ResourceSliceView
from rules.api.workloads import ResourceClaimView
from rules.drain import holdings, node_room
from rules.drain.holdings import Listed
from rules.drain.node_room import Room, without_room

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
# The API server allows 32 devices in a claim. Pods have few claims.
_MAX_RESULTS = 128
_MAX_CLAIMS = 64
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
    vendor: str
    until: float


class FreeGpus:
    """How many GPUs are requested on each node, and which were promised to pods that may leave."""

    def __init__(self, api: Api, clock: Clock, caches: Caches) -> None:
        self._api = api
        self._clock = clock
        self._caches = caches
        self._used: Mapping[Room, int] = {}
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
        taken = [
            (place.gpus, place.vendor)
            for uid, place in self._promised.items()
            if place.until > now and uid not in own
        ]
        free = node_room.free_gpus(self._caches.nodes.items.values(), self._used)
        refused = without_room(asking, node, free, taken)
        for pod in asking:
            if pod.uid in refused:
                self._promised.pop(pod.uid, None)
            else:
                place = _Place(pod.gpus, pod.gpu_vendor, now + _PROMISED_S)
                self._promised.setdefault(pod.uid, place)
        self._promised = {u: p for u, p in self._promised.items() if now - p.until < _PROMISES_S}
        return refused

    async def _read(self) -> None:
        used: defaultdict[Room, int] = defaultdict(int)
        query = {"fieldSelector": _LIVE}
        pods = await self._api.items("/api/v1/pods", PodView, query=query, limit=_PAGE)
        for pod in pods.found:
            used[pod.spec.node_name, pod.gpu_vendor] += pod.gpus
        self._used, self._read_at = dict(used), self._clock.elapsed()


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
        fields = resource_slices.fields_of(resource_slices.GPU_DRIVER, node)
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


class DeviceClaims:
    """Reads which GPUs pods hold through ResourceClaims.

    A cluster without dynamic resource allocation is never asked. Nothing here may fail a drain.
    """

    def __init__(self, api: Api, clock: Clock, groups: ApiGroups, slices: DeviceSlices) -> None:
        self._api = api
        self._clock = clock
        self._groups = groups
        self._slices = slices
        self._known: dict[tuple[str, str, str], tuple[ResourceClaimView | None, float]] = {}

    async def with_gpus(
        self, node: str, pods: Iterable[PodView], holders: Holders | None
    ) -> tuple[PodView, ...]:
        """Return the node's pods with the number of GPUs of their claims and the GPUs they hold.
        `holders` is the kubelet's list.
        """
        listed = holdings.listed_by_pod(holders)
        read_at = holders.read_at if holders is not None else ""
        return tuple([await self._with_gpus(node, pod, read_at, listed) for pod in pods])

    async def _with_gpus(self, node: str, pod: PodView, read_at: str, listed: Listed) -> PodView:
        names = () if pod.finished else holdings.claim_names(pod)
        few = len(names) <= _MAX_CLAIMS
        claims = {name: await self._claim(pod, name) if few else None for name in names}
        gpus = sum(
            len(claim.gpus) if claim is not None else workloads.UNREADABLE_GPUS
            for claim in map(claims.get, workloads.claim_names(pod) if claims else ())
        )
        counted = msgspec.structs.replace(pod, claimed_gpus=gpus)
        entries = holdings.entries_of(pod, read_at, listed)
        by_device = any(entry.devices for entry in entries) or any(
            claim is not None and claim.gpus for claim in claims.values()
        )
        devices = await self._slices.of(node) if by_device else NodeDevices()
        held = holdings.held_by(counted, entries, claims, devices)
        return msgspec.structs.replace(counted, held=held)

    async def _claim(self, pod: PodView, name: str) -> ResourceClaimView | None:
        """Return the claim, without devices if it does not exist; None if it is unreadable."""
        key = (pod.uid, pod.metadata.namespace, name)
        now, known = self._clock.elapsed(), self._known.get(key)
        if known is None or now - known[1] > _CLAIMS_FRESH_S:
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[key] = (await self._read(pod.metadata.namespace, name), now)
        return known[0]

    async def _read(self, namespace: str, name: str) -> ResourceClaimView | None:
        served = await self._groups.served()
        version = served.get(_GROUP)
        if version is None:
            # Nothing is served before the first answer of the API server.
            return ResourceClaimView() if served else None
        try:
            path = object_name.api_path(
                f"/apis/{_GROUP}/{version}/namespaces", namespace, "resourceclaims", name
            )
            claim = await self._api.get(path, ResourceClaimView)
        except ApiError as error:
            if error.answer.code == 404:
                return ResourceClaimView()
            _LOG.warning("resource claim", claim=f"{namespace}/{name}", why=str(error))
            return None
        except BadSegmentError:
            return ResourceClaimView()
        return claim if len(claim.results) <= _MAX_RESULTS and not claim.doubt else None
