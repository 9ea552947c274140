"""Which pods leave, which stay, whether there is room for them, and their gangs."""

from typing import Any

import msgspec
import pytest

from rules.api.pods import OwnerView, PodView
from rules.api.timestamps import format_time, parse_time
from rules.catalog.reason import DrainScope
from rules.catalog.why_not import WhyNot
from rules.drain.fate import Fate, Moment, fate_of
from rules.drain.gangs import gang_of, gangs_of
from rules.drain.node_room import free_gpus, without_room
from tests.support.scenario.drain_objects import node, pod
from tests.support.scenario.session_world import policy_of

NOW = parse_time("2026-01-01T01:00:00Z") or 0.0


def owned(version: str, kind: str) -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": True}
    return {"ownerReferences": [reference]}


def judged(target: PodView, *, severity: str = "Fatal", missing: str = "", **policy: Any) -> Any:
    at = Moment(now=NOW, started_at=NOW - 60, severity=severity, policy=policy_of(**policy))
    return fate_of(target, frozenset({missing}), at)


@pytest.mark.parametrize(
    ("target", "fate", "why"),
    [
        pytest.param(pod(), Fate.EVICT, "", id="ordinary"),
        pytest.param(
            pod(metadata=owned("apps/v1", "DaemonSet")), Fate.STAYS, "DaemonSet", id="ds"
        ),
        pytest.param(
            pod(metadata=owned("apps.kruise.io/v1alpha1", "DaemonSet")),
            Fate.STAYS,
            "DaemonSet",
            id="the DaemonSet of another controller",
        ),
        pytest.param(
            pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
            Fate.STAYS,
            "static pod",
            id="mirror",
        ),
        pytest.param(pod(metadata=owned("v1", "Node")), Fate.STAYS, "static pod", id="node-owned"),
        pytest.param(pod(status={"phase": "Succeeded"}), Fate.STAYS, "", id="finished"),
        pytest.param(pod(metadata={"ownerReferences": []}), Fate.STAYS, "unmanaged", id="bare"),
        pytest.param(pod(status={"phase": "Pending"}), Fate.EVICT, "", id="pending"),
    ],
)
def test_by_default(target: PodView, fate: Fate, why: str) -> None:
    assessment = judged(target)
    assert (assessment.fate, assessment.why) == (fate, why)


HELD, FREE = frozenset({"GPU-bad"}), frozenset({"GPU-good"})


@pytest.mark.parametrize(
    ("gpus", "held", "leaves"),
    [
        pytest.param(1, HELD, {"Node", "GPUPods", "Holders"}, id="holder"),
        pytest.param(2, HELD | FREE, {"Node", "GPUPods", "Holders"}, id="of both"),
        pytest.param(1, FREE, {"Node", "GPUPods"}, id="of another GPU"),
        pytest.param(1, None, {"Node", "GPUPods", "Holders"}, id="of an unknown GPU"),
        pytest.param(0, None, {"Node"}, id="no GPU requested"),
        pytest.param(0, frozenset(), {"Node"}, id="no GPU held"),
        pytest.param(0, HELD, {"Node", "GPUPods", "Holders"}, id="holds without a request"),
    ],
)
def test_the_scope_leaves_pods_that_the_fault_does_not_concern(
    gpus: int, held: frozenset[str] | None, leaves: set[str]
) -> None:
    amount = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"nodeName": "n0", "containers": [{"name": "main", "resources": amount}]}
    target = msgspec.structs.replace(pod(spec=spec), held=held)
    for scope in DrainScope:
        at = Moment(
            now=NOW,
            started_at=NOW - 60,
            severity="Fatal",
            policy=policy_of(),
            scope=scope,
            accused=HELD,
        )
        fate = fate_of(target, frozenset(), at).fate
        assert fate is (Fate.EVICT if scope in leaves else Fate.STAYS), scope


