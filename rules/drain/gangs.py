"""Find the gang of a pod: the pods that restart together.

Gangs are recognised by the pod's owner chain and by the labels and annotations of controllers and
schedulers (`rules.api.workloads`), even if their CRDs are not installed. They set the order of
drains (`rules.fleet.quarantined_turns`), so that one bad GPU does not restart a gang twice. A pod
group of `scheduling.k8s.io` may permit to evict its pods independently: then they are no gang.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from rules.api import workloads
from rules.api.metadata import OwnerReference
from rules.api.pods import OwnerView, PodView
from rules.api.workloads import NativeGroup

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
_INDEPENDENT: Final[tuple[object, ...]] = ("Pod", {"single": {}})
"""Disruption modes that permit it: a string in v1alpha2, an object from v1alpha3 on."""
_BY_GROUP: Final = frozenset({"Job", *workloads.NATIVE_VERSIONS})
"""Kinds whose pod group decides. Other controllers restart all pods whatever the group permits."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Gang:
    """One gang: the outermost workload of its pods."""

    kind: str
    namespace: str
    name: str
    topology_aware: bool = False
    """Kueue places it by topology, and can replace one node at a time."""
    min_count: int = 0
    """Pods that the scheduler needs to start the gang; 0 if unknown."""
    elsewhere: int = 0
    """Running pods of the gang on nodes without a session."""

    @property
    def kept(self) -> str:
        """A clause if at least `min_count` pods of the gang run on other nodes."""
        if not 0 < self.min_count <= self.elsewhere:
            return ""
        return f"{self.elsewhere} of its pods run elsewhere, minCount is {self.min_count}"

    @property
    def key(self) -> str:
        """`Kind namespace/name`: its name in messages and snapshots."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPolicy:
    """How the pods of a pod group of `scheduling.k8s.io` may be evicted."""

    independent: bool = False
    """They may be evicted one by one."""
    min_count: int = 0
    elsewhere: int = 0


def group_policy(found: Mapping[str, Any], group: NativeGroup) -> GroupPolicy:
    """Return the policy of `group` from its PodGroup or Workload.

    Anything unknown or of a wrong type means that the pods leave together. So do those of a group
    within a composite group, which is not read.
    """
    spec = _mapping(found.get("spec"))
    if group.group:
        listed = spec.get("podGroups")
        entries = map(_mapping, listed if isinstance(listed, list) else ())
        spec = next((entry for entry in entries if entry.get("name") == group.group), {})
    policy = _mapping(spec.get("schedulingPolicy", spec.get("policy")))
    mode = spec.get("disruptionMode")
    if mode == "Pod" and "priority" not in spec:
        # Kubernetes 1.36 without WorkloadAwarePreemption stores Pod, whatever was requested.
        mode = None
    independent = policy == {"basic": {}} if mode is None else mode in _INDEPENDENT
    count = _mapping(policy.get("gang")).get("minCount")
    return GroupPolicy(
        independent=independent and not spec.get("parentCompositePodGroupName"),
        min_count=count if type(count) is int and count > 0 else 0,
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


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


def gangs_of(
    pods: Iterable[PodView],
    owners: Mapping[str, OwnerView],
    groups: Mapping[NativeGroup, GroupPolicy] = MappingProxyType({}),
) -> tuple[Gang, ...]:
    """Return the gangs with a running GPU pod among `pods`, sorted.

    Without a policy in `groups`, the pods of a group are a gang.
    """
    found = {
        gang
        for pod in pods
        if not pod.finished and pod.gpus and (gang := _grouped(pod, owners, groups)) is not None
    }
    return tuple(sorted(found))


def _grouped(
    pod: PodView, owners: Mapping[str, OwnerView], groups: Mapping[NativeGroup, GroupPolicy]
) -> Gang | None:
    """Return the gang of the pod, unless its pod group permits independent evictions."""
    gang = gang_of(pod, owners)
    group = workloads.native_group(pod)
    policy = groups.get(group) if group is not None else None
    if gang is None or policy is None or gang.kind not in _BY_GROUP:
        return gang
    if policy.independent:
        return gang if gang.topology_aware else None
    return replace(gang, min_count=policy.min_count, elsewhere=policy.elsewhere)
