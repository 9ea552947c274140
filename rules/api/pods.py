"""Views of Pods, their containers, owners and volumes for the drain rules.

A GPU is any accelerator of `rules.api.accelerators`: entire GPUs, GPUs shared by time-slicing or
MPS, partitions such as MIG devices, and chips such as Gaudi, Neuron and TPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from rules.api import accelerators
from rules.api.metadata import DOUBT_FIELD, ObjectMeta, View
from rules.api.names import (
    COMPONENT_RESET_GPU,
    COMPONENT_RESTART_NODE,
    COMPONENT_VALIDATE,
)

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
_JOBS: Final = frozenset({COMPONENT_VALIDATE, COMPONENT_RESET_GPU, COMPONENT_RESTART_NODE})
_VENDOR: Final = "nvidia.com/"
# As the API server writes whole numbers: 1000 comes back as 1k.
_SUFFIX: Final = {"k": 1_000, "M": 1_000_000, "Ki": 1_024, "Mi": 1_048_576}


class ResourceNeeds(View, frozen=True, kw_only=True):
    """Requests and limits as quantity strings."""

    requests: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class Container(View, frozen=True, kw_only=True):
    """One container's name and needs."""

    name: str = ""
    resources: ResourceNeeds = ResourceNeeds()
    restart_policy: str = ""
    """`Always` makes an init container a sidecar, which runs as long as the pod."""


def passed_through(containers: Iterable[Container]) -> int:
    """Return the passed-through or virtual GPUs of a virtual machine's pod.

    KubeVirt's administrator chooses those resource names (`nvidia.com/GA102GL_A10`), so all
    devices of the vendor count. To count a network adapter only delays a repair; to miss a GPU
    would end a virtual machine.
    """
    devices = (
        _count(amount)
        for container in containers
        for name, amount in container.resources.limits.items()
        if name.startswith(_VENDOR) and not accelerators.is_accelerator(name)
    )
    return sum(devices)


def gpu_amounts(amounts: Mapping[str, str]) -> dict[str, int]:
    """Return the GPU resources in `amounts`, by name."""
    found = {}
    for name, amount in amounts.items():
        if accelerators.is_accelerator(name):
            found[name] = _count(amount)
    return found


def gpus_of(containers: Iterable[Container], init: Iterable[Container] = ()) -> Mapping[str, int]:
    """Return the most GPUs of each resource that the pod uses at a time, as the scheduler counts.

    Containers and sidecars run together. An init container runs before the containers, together
    with the sidecars that started earlier.
    """
    needs = [_needs(container) for container in containers]
    sidecars: list[dict[str, int]] = []
    starting: list[Sequence[dict[str, int]]] = []
    for container in init:
        if container.restart_policy == "Always":
            sidecars.append(_needs(container))
        else:
            starting.append((*sidecars, _needs(container)))
    moments = [_total([*needs, *sidecars]), *(_total(moment) for moment in starting)]
    names = {name for moment in moments for name in moment}
    return {name: max(moment.get(name, 0) for moment in moments) for name in names}


def _needs(container: Container) -> dict[str, int]:
    return gpu_amounts({**container.resources.limits, **container.resources.requests})


