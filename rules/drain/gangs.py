"""Gangs: pods that restart together, so that one bad GPU must not cost them two restarts.

Recognised from the pod's owner chain and from what controllers and schedulers write on it
(`rules.api.workloads`), whether or not their CRDs are installed here. Used for the
order of drains (`rules.fleet.quarantined_turns`) and to name a PDB that protects an entire gang
(`rules.drain.plan`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rules.api import workloads
from rules.api.metadata import OwnerReference
from rules.api.pods import OwnerView, PodView

_GANG_KINDS: Final = frozenset(
    {
        ("batch", "Job"),
        ("jobset.x-k8s.io", "JobSet"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("batch.volcano.sh", "Job"),
        ("trainer.kubeflow.org", "TrainJob"),
        ("kubeflow.org", "PyTorchJob"),
        ("kubeflow.org", "TFJob"),
        ("kubeflow.org", "MPIJob"),
        ("kubeflow.org", "JAXJob"),
        ("kubeflow.org", "XGBoostJob"),
        ("kubeflow.org", "PaddleJob"),
        ("ray.io", "RayCluster"),
        ("ray.io", "RayJob"),
    }
)
_TAS: Final = "kueue.x-k8s.io/podset-required-topology"
_TAS_ANNOTATIONS: Final = (
    _TAS,
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
)
_CHAIN_LIMIT: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Gang:
    """One gang: the outermost workload its pods belong to."""

    kind: str
    namespace: str
    name: str
    topology_aware: bool = False
    """Kueue places it by topology: it heals one node at a time, and only one."""

    @property
    def key(self) -> str:
        """`Kind namespace/name`: how sentences and snapshots name it."""
        return f"{self.kind} {self.namespace}/{self.name}"


def gang_of(pod: PodView, owners: Mapping[str, OwnerView]) -> Gang | None:
    """The gang `pod` belongs to. `owners` (by UID) may miss any part of the chain."""
    found = _by_chain(pod, owners) or workloads.workload_of(pod) or workloads.pod_group_of(pod)
    if found is None:
        return None
    kind, name = found
    aware = any(annotation in pod.metadata.annotations for annotation in _TAS_ANNOTATIONS)
    return Gang(kind=kind, namespace=pod.metadata.namespace, name=name, topology_aware=aware)


def _by_chain(pod: PodView, owners: Mapping[str, OwnerView]) -> tuple[str, str] | None:
    """The outermost gang kind on the way up; labels may still name one further out."""
    found: tuple[str, str] | None = None
    owner: OwnerReference | None = pod.metadata.controller
    for _ in range(_CHAIN_LIMIT):
        if owner is None:
            break
        if (owner.group, owner.kind) in _GANG_KINDS:
            volcano = owner.group == "batch.volcano.sh"
            found = ("VolcanoJob" if volcano else owner.kind, owner.name)
        parent = owners.get(owner.uid)
        owner = parent.metadata.controller if parent else None
    if found is not None and found[0] in {"Job", "LeaderWorkerSet"}:
        return workloads.workload_of(pod) or found
    return found


def gangs_of(pods: Iterable[PodView], owners: Mapping[str, OwnerView]) -> tuple[Gang, ...]:
    """The gangs with a live GPU pod among `pods`, sorted."""
    found = {
        gang
        for pod in pods
        if not pod.finished and pod.gpus and (gang := gang_of(pod, owners)) is not None
    }
    return tuple(sorted(found))
