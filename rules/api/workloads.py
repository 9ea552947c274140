"""Views of PodDisruptionBudgets and ResourceClaims, and the labels that identify a pod's gang.

Only allocated ResourceClaims count, because the devices of others are not known yet. Devices for
monitoring (`adminAccess`) do not count.

A pod's gang is its workload (JobSet, RayCluster, ...), which a label names. Without that label it
is the pod group of the scheduler, except for pods of `apps` controllers, which replace pods one by
one.
"""

from typing import Final, NamedTuple

import msgspec

from rules.api import accelerators
from rules.api.metadata import DOUBT_FIELD, LabelSelector, ObjectMeta, View
from rules.api.pods import PodView
from rules.api.resource_slices import GPU_DRIVER, DeviceAddress


class PdbCondition(View, frozen=True, kw_only=True):
    """A condition of a PDB; `DisruptionAllowed` carries SyncFailed."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PdbSpec(View, frozen=True, kw_only=True):
    """The PDB's limits, integers or percentages."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PdbStatus(View, frozen=True, kw_only=True):
    """The state as the disruption controller reports it."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[PdbCondition, ...] = ()
    disrupted_pods: dict[str, str] = msgspec.field(default_factory=dict)
    """Eviction times of pods that the controller has not processed yet, by name."""


class PdbView(View, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: PdbSpec = PdbSpec()
    status: PdbStatus = PdbStatus()

    @property
    def key(self) -> str:
        """`namespace/name`: the PDB's name in queues and messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


UNREADABLE_GPUS: Final = 1
"""Number of GPUs assumed for a claim that gpuward is not permitted to read."""


class DeviceResult(View, frozen=True, kw_only=True):
    """One device of an allocation."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU or other accelerator that is allocated exclusively."""
        return self.driver in accelerators.DRIVERS and not self.admin_access

    @property
    def address(self) -> DeviceAddress:
        """What identifies the device in ResourceSlices."""
        return DeviceAddress(self.driver, self.pool, self.device)


class DeviceResults(View, frozen=True, kw_only=True):
    """The devices of an allocation."""

    results: tuple[DeviceResult, ...] = ()


class Allocation(View, frozen=True, kw_only=True):
    """The devices allocated to a claim."""

    devices: DeviceResults = DeviceResults()


class ClaimStatus(View, frozen=True, kw_only=True):
    """The state of a claim; without an allocation it has no devices yet."""

    allocation: Allocation | None = None


class ResourceClaimView(View, frozen=True, kw_only=True):
    """A ResourceClaim of resource.k8s.io (v1, and v1beta1 before it)."""

    metadata: ObjectMeta = ObjectMeta()
    status: ClaimStatus = ClaimStatus()
    doubt: str = DOUBT_FIELD

    @property
    def results(self) -> tuple[DeviceResult, ...]:
        """The devices that are allocated to it."""
        allocation = self.status.allocation
        return allocation.devices.results if allocation is not None else ()

    @property
    def gpus(self) -> tuple[DeviceResult, ...]:
        """The GPUs among its devices."""
        return tuple(result for result in self.results if result.is_gpu)

    @property
    def monitored_gpus(self) -> tuple[DeviceResult, ...]:
        """The GPUs that are allocated to it for monitoring only."""
        return tuple(r for r in self.results if r.driver == GPU_DRIVER and r.admin_access)


def claim_names(pod: PodView) -> tuple[str, ...]:
    """Return the names of the pod's existing claims whose GPUs add to those of its containers."""
    made = {
        status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses
    }
    named = [
        claim.resource_claim_name or made.get(claim.name) for claim in pod.spec.resource_claims
    ]
    if not pod.gpus:
        named.append(extended_claim(pod))
    return tuple(sorted({name for name in named if name}))


def extended_claim(pod: PodView) -> str:
    """Return the name of the claim that the scheduler created for the GPUs of its containers."""
    extended = pod.status.extended_resource_claim_status
    return extended.resource_claim_name if extended is not None else ""