def _total(needs: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in needs:
        for name, count in one.items():
            found[name] = found.get(name, 0) + count
    return found


def _count(amount: str) -> int:
    """Return the number of devices; 0 for an invalid quantity."""
    number = amount.rstrip("kKMi")
    factor = _SUFFIX.get(amount[len(number) :], 0) if number != amount else 1
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        return 0
    return int(number) * factor


_KUBEVIRT: Final = "kubevirt.io"
_LAUNCHER: Final = "virt-launcher"


class Toleration(View, frozen=True, kw_only=True):
    """One toleration of a pod or pod template."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class ClaimSource(View, frozen=True, kw_only=True):
    """A volume that is a PersistentVolumeClaim."""

    claim_name: str = ""


class Volume(View, frozen=True, kw_only=True):
    """One volume: only whether it is an emptyDir or a claim matters."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None


class SchedulingGroup(View, frozen=True, kw_only=True):
    """The PodGroup of `scheduling.k8s.io` that the pod belongs to (Kubernetes 1.36 and later)."""

    pod_group_name: str = ""


class WorkloadReference(View, frozen=True, kw_only=True):
    """The group of a Workload that the pod belongs to (Kubernetes 1.35)."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodClaim(View, frozen=True, kw_only=True):
    """A ResourceClaim that the pod uses, by name or made from a template for it."""

    name: str = ""
    resource_claim_name: str | None = None


class PodClaimStatus(View, frozen=True, kw_only=True):
    """The name of a claim that was created from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class ExtendedClaimStatus(View, frozen=True, kw_only=True):
    """The claim that the scheduler created for extended resources of a container."""

    resource_claim_name: str = ""


class PodSpec(View, frozen=True, kw_only=True):
    """The part of a pod's spec that matters for its eviction."""

    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    priority: int | None = None
    priority_class_name: str = ""
    termination_grace_period_seconds: int | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Volume, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class ContainerState(View, frozen=True, kw_only=True):
    """The state of a container; only which one is set matters."""

    running: Any = None
    terminated: Any = None
    waiting: Any = None


class ContainerStatus(View, frozen=True, kw_only=True):
    """One container's state as the kubelet reports it."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodCondition(View, frozen=True, kw_only=True):
    """A condition of a pod: Ready, DisruptionTarget."""

    type: str
    status: str = "Unknown"
    reason: str = ""


class PodStatus(View, frozen=True, kw_only=True):
    """Phase, readiness and container states."""

    phase: str = "Pending"
    start_time: str | None = None
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class PodMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata with the grace period of a terminating pod."""

    deletion_grace_period_seconds: int | None = None


class PodView(View, frozen=True, kw_only=True):
    """A Pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    claimed_gpus: int = msgspec.field(name="gpuward.io/claimedGpus", default=0)
    """GPUs of its ResourceClaims; never on the wire, set after the claims are read."""
    held: frozenset[str] | None = msgspec.field(name="gpuward.io/heldGpus", default=None)
    """UUIDs of the GPUs that it uses, None if unknown; never on the wire, set by the reader."""
    doubt: str = DOUBT_FIELD

    @property
    def key(self) -> str:
        """`namespace/name`: the pod's name in messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def uid(self) -> str:
        """The pod's UID, the key of queues and outcomes."""
        return self.metadata.uid

    @property
    def ready(self) -> bool:
        """Whether the Ready condition is True."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def finished(self) -> bool:
        """Whether it has completed and uses no device any more."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def terminating(self) -> bool:
        """Whether it is deleted or evicted already."""
        return self.metadata.deletion_timestamp is not None

    @property
    def gpus(self) -> int:
        """The number of its GPUs, partitions of GPUs and other accelerators."""
        requested = gpus_of(self.spec.containers, self.spec.init_containers)
        held = sum(requested.values()) + self.claimed_gpus
        if self.metadata.labels.get(_KUBEVIRT) == _LAUNCHER:
            held += passed_through(self.spec.containers)
        return held

    @property
    def gpu_vendor(self) -> str:
        """The domain of the GPU resources that it requests; `nvidia.com` without any."""
        requested = gpus_of(self.spec.containers, self.spec.init_containers)
        return accelerators.vendor(max(requested, key=requested.__getitem__, default=_VENDOR))


def unreadable_pod(key: str, node: str) -> PodView:
    """Return a placeholder for a pod that cannot be read, except for its name."""
    namespace, _, name = key.rpartition("/")
    return PodView(
        metadata=PodMeta(name=name, namespace=namespace, uid=f"unread {key}"),
        spec=PodSpec(node_name=node),
        doubt="the object is unreadable",
    )


class OwnerView(View, frozen=True, kw_only=True):
    """Any object of an owner chain: Job, JobSet, ReplicaSet, a custom resource."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta


class PodTemplateSpec(View, frozen=True, kw_only=True):
    """Node selector and tolerations of a DaemonSet's pods."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class PodTemplate(View, frozen=True, kw_only=True):
    """A pod template."""

    spec: PodTemplateSpec = PodTemplateSpec()


class DaemonSetSpec(View, frozen=True, kw_only=True):
    """The part of a DaemonSet that shows whether its pods tolerate the quarantine taint."""

    template: PodTemplate = PodTemplate()


class DaemonSetView(View, frozen=True, kw_only=True):
    """A DaemonSet of group apps."""

    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()


class AttachmentSource(View, frozen=True, kw_only=True):
    """The volume an attachment is about."""

    persistent_volume_name: str = ""


class AttachmentSpec(View, frozen=True, kw_only=True):
    """Which volume is attached to which node."""

    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachmentView(View, frozen=True, kw_only=True):
    """A VolumeAttachment of storage.k8s.io."""

    metadata: ObjectMeta
    spec: AttachmentSpec = AttachmentSpec()


class ClaimSpec(View, frozen=True, kw_only=True):
    """Which volume a claim is bound to."""

    volume_name: str = ""


class ClaimView(View, frozen=True, kw_only=True):
    """A PersistentVolumeClaim: joins a pod's volumes to VolumeAttachments."""

    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()


def is_own_job(pod: PodView, own_namespace: str) -> bool:
    """Return whether the pod belongs to a test or repair Job of gpuward."""
    meta = pod.metadata
    named = meta.labels.get(LABEL_NAME) == "gpuward"
    ours = named and meta.labels.get(LABEL_COMPONENT) in _JOBS
    return bool(own_namespace) and meta.namespace == own_namespace and ours
