"""The admission policy for kubelets as tables: a node cannot end or avoid its quarantine."""

from typing import Any

import pytest

from rules.api import names
from rules.api.quarantine_taint import AUTOSCALER_ANNOTATIONS

pytest.importorskip("celpy", reason="cel-python is not installed")

from tests.support.cluster.admission_cel import Write, policies, refusals
from tests.support.cluster.admission_nodes import FOREIGN_TAINT, OUR_TAINT, READY, bare, node

KUBELET = "system:node:gpu-1"
KURED = "weave.works/kured-reboot-in-progress"
"""The annotation with which kured locks a node."""
NOTES = {"node.alpha.kubernetes.io/ttl": "0"}
ALL_NOTES = {
    **NOTES,
    names.ANNOTATION_SESSION: '{"session":"s"}',
    **dict.fromkeys(AUTOSCALER_ANNOTATIONS, "true"),
}
LABELS = {**node()["metadata"]["labels"], names.LABEL_QUARANTINE: "true"}


def quarantined(**changes: Any) -> dict[str, Any]:
    """A node in quarantine."""
    changed = {
        "metadata__annotations": ALL_NOTES,
        "metadata__labels": LABELS,
        "spec__taints": [FOREIGN_TAINT, OUR_TAINT],
        "spec__unschedulable": True,
    }
    return node(**{**changed, **changes})


def denials(new: dict[str, Any], old: dict[str, Any], user: str = KUBELET) -> list[str]:
    by_resource = [
        refusals(Write(user=user, resource=resource, new=new, old=old))
        for resource in ("nodes", "nodes/status")
    ]
    assert by_resource[0] == by_resource[1], "labels and annotations go through both"
    return by_resource[0]


@pytest.mark.parametrize(
    ("new", "why"),
    [
        pytest.param(quarantined(spec__unschedulable=None), "uncordon", id="uncordon"),
        pytest.param(quarantined(spec__unschedulable=False), "uncordon", id="uncordon-explicit"),
        pytest.param(quarantined(spec__taints=[FOREIGN_TAINT]), "taint", id="taint-off"),
        pytest.param(
            quarantined(spec__taints=[FOREIGN_TAINT, {**OUR_TAINT, "effect": "PreferNoSchedule"}]),
            "taint", id="taint-softened",
        ),
        pytest.param(quarantined(metadata__annotations=None), "annotations", id="annotations-off"),
        pytest.param(
            quarantined(metadata__annotations={**ALL_NOTES, names.ANNOTATION_SESSION: "{}"}),
            "annotations", id="session-changed",
        ),
        pytest.param(
            quarantined(metadata__annotations={
                k: v for k, v in ALL_NOTES.items() if k not in AUTOSCALER_ANNOTATIONS}),
            "annotations", id="autoscalers-let-in",
        ),
        pytest.param(quarantined(metadata__labels=None), "opt out", id="labels-off"),
        *(
            pytest.param(
                quarantined(metadata__annotations={**ALL_NOTES, name: "x"}),
                "annotations",
                id=name,
            )
            for name in (names.ANNOTATION_HOLD, names.ANNOTATION_REPAIRED,
                         names.ANNOTATION_EXPECTED_GPUS, names.ANNOTATION_RELEASE_GPU,
                         names.ANNOTATION_MOVED, KURED)
        ),
        *(
            pytest.param(quarantined(metadata__labels={**LABELS, name: value}), "opt out",
                         id=name)
            for name, value in {
                names.LABEL_OPT_OUT: "true",
                names.LABEL_DRIVER_UPGRADE: "drain-required",
                names.LABEL_MIG_STATE: "pending",
                f"{names.PREFIX_GPU_DEPLOY}dcgm": f"{names.PAUSED}ever",
            }.items()
        ),
    ],
)  # fmt: skip
def test_a_node_in_quarantine_may_not(new: dict[str, Any], why: str) -> None:
    (message,) = denials(new, quarantined())
    assert why in message
    assert message.startswith("a node may not")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"metadata__labels": {names.LABEL_OPT_OUT: "true"}}, id="opt-out"),
        pytest.param({"metadata__annotations": {names.ANNOTATION_SESSION: "{}"}}, id="a-session"),
        pytest.param({"spec__taints": [OUR_TAINT]}, id="a-taint"),
        pytest.param(
            {"metadata__labels": {names.LABEL_MIG_STATE: "pending"}}, id="somebody-works-on-it"
        ),
    ],
)
def test_a_node_may_not_avoid_a_quarantine(changes: dict[str, Any]) -> None:
    for before in (node(), bare()):
        new = {**before, "metadata": {**before["metadata"]}, "spec": {**before["spec"]}}
        for path, value in changes.items():
            part, _, key = path.partition("__")
            known = new[part].get(key)
            new[part][key] = {**(known or {}), **value} if isinstance(value, dict) else value
        assert denials(new, before) != []


