"""What schedulers and workload controllers write on the pods of a gang: a table, and its reader.

Used by `rules.drain.gangs` where the owner chain does not tell. A workload's own labels come first
and count on any pod. Pod groups of schedulers come last, and only on pods that no `apps`
controller keeps: those are replaced one by one, whatever group they were admitted with.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.api.pods import PodView

LABEL: Final = "label"
ANNOTATION: Final = "annotation"
POD_GROUP: Final = "PodGroup"
_LWS: Final = "LeaderWorkerSet"
_LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """One key whose value names the gang."""

    place: str
    key: str
    kind: str
    source: str
    needs: str = ""
    """An annotation that must be there as well."""


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
    """The workload whose controller labelled the pod, as (kind, name)."""
    for marker in WORKLOADS:
        if name := _value(pod, marker):
            # A LeaderWorkerSet restarts by group: each of its groups is a gang of its own.
            group = pod.metadata.labels.get(_LWS_GROUP) if marker.kind == _LWS else None
            return marker.kind, f"{name}-{group}" if group is not None else name
    return None


def pod_group_of(pod: PodView) -> tuple[str, str] | None:
    """The pod group a scheduler admitted the pod with, as (kind, name)."""
    controller = pod.metadata.controller
    if controller is not None and controller.group == "apps":
        return None
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return POD_GROUP, group.pod_group_name
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
