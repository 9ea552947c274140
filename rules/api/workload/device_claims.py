"""GPUs that pods hold through ResourceClaims (dynamic resource allocation), not through
containers.

A claim counts once it is allocated: only then it says which driver's devices it holds. Devices
taken for monitoring only (`adminAccess`) are nobody's to give back. Pure; the claims are read by
`remediator.controller.gpus`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from rules.api.metadata import View
from rules.api.nodes import ObjectMeta
from rules.api.pods import PodView

GPU_DRIVERS: Final = frozenset({"gpu.nvidia.com"})
"""DRA drivers whose devices are GPUs, or parts of one (MIG)."""
UNREADABLE_GPUS: Final = 1
"""A claim that may not be read may hold a GPU: for the pod's own good it is taken for one."""


class DeviceResult(View, frozen=True, kw_only=True):
    """One device of an allocation."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether it takes a GPU away from others."""
        return self.driver in GPU_DRIVERS and not self.admin_access


class DeviceResults(View, frozen=True, kw_only=True):
    """The devices of an allocation."""

    results: tuple[DeviceResult, ...] = ()


class Allocation(View, frozen=True, kw_only=True):
    """What a claim was given."""

    devices: DeviceResults = DeviceResults()


class ClaimStatus(View, frozen=True, kw_only=True):
    """Where a claim stands; without an allocation it holds nothing yet."""

    allocation: Allocation | None = None


class ResourceClaimView(View, frozen=True, kw_only=True):
    """A ResourceClaim of resource.k8s.io (v1, and v1beta1 before it)."""

    metadata: ObjectMeta = ObjectMeta()
    status: ClaimStatus = ClaimStatus()

    @property
    def gpus(self) -> tuple[DeviceResult, ...]:
        """The GPUs among its devices."""
        allocation = self.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        return tuple(result for result in results if result.is_gpu)


class SliceDevice(View, frozen=True, kw_only=True):
    """One device that a driver offers."""

    name: str = ""


class SlicePool(View, frozen=True, kw_only=True):
    """The pool a slice is a part of."""

    name: str = ""
    generation: int = 0


class SliceSpec(View, frozen=True, kw_only=True):
    """What a driver offers on a node."""

    driver: str = ""
    node_name: str = ""
    pool: SlicePool = SlicePool()
    devices: tuple[SliceDevice, ...] = ()


class ResourceSliceView(View, frozen=True, kw_only=True):
    """A ResourceSlice."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpec = SliceSpec()


def claim_names(pod: PodView) -> tuple[str, ...]:
    """Names of the pod's claims, as far as they were made; a pod without GPUs in its containers
    may have got them by a claim that the scheduler made for it.
    """
    made = {
        status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses
    }
    named = [
        claim.resource_claim_name or made.get(claim.name) for claim in pod.spec.resource_claims
    ]
    extended = pod.status.extended_resource_claim_status
    if extended is not None and not pod.gpus:
        named.append(extended.resource_claim_name)
    return tuple(sorted({name for name in named if name}))


def free_devices(
    slices: Iterable[ResourceSliceView], claims: Iterable[ResourceClaimView]
) -> Mapping[str, int]:
    """GPUs that drivers offer and no claim holds, by node name.

    A partitionable GPU is offered whole and in parts, so that this is the most there can be.
    """
    offered = [s.spec for s in slices if s.spec.driver in GPU_DRIVERS and s.spec.node_name]
    newest: dict[tuple[str, str], int] = {}
    for spec in offered:
        key = (spec.driver, spec.pool.name)
        newest[key] = max(spec.pool.generation, newest.get(key, 0))
    count: Counter[str] = Counter()
    node_of: dict[tuple[str, str], str] = {}
    for spec in offered:
        key = (spec.driver, spec.pool.name)
        if spec.pool.generation == newest[key]:
            count[spec.node_name] += len(spec.devices)
            node_of[key] = spec.node_name
    for claim in claims:
        for gpu in claim.gpus:
            if (node := node_of.get((gpu.driver, gpu.pool))) is not None:
                count[node] -= 1
    return {node: max(0, left) for node, left in count.items()}
