"""Which GPUs pods hold through ResourceClaims, and which are free: read where a pod names claims.

`drain.look` and `drain.gang_scout` see a pod with a GPU claim as a GPU pod by what is read here;
`drain.free_gpus` asks for the devices that no claim holds. A cluster without dynamic resource
allocation is never asked. Nothing here may fail a drain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
import structlog

from remediator.kube.answer import ApiError
from remediator.kube.api import Api
from remediator.kube.api_groups import ApiGroups
from remediator.kube.clock import Clock
from rules.api.object_name import BadSegmentError, api_path
from rules.api.pods import PodView
from rules.api.workload.device_claims import (
    UNREADABLE_GPUS,
    ResourceClaimView,
    ResourceSliceView,
    claim_names,
    free_devices,
)

_LOG = structlog.get_logger()

_GROUP = "resource.k8s.io"
# What a bound pod's claim holds does not change; what could not be read may be readable soon.
_FRESH_S = 60.0
_KEPT = 5_000
_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Known:
    gpus: int
    read_at: float


class DeviceClaims:
    """Reads claims and slices for one process."""

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
        if now - self._free_at > _FRESH_S / 2:
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
        if known is None or now - known.read_at > _FRESH_S:
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
