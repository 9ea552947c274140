"""Gangs by owner chain and labels, with and without their owners read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rules.api.pods import OwnerView
from rules.drain.gangs import gang_of, gangs_of
from tests.support.scenario.drain_objects import pod


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
            id="whole-chain",
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