def test_without_an_accused_gpu_no_gpu_pod_stays() -> None:
    target = msgspec.structs.replace(
        pod(spec={"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}), held=FREE
    )
    at = Moment(
        now=NOW,
        started_at=NOW - 60,
        severity="Fatal",
        policy=policy_of(),
        scope=DrainScope.HOLDERS,
    )
    assert fate_of(target, frozenset(), at).fate is Fate.EVICT


def test_an_orphan_of_a_deleted_daemonset_goes() -> None:
    assert judged(pod(metadata=owned("apps/v1", "DaemonSet")), missing="o").fate is Fate.EVICT


def terminating(seconds_ago: float, **parts: Any) -> PodView:
    meta = {"deletionTimestamp": format_time(NOW - seconds_ago), **parts.pop("metadata", {})}
    return pod(metadata=meta, **parts)


ENDED = {"containerStatuses": [{"name": "main", "state": {"terminated": {}}}]}
RUNNING = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("target", "fate"),
    [
        pytest.param(terminating(-30, status=RUNNING), Fate.LEAVING, id="in-grace"),
        pytest.param(terminating(59, status=RUNNING), Fate.LEAVING, id="just-over"),
        pytest.param(terminating(61, status=RUNNING), Fate.STUCK, id="hung"),
        pytest.param(
            terminating(61, status=ENDED, metadata={"finalizers": ["a/b"]}),
            "Over",
            id="finalizer",
        ),
        pytest.param(
            terminating(61, status={"phase": "Failed"}, metadata={"finalizers": ["a/b"]}),
            "Over",
            id="finalizer-and-the-last-phase",
        ),
        pytest.param(
            terminating(1, status={"phase": "Succeeded"}, metadata={"finalizers": ["a/b"]}),
            Fate.LEAVING,
            id="finalizer-in-its-minute",
        ),
        pytest.param(
            terminating(61, status={"phase": "Failed"}), Fate.STAYS, id="finished-and-going"
        ),
        pytest.param(
            terminating(61, status=RUNNING, metadata={"finalizers": ["a/b"]}),
            Fate.STUCK,
            id="finalizer-and-still-running",
        ),
        pytest.param(
            terminating(
                61,
                status={
                    **ENDED,
                    "initContainerStatuses": [{"name": "sidecar", "state": {"running": {}}}],
                },
                metadata={"finalizers": ["a/b"]},
            ),
            Fate.STUCK,
            id="finalizer-and-a-sidecar-that-runs",
        ),
    ],
)
def test_terminating_pods_are_distinguished(target: PodView, fate: str) -> None:
    assessment = judged(target)
    assert assessment.fate == fate


def test_of_two_wishes_not_to_be_disrupted_the_longer_is_kept() -> None:
    held = pod(
        metadata={
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "1m",
            }
        },
        status={"startTime": format_time(NOW - 300)},
    )
    assessment = judged(held)
    assert assessment.fate is Fate.WAITS
    assert assessment.refusal is not None
    assert assessment.refusal.reason is WhyNot.DO_NOT_DISRUPT
    assert assessment.until == NOW - 60 + 600


def test_the_first_matching_rule_wins() -> None:
    rules = [{"namespaces": ["team-a"], "strategy": "Skip"}, {"strategy": "WaitCompleted"}]
    assert judged(pod(), pods=rules).fate is Fate.STAYS
    assert judged(pod(metadata={"namespace": "team-b"}), pods=rules).fate is Fate.WAITS


@pytest.mark.parametrize(("grace_s", "reported"), [(600, True), (30, False)])
def test_a_long_grace_period_of_a_terminating_pod_has_an_end(grace_s: int, reported: bool) -> None:
    pod = terminating(-300, metadata={"deletionGracePeriodSeconds": grace_s})
    ends_at = NOW + 300
    assert judged(pod).leaves_by == (ends_at if reported else None)


def gpu_node(name: str, **spec: Any) -> Any:
    return node(
        name,
        spec=spec,
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "64"},
        },
    )


NVIDIA = "nvidia.com"


def gpu_pod(name: str, where: str, gpus: int, **status: Any) -> Any:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"nodeName": where, "containers": [{"name": "m", "resources": limits}]}
    return pod(name, spec=spec, status=status)


def test_what_is_free() -> None:
    nodes = [gpu_node("n0"), gpu_node("n1"), gpu_node("n2", unschedulable=True)]
    used = {("n0", NVIDIA): 3, ("n1", NVIDIA): 9}
    assert free_gpus(nodes, used) == {("n0", NVIDIA): 5, ("n1", NVIDIA): 0}


@pytest.mark.parametrize(
    ("sizes", "free", "homeless"),
    [
        pytest.param([8], {"n1": 8}, [], id="fits"),
        pytest.param([8], {"n1": 4, "n2": 4}, ["p0"], id="pieces-do-not-add-up"),
        pytest.param([8], {"n0": 8}, ["p0"], id="not-on-itself"),
        pytest.param([2, 8], {"n1": 8, "n2": 2}, [], id="large-first"),
        pytest.param([4, 4, 4], {"n1": 8}, ["p2"], id="one-too-many"),
        pytest.param([0], {}, [], id="no-gpu-no-question"),
    ],
)
def test_who_finds_no_place(sizes: list[int], free: dict[str, int], homeless: list[str]) -> None:
    pods = [gpu_pod(f"p{index}", "n0", size) for index, size in enumerate(sizes)]
    rooms = {(node, NVIDIA): count for node, count in free.items()}
    assert without_room(pods, "n0", rooms) == {f"uid-{name}" for name in homeless}
    others = {(node, "amd.com"): 16 for node in free}
    assert without_room(pods, "n0", {**rooms, **others}) == {f"uid-{name}" for name in homeless}


