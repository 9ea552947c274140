"""Which workload a pod belongs to, from the pod's own metadata alone: no owner is read for it.

Called by the agent for the pod of a process that an Xid 13 or 31 names. It must never call one
program two workloads because it was rolled out, retried or scheduled again: a crash-looping
program is not bad hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from rules.api.metadata import OwnerReference, View
from rules.api.workload.gang_markers import WORKLOADS
from rules.judge.incident import clipped

_TEMPLATE_HASHES: Final = (
    ("pod-template-hash", "Deployment"),
    ("rollouts-pod-template-hash", "Rollout"),
)
"""What ends the name of a ReplicaSet, and who made that ReplicaSet."""

_GENERATED: Final = re.compile(r"\d+|[bcdfghjklmnpqrstvwxz2456789]{5}|(?=[a-f]*\d)[0-9a-f]{8,64}")
"""The end of a made-up name: a number (CronJob, index, date), the five characters that Kubernetes
appends to `generateName` (its alphabet has no vowels), or a hash."""

_SEPARATORS: Final = re.compile(r"[-.]")
_MAX_NAME_BYTES: Final = 120


class PodNotes(View, frozen=True, kw_only=True):
    """The one annotation that is read: what a kubelet calls a pod that it runs from a file."""

    mirror: str = msgspec.field(name="kubernetes.io/config.mirror", default="")


class WorkloadMeta(View, frozen=True, kw_only=True):
    """The metadata of a pod, cut to what names its workload."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: PodNotes = PodNotes()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def kubelet_uid(self) -> str:
        """The UID that the kubelet puts into the names of the pod's cgroups."""
        return self.annotations.mirror or self.uid


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod is one of.

    `uid` is the pod's controller's, the pod's own where it has none. `program` is the coarser
    identity: namespace and name of the outermost owner that the pod names, without what is made
    up anew for each run. `name` is for people: `Deployment ml/llama`, at most 120 bytes.
    """

    uid: str
    program: str
    name: str

    def may_be(self, other: Workload) -> bool:
        """Whether both may run the same program: nothing but two differences tells them apart."""
        return self.uid == other.uid or self.program == other.program


def workload_behind(pod: WorkloadMeta) -> Workload:
    """The workload of a pod."""
    controller = next((owner for owner in pod.owner_references if owner.controller), None)
    kind, name = _outermost(pod, controller)
    return Workload(
        uid=controller.uid if controller is not None else pod.uid,
        program=clipped(f"{pod.namespace}/{_lasting(name)}"),
        name=clipped(f"{kind} {pod.namespace}/{name}", _MAX_NAME_BYTES),
    )


def programs_among(workloads: Iterable[Workload]) -> int:
    """How many different programs these are at least."""
    groups: list[list[Workload]] = []
    for workload in dict.fromkeys(workloads):
        same = [group for group in groups if any(workload.may_be(other) for other in group)]
        merged = [workload, *(other for group in same for other in group)]
        groups = [*(group for group in groups if group not in same), merged]
    return len(groups)


def _outermost(pod: WorkloadMeta, controller: OwnerReference | None) -> tuple[str, str]:
    for marker in WORKLOADS:
        if named := pod.labels.get(marker.key):
            return marker.kind, named
    if controller is None:
        return "Pod", pod.name
    for label, kind in _TEMPLATE_HASHES:
        suffix = f"-{pod.labels.get(label, '')}"
        if controller.name.endswith(suffix) and 1 < len(suffix) < len(controller.name):
            return kind, controller.name.removesuffix(suffix)
    return controller.kind, controller.name


def _lasting(name: str) -> str:
    """The name without what is generated for each run: `nightly-29012345` is `nightly`."""
    parts = _SEPARATORS.split(name)
    while len(parts) > 1 and _GENERATED.fullmatch(parts[-1]):
        parts.pop()
    return "-".join(parts)