@pytest.mark.parametrize("before", [bare(), node(), quarantined()], ids=["bare", "full", "marked"])
def test_normal_writes_of_a_kubelet_are_allowed(before: dict[str, Any]) -> None:
    """Heartbeats, addresses, other labels and annotations, and a cordon before the quarantine."""
    for user in (KUBELET, "system:node:"):
        assert denials(before, before, user) == []
    reported = {**before, "status": {"conditions": [READY], "nodeInfo": {"bootID": "b2"}}}
    meta = before["metadata"]
    reported["metadata"] = {
        **meta,
        "labels": {**meta.get("labels", {}), "kubernetes.io/os": "linux"},
        "annotations": {
            **meta.get("annotations", {}),
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        },
    }
    assert denials(reported, before) == []


def test_a_node_without_a_quarantine_may_cordon_itself() -> None:
    assert denials(node(spec__unschedulable=True), node()) == []


@pytest.mark.parametrize(
    "user", ["ada", "system:serviceaccount:gpu-operator:nvidia-driver", "x:system:node:gpu-1"]
)
def test_users_and_controllers_are_not_affected(user: str) -> None:
    assert denials(bare(), quarantined(), user) == []


def test_the_names_in_the_policy_are_those_of_the_code() -> None:
    spec = next(
        p["spec"] for p in policies() if p["metadata"]["name"] == "gpuward-node-keeps-mark"
    )
    listed = {v["name"]: v["expression"] for v in spec["variables"]}

    def names_in(name: str) -> set[str]:
        return {each.strip(" \n'") for each in listed[name].strip("[]").split(",")}

    assert names_in("pinnedPrefixes") == {f"{names.PREFIX}/", names.PREFIX_GPU_DEPLOY}
    assert names_in("pinnedLabels") == {names.LABEL_DRIVER_UPGRADE, names.LABEL_MIG_STATE}
    assert names_in("pinnedNotes") == {KURED}
    assert names_in("autoscalerNotes") == set(AUTOSCALER_ANNOTATIONS)


OUR_NOTES = [
    v
    for k, v in vars(names).items()
    if k.startswith("ANNOTATION_") and v.startswith("gpuward.io/")
]
OUR_LABELS = [
    v for k, v in vars(names).items() if k.startswith("LABEL_") and v.startswith("gpuward.io/")
]


@pytest.mark.parametrize(
    ("part", "key"),
    [*(("annotations", key) for key in OUR_NOTES), *(("labels", key) for key in OUR_LABELS)],
)
def test_a_node_may_neither_write_nor_remove_a_name_of_gpuward(part: str, key: str) -> None:
    without, written = node(), node()
    without["metadata"] = {**without["metadata"], part: {"other": "x"}}
    written["metadata"] = {**written["metadata"], part: {"other": "x", key: "r-1"}}
    changed = {**written, "metadata": {**written["metadata"], part: {"other": "x", key: "r-2"}}}
    assert denials(written, without) != []
    assert denials(without, written) != []
    assert denials(changed, written) != []
    assert denials(written, written) == []
