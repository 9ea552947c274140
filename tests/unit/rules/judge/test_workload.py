"""Which workload a pod is one of: told from the pod alone, and never split where it may be one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.judge.workload import Workload, WorkloadMeta, programs_among, workload_behind


def pod(
    name: str = "p",
    kind: str = "",
    owner: str = "",
    uid: str = "u",
    *,
    namespace: str = "ml",
    **labels: str,
) -> Workload:
    owners = [{"kind": "Queue", "name": "q", "uid": "not-the-controller"}]
    controller = {"kind": kind, "name": owner, "uid": uid, "controller": True}
    plain = {"name": name, "namespace": namespace, "uid": f"pod-{uid}", "labels": labels}
    return workload_behind(
        msgspec.convert(
            {**plain, "ownerReferences": [*owners, controller] if kind else owners}, WorkloadMeta
        )
    )


@pytest.mark.parametrize(
    ("workload", "uid", "program", "name"),
    [
        pytest.param(
            pod("llama-6d4b75cb6d-x2b4z", "ReplicaSet", "llama-6d4b75cb6d",
                **{"pod-template-hash": "6d4b75cb6d"}),
            "u", "ml/llama", "Deployment ml/llama", id="Deployment",
        ),
        pytest.param(
            pod("llama-6d4b75cb6d-x2b4z", "ReplicaSet", "llama-6d4b75cb6d",
                **{"rollouts-pod-template-hash": "6d4b75cb6d"}),
            "u", "ml/llama", "Rollout ml/llama", id="Argo Rollout",
        ),
        pytest.param(
            pod("set-x2b4z", "ReplicaSet", "set"), "u", "ml/set", "ReplicaSet ml/set",
            id="bare ReplicaSet",
        ),
        pytest.param(
            pod("set", "ReplicaSet", "abc", **{"pod-template-hash": "abc"}),
            "u", "ml/abc", "ReplicaSet ml/abc", id="a hash that is the whole name",
        ),
        pytest.param(pod("db-0", "StatefulSet", "db"), "u", "ml/db", "StatefulSet ml/db",
                     id="StatefulSet"),
        pytest.param(pod("train-x2b4z", "Job", "train"), "u", "ml/train", "Job ml/train",
                     id="Job"),
        pytest.param(
            pod("nightly-29012345-x2b4z", "Job", "nightly-29012345"),
            "u", "ml/nightly", "Job ml/nightly-29012345", id="Job of a CronJob",
        ),
        pytest.param(
            pod("run-x2b4z-77fkq", "Job", "run-x2b4z"), "u", "ml/run", "Job ml/run-x2b4z",
            id="Job with generateName",
        ),
        pytest.param(
            pod("js-w-0-0-x2b4z", "Job", "js-w-0", **{"jobset.sigs.k8s.io/jobset-name": "js"}),
            "u", "ml/js", "JobSet ml/js", id="Job of a JobSet",
        ),
        pytest.param(
            pod("r-x2b4z-worker", "RayCluster", "r-x2b4z", **{"ray.io/cluster": "r-x2b4z"}),
            "u", "ml/r", "RayCluster ml/r-x2b4z", id="cluster of a RayJob",
        ),
        pytest.param(pod("debug"), "pod-u", "ml/debug", "Pod ml/debug", id="bare pod"),
        pytest.param(pod("etl-gpu-1", "Node", "gpu-1", "n"), "n", "ml/gpu", "Node ml/gpu-1",
                     id="static pod: all of a node are one"),
    ],
)  # fmt: skip
def test_identities(workload: Workload, uid: str, program: str, name: str) -> None:
    assert (workload.uid, workload.program, workload.name) == (uid, program, name)


@pytest.mark.parametrize(
    "name",
    ["nightly-29012345", "run-x2b4z", "a-5c3f2d8e7a1b4c6d", "train-2024-11-02-x2b4z", "w-0"],
)
def test_what_is_made_up_anew_for_each_run_is_no_identity(name: str) -> None:
    stem = name.partition("-")[0]
    assert pod(kind="Job", owner=name).program == f"ml/{stem}"


@pytest.mark.parametrize("name", ["llama-large", "bert-base", "x2b4z", "29012345", "deadbeef"])
def test_names_that_people_gave_stay(name: str) -> None:
    assert pod(kind="Job", owner=name).program == f"ml/{name}"


def test_two_workloads_differ_in_controller_and_program() -> None:
    first = pod(kind="Job", owner="a", uid="1")
    assert first.may_be(pod(kind="Job", owner="a", uid="2"))
    assert first.may_be(pod(kind="Job", owner="b", uid="1"))
    assert not first.may_be(pod(kind="Job", owner="b", uid="2"))
    assert not first.may_be(pod(kind="Job", owner="a", uid="2", namespace="other"))


def test_what_is_joined_by_a_third_is_one() -> None:
    ends = [pod(kind="Job", owner="a", uid="1"), pod(kind="Job", owner="b", uid="2")]
    joint = pod(kind="Job", owner="b", uid="1")
    assert programs_among(ends) == 2
    assert programs_among([*ends, joint]) == 1
    assert programs_among([]) == 0


def test_the_kubelet_calls_a_static_pod_by_another_uid() -> None:
    notes = {"kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef", "other": "x"}
    static = msgspec.convert({"uid": "api", "annotations": notes}, WorkloadMeta)
    assert static.kubelet_uid == notes["kubernetes.io/config.mirror"]
    assert msgspec.convert({"uid": "api"}, WorkloadMeta).kubelet_uid == "api"


ANY = st.text(max_size=300)
PODS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": ANY,
        "namespace": ANY,
        "uid": ANY,
        "labels": st.dictionaries(
            st.sampled_from(["pod-template-hash", "ray.io/cluster", "x"]), ANY, max_size=3
        ),
        "ownerReferences": st.lists(
            st.fixed_dictionaries({"kind": ANY, "name": ANY, "uid": ANY,
                                   "controller": st.booleans()}),
            max_size=3,
        ),
    }
)  # fmt: skip


@given(PODS)
def test_any_metadata_gives_a_bounded_printable_workload(plain: dict[str, Any]) -> None:
    workload = workload_behind(msgspec.convert(plain, WorkloadMeta))
    assert len(workload.name.encode()) <= 120
    assert workload.name.isprintable() or not workload.name
    assert len(workload.program.encode()) <= 512
    assert workload.may_be(workload)
