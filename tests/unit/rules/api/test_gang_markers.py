"""Gangs by what labels and annotations of their pods, without a known owner."""

from typing import Any

import msgspec
import pytest

from rules.api.pods import PodView
from rules.api.workloads import POD_GROUPS, WORKLOADS, Marker
from rules.drain.gangs import gang_of


def pod(owner: tuple[str, str] | None = None, **changes: Any) -> PodView:
    references = [] if owner is None else [
        {"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "o", "controller": True}
    ]  # fmt: skip
    metadata = {"name": "p", "namespace": "t", "uid": "p", "ownerReferences": references}
    spec = changes.pop("spec", {})
    return msgspec.convert({"metadata": {**metadata, **changes}, "spec": spec}, PodView)


def written(marker: Marker, name: str = "llm") -> dict[str, Any]:
    place = {"label": "labels", "annotation": "annotations"}[marker.place]
    needs = {"annotations": {marker.needs: "x"}} if marker.needs else {}
    return {**needs, place: {marker.key: name}}


def key(view: PodView) -> str:
    gang = gang_of(view, {})
    return gang.key if gang is not None else ""


@pytest.mark.parametrize("marker", [*WORKLOADS, *POD_GROUPS], ids=lambda marker: marker.key)
def test_a_plain_pod_that_carries_it_belongs_to_the_gang(marker: Marker) -> None:
    assert key(pod(**written(marker))) == f"{marker.kind} t/llm"
    assert key(pod(**written(marker, name=""))) == ""


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet"])
@pytest.mark.parametrize("marker", POD_GROUPS, ids=lambda marker: marker.key)
def test_pods_that_are_replaced_one_by_one_are_no_gang(marker: Marker, kind: str) -> None:
    assert key(pod(("apps/v1", kind), **written(marker))) == ""


def test_pods_of_an_unknown_controller_are_a_gang_by_their_pod_group() -> None:
    assert key(pod(("example.com/v1", "Trainer"), **written(POD_GROUPS[0]))) == "PodGroup t/llm"


def test_the_job_is_named_rather_than_the_group_its_scheduler_made_of_it() -> None:
    assert key(pod(("batch/v1", "Job"), **written(POD_GROUPS[3]))) == "Job t/o"
    both: dict[str, Any] = {
        "labels": {"ray.io/cluster": "r", "scheduling.x-k8s.io/pod-group": "g"}
    }
    assert key(pod(**both)) == "RayCluster t/r"


def test_kubernetes_own_group_counts() -> None:
    assert key(pod(spec={"schedulingGroup": {"podGroupName": "w-0"}})) == "PodGroup t/w-0"
    assert key(pod(spec={"schedulingGroup": {}})) == ""


def test_a_marker_that_needs_another_is_nothing_alone() -> None:
    for marker in POD_GROUPS:
        if marker.needs:
            assert key(pod(labels={marker.key: "a"})) == ""


def test_a_pod_group_placed_by_topology_heals_one_node_at_a_time() -> None:
    view = pod(
        labels={"kueue.x-k8s.io/pod-group-name": "g"},
        annotations={"kueue.x-k8s.io/podset-required-topology": "rack"},
    )
    gang = gang_of(view, {})
    assert gang is not None
    assert gang.topology_aware