def test_pods_on_their_way_take_their_place_first() -> None:
    pods = [gpu_pod("p0", "n0", 4)]
    free = {("n1", NVIDIA): 8}
    assert without_room(pods, "n0", free, [(8, NVIDIA)]) == {"uid-p0"}
    assert without_room(pods, "n0", free, [(4, NVIDIA), (16, NVIDIA), (8, "amd.com")]) == set()


def reference(version: str, kind: str, name: str) -> dict[str, Any]:
    uid = f"{kind}-{name}"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}


def owner(version: str, kind: str, name: str, parent: dict[str, Any] | None = None) -> OwnerView:
    metadata = {"name": name, "namespace": "team-a", "ownerReferences": [parent] if parent else []}
    return msgspec.convert({"apiVersion": version, "kind": kind, "metadata": metadata}, OwnerView)


JOBSET = reference("jobset.x-k8s.io/v1alpha2", "JobSet", "llm")
TRAIN = reference("trainer.kubeflow.org/v1alpha1", "TrainJob", "fit")
RAYJOB = reference("ray.io/v1", "RayJob", "tune")
CHAIN = {
    "Job-llm-w": owner("batch/v1", "Job", "llm-w", JOBSET),
    "JobSet-llm": owner("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", TRAIN),
    "RayCluster-tune-1": owner("ray.io/v1", "RayCluster", "tune-1", RAYJOB),
}


@pytest.mark.parametrize(
    ("own", "labels", "owners", "key"),
    [
        pytest.param(reference("batch/v1", "Job", "one"), {}, {}, "Job team-a/one", id="job"),
        pytest.param(
            reference("batch/v1", "Job", "llm-w"),
            {},
            CHAIN,
            "TrainJob team-a/fit",
            id="full-chain",
        ),
        pytest.param(
            reference("batch/v1", "Job", "llm-w"),
            {"jobset.sigs.k8s.io/jobset-name": "llm"},
            {},
            "JobSet team-a/llm",
            id="jobset-by-label",
        ),
        pytest.param(
            reference("batch.volcano.sh/v1alpha1", "Job", "vc"),
            {},
            {},
            "VolcanoJob team-a/vc",
            id="volcano",
        ),
        pytest.param(
            reference("kubeflow.org/v2beta1", "MPIJob", "mpi"),
            {},
            {},
            "MPIJob team-a/mpi",
            id="mpi",
        ),
        pytest.param(
            reference("kubeflow.org/v1", "PyTorchJob", "pt"),
            {},
            {},
            "PyTorchJob team-a/pt",
            id="pt",
        ),
        pytest.param(
            reference("ray.io/v1", "RayCluster", "tune-1"),
            {},
            CHAIN,
            "RayJob team-a/tune",
            id="ray",
        ),
        pytest.param(
            reference("apps/v1", "StatefulSet", "lws-0"),
            {
                "leaderworkerset.sigs.k8s.io/name": "serve",
                "leaderworkerset.sigs.k8s.io/group-index": "2",
            },
            {},
            "LeaderWorkerSet team-a/serve-2",
            id="lws-group",
        ),
        pytest.param(reference("apps/v1", "ReplicaSet", "web"), {}, {}, "", id="deployment"),
    ],
)
def test_recognised(
    own: dict[str, Any], labels: dict[str, str], owners: dict[str, OwnerView], key: str
) -> None:
    gang = gang_of(pod(metadata={"ownerReferences": [own], "labels": labels}), owners)
    assert (gang.key if gang else "") == key


def test_topology_aware_by_annotation() -> None:
    meta = {
        "ownerReferences": [reference("batch/v1", "Job", "one")],
        "annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"},
    }
    gang = gang_of(pod(metadata=meta), {})
    assert gang is not None
    assert gang.topology_aware


def test_only_live_gpu_pods_make_a_node_part_of_a_gang() -> None:
    gpu = {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    meta = {"ownerReferences": [reference("batch/v1", "Job", "one")]}
    pods = [
        pod("a", metadata=meta),
        pod("b", metadata=meta, spec=gpu, status={"phase": "Succeeded"}),
        pod("c", spec=gpu),
    ]
    assert gangs_of(pods, {}) == ()
    assert len(gangs_of([*pods, pod("d", metadata=meta, spec=gpu)], {})) == 1


def test_a_cycle_of_owners_ends() -> None:
    me = reference("batch/v1", "Job", "loop")
    owners = {"Job-loop": owner("batch/v1", "Job", "loop", me)}
    assert gang_of(pod(metadata={"ownerReferences": [me]}), owners) is not None