LABEL: Final = "label"
ANNOTATION: Final = "annotation"
POD_GROUP: Final = "PodGroup"
NATIVE_API: Final = "scheduling.k8s.io"
NATIVE_VERSIONS: Final = {
    POD_GROUP: ("v1beta1", "v1alpha3", "v1alpha2"),
    "Workload": ("v1alpha1",),
}
"""Versions that describe a pod group, by kind: Kubernetes 1.37 (two), 1.36 and 1.35."""
_LWS: Final = "LeaderWorkerSet"
_LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """A label or annotation with the name of the gang."""

    place: str
    key: str
    kind: str
    source: str
    needs: str = ""
    """An annotation that the pod must have, too."""


WORKLOADS: Final = tuple(
    Marker(place=LABEL, key=key, kind=kind, source=source)
    for key, kind, source in (
        ("trainer.kubeflow.org/trainjob-name", "TrainJob", "Kubeflow Trainer v2"),
        ("jobset.sigs.k8s.io/jobset-name", "JobSet", "JobSet controller"),
        ("leaderworkerset.sigs.k8s.io/name", _LWS, "LeaderWorkerSet controller"),
        ("volcano.sh/job-name", "VolcanoJob", "Volcano job controller"),
        ("training.kubeflow.org/job-name", "TrainingJob", "Kubeflow training and MPI operators"),
        ("ray.io/cluster", "RayCluster", "KubeRay operator"),
    )
)
"""The outermost owner first."""
POD_GROUPS: Final = (
    Marker(
        place=LABEL,
        key="kueue.x-k8s.io/pod-group-name",
        kind=POD_GROUP,
        source="Kueue, groups of plain pods",
    ),
    Marker(
        place=LABEL,
        key="scheduling.x-k8s.io/pod-group",
        kind=POD_GROUP,
        source="coscheduling of the scheduler plugins",
    ),
    Marker(
        place=LABEL,
        key="pod-group.scheduling.sigs.k8s.io",
        kind=POD_GROUP,
        source="coscheduling, the older spelling",
    ),
    Marker(
        place=ANNOTATION,
        key="scheduling.k8s.io/group-name",
        kind=POD_GROUP,
        source="Volcano scheduler",
    ),
    Marker(
        place=ANNOTATION, key="pod-group-name", kind=POD_GROUP, source="KAI and Run:ai schedulers"
    ),
    Marker(
        place=LABEL,
        key="yunikorn.apache.org/app-id",
        kind=POD_GROUP,
        source="YuniKorn, applications with task groups",
        needs="yunikorn.apache.org/task-group-name",
    ),
)


def workload_of(pod: PodView) -> tuple[str, str] | None:
    """Return the pod's workload as (kind, name), from the labels that its controller sets."""
    for marker in WORKLOADS:
        if name := _value(pod, marker):
            # A LeaderWorkerSet restarts by group, so each group is a gang.
            group = pod.metadata.labels.get(_LWS_GROUP) if marker.kind == _LWS else None
            return marker.kind, f"{name}-{group}" if group is not None else name
    return None


class NativeGroup(NamedTuple):
    """A pod group of `scheduling.k8s.io`, by the object that describes it.

    A Workload describes several groups: `group` and `replica` name one of them.
    """

    kind: str
    namespace: str
    name: str
    group: str = ""
    replica: str = ""


def native_group(pod: PodView) -> NativeGroup | None:
    """Return the pod group that the pod's spec names."""
    space, group, ref = pod.metadata.namespace, pod.spec.scheduling_group, pod.spec.workload_ref
    if group is not None and group.pod_group_name:
        return NativeGroup(POD_GROUP, space, group.pod_group_name)
    if ref is not None and ref.name and ref.pod_group:
        return NativeGroup("Workload", space, ref.name, ref.pod_group, ref.pod_group_replica_key)
    return None


def pod_group_of(pod: PodView) -> tuple[str, str] | None:
    """Return the pod group of the scheduler, as (kind, name)."""
    controller = pod.metadata.controller
    if controller is not None and controller.group == "apps":
        return None
    if (native := native_group(pod)) is not None:
        return native.kind, "/".join(filter(None, native[2:]))[:253]
    for marker in POD_GROUPS:
        if name := _value(pod, marker):
            return marker.kind, name
    return None


def _value(pod: PodView, marker: Marker) -> str:
    metadata = pod.metadata
    if marker.needs and marker.needs not in metadata.annotations:
        return ""
    values = metadata.labels if marker.place == LABEL else metadata.annotations
    return values.get(marker.key, "")[:253]
