"""Disruption mode and policy of the pod groups of Kubernetes, in every version of the API."""

from typing import Any

import msgspec
import pytest

from rules.api.pods import PodView
from rules.api.workloads import NativeGroup
from rules.drain.gangs import GroupPolicy, gangs_of, group_policy

GROUP = NativeGroup("PodGroup", "t", "train")
IN_WORKLOAD = NativeGroup("Workload", "t", "train", "workers", "0")
GANG = {"gang": {"minCount": 4}}
BASIC: dict[str, Any] = {"basic": {}}
ONE_BY_ONE, TOGETHER = True, False


def of_pod_group(policy: object, **spec: object) -> GroupPolicy:
    return group_policy({"spec": {"schedulingPolicy": policy, **spec}}, GROUP)


@pytest.mark.parametrize(
    ("policy", "mode", "independent"),
    [
        pytest.param(GANG, "Pod", ONE_BY_ONE, id="v1alpha2 Pod"),
        pytest.param(GANG, "PodGroup", TOGETHER, id="v1alpha2 PodGroup"),
        pytest.param(GANG, {"single": {}}, ONE_BY_ONE, id="v1alpha3 and v1beta1 single"),
        pytest.param(GANG, {"all": {}}, TOGETHER, id="v1alpha3 and v1beta1 all"),
        pytest.param(BASIC, {"single": {}}, ONE_BY_ONE, id="basic single"),
        pytest.param(BASIC, {"all": {}}, TOGETHER, id="basic all, which the API server rejects"),
        pytest.param(GANG, None, TOGETHER, id="gang without a mode"),
        pytest.param(BASIC, None, ONE_BY_ONE, id="basic without a mode"),
        pytest.param({}, None, TOGETHER, id="no policy"),
        pytest.param({**BASIC, **GANG}, None, TOGETHER, id="two policies"),
        pytest.param("basic", None, TOGETHER, id="a policy that is a string"),
        pytest.param(BASIC, "Never", TOGETHER, id="unknown string"),
        pytest.param(BASIC, "single", TOGETHER, id="the object of one version as a string"),
        pytest.param({"basic": 1}, None, TOGETHER, id="a policy of a wrong type"),
        pytest.param(BASIC, {"replica": {}}, TOGETHER, id="unknown mode"),
        pytest.param(BASIC, {"single": {}, "all": {}}, TOGETHER, id="two modes"),
        pytest.param(BASIC, {"single": "yes"}, TOGETHER, id="a mode that is no object"),
        pytest.param(BASIC, ["single"], TOGETHER, id="a list"),
        pytest.param(BASIC, 1, TOGETHER, id="a number"),
    ],
)
def test_the_disruption_mode_decides_and_the_policy_where_there_is_none(
    policy: object, mode: object, independent: bool
) -> None:
    spec: dict[str, object] = {} if mode is None else {"disruptionMode": mode, "priority": 0}
    assert of_pod_group(policy, **spec).independent is independent


@pytest.mark.parametrize(("policy", "independent"), [(GANG, TOGETHER), (BASIC, ONE_BY_ONE)])
def test_the_policy_decides_if_the_api_server_does_not_store_the_mode(
    policy: object, independent: bool
) -> None:
    """With its feature gate off, 1.36 stores Pod for PodGroup, and no priority."""
    assert of_pod_group(policy, disruptionMode="Pod").independent is independent


@pytest.mark.parametrize(
    ("count", "known"), [(4, 4), (0, 0), (-1, 0), (True, 0), ("4", 0), (4.5, 0), (None, 0)]
)
def test_a_min_count_that_is_no_positive_integer_is_unknown(count: object, known: int) -> None:
    assert of_pod_group({"gang": {"minCount": count}}).min_count == known


def test_a_group_within_a_composite_group_leaves_together() -> None:
    mode: object = {"single": {}}
    found = of_pod_group(GANG, disruptionMode=mode, parentCompositePodGroupName="outer")
    assert not found.independent


@pytest.mark.parametrize(
    ("groups", "independent"),
    [
        pytest.param([{"name": "workers", "policy": BASIC}], ONE_BY_ONE, id="basic"),
        pytest.param([{"name": "workers", "policy": GANG}], TOGETHER, id="gang"),
        pytest.param([{"name": "other", "policy": BASIC}], TOGETHER, id="another group"),
        pytest.param([7, None, {"name": "workers"}], TOGETHER, id="hostile entries"),
        pytest.param({"workers": BASIC}, TOGETHER, id="no list"),
    ],
)
def test_a_workload_of_1_35_describes_its_groups(groups: object, independent: bool) -> None:
    found = group_policy({"spec": {"podGroups": groups}}, IN_WORKLOAD)
    assert found.independent is independent


@pytest.mark.parametrize("found", [{}, {"spec": None}, {"spec": "x"}, {"spec": []}])
def test_an_object_without_a_readable_spec_leaves_together(found: dict[str, Any]) -> None:
    assert group_policy(found, GROUP) == GroupPolicy()


def pod(owner: tuple[str, str] | None = None, **annotations: str) -> PodView:
    references = [] if owner is None else [
        {"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "o", "controller": True}
    ]  # fmt: skip
    spec = {
        "schedulingGroup": {"podGroupName": "train"},
        "containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
    }
    meta = {
        "name": "p", "namespace": "t", "uid": "p", "annotations": annotations,
        "ownerReferences": references,
    }  # fmt: skip
    return msgspec.convert({"metadata": meta, "spec": spec}, PodView)


@pytest.mark.parametrize(
    ("view", "gangs"),
    [
        pytest.param(pod(), [], id="no owner"),
        pytest.param(pod(("batch/v1", "Job")), [], id="Job"),
        pytest.param(pod(("jobset.x-k8s.io/v1alpha2", "JobSet")), ["JobSet t/o"], id="JobSet"),
        pytest.param(
            pod(None, **{"kueue.x-k8s.io/podset-required-topology": "rack"}),
            ["PodGroup t/train"],
            id="Kueue replaces its nodes one by one",
        ),
    ],
)
def test_pods_that_may_be_evicted_independently_are_no_gang(
    view: PodView, gangs: list[str]
) -> None:
    groups = {GROUP: GroupPolicy(independent=True)}
    assert [gang.key for gang in gangs_of([view], {}, groups)] == gangs
    assert len(gangs_of([view], {})) == 1, "without the policy they are one"


@pytest.mark.parametrize(("elsewhere", "kept"), [(3, False), (4, True), (9, True)])
def test_a_gang_keeps_its_min_count_with_enough_pods_elsewhere(elsewhere: int, kept: bool) -> None:
    groups = {GROUP: GroupPolicy(min_count=4, elsewhere=elsewhere)}
    (gang,) = gangs_of([pod()], {}, groups)
    assert bool(gang.kept) is kept
