"""Find the gang of a pod: the pods that restart together.

Gangs are recognised by the pod's owner chain and by the labels and annotations of controllers and
schedulers (`rules.api.workloads`), even if their CRDs are not installed. They set the order of
drains (`rules.fleet.quarantined_turns`), so that one bad GPU does not restart a gang twice.
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
    """One gang: the outermost workload of its pods."""

    kind: str
    namespace: str
    name: str
    topology_aware: bool = False
    """Kueue places it by topology, and can replace one node at a time."""

    @property
    def key(self) -> str:
        """`Kind namespace/name`: its name in messages and snapshots."""
        return f"{self.kind} {self.namespace}/{self.name}"


def gang_of(pod: PodView, owners: Mapping[str, OwnerView]) -> Gang | None:
    """Return the gang of `pod`. `owners` (by UID) may lack parts of the owner chain."""
    found = _by_chain(pod, owners) or workloads.workload_of(pod) or workloads.pod_group_of(pod)
    if found is None:
        return None
    kind, name = found
    aware = any(annotation in pod.metadata.annotations for annotation in _TAS_ANNOTATIONS)
    return Gang(kind=kind, namespace=pod.metadata.namespace, name=name, topology_aware=aware)


def _by_chain(pod: PodView, owners: Mapping[str, OwnerView]) -> tuple[str, str] | None:
    """Return the outermost owner of a gang kind; labels may still name one further out."""
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
    """Return the gangs with a running GPU pod among `pods`, sorted."""
    found = {
        gang
        for pod in pods
        if not pod.finished and pod.gpus and (gang := gang_of(pod, owners)) is not None
    }
    return tuple(sorted(found))
