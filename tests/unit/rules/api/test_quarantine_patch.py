"""The taint and cordon as one patch and its reverse: nothing foreign touched, everything
recorded.
"""

import json
from typing import Any

import pytest

from rules.api.names import ANNOTATION_SESSION
from rules.api.quarantine_taint import (
    QuarantineState,
    cordon_stays,
    quarantine_patch,
    quarantine_state,
    release_patch,
)
from rules.api.timestamps import parse_time
from tests.support.scenario.drain_objects import node

NOW = parse_time("2026-01-01T01:00:00Z") or 0.0
OURS = {"key": "gpuward.io/quarantine", "effect": "NoSchedule", "value": "Xid79"}
FOREIGN = {"key": "someone/else", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def note(**parts: Any) -> str:
    return json.dumps(
        {"session": "s1", "mark": "CordonAndTaint", "at": "2026-01-01T00:00:00Z", **parts}
    )


def quarantined(
    *, spec: dict[str, Any] | None = None, text: str | None = None, **meta: Any
) -> Any:
    annotations = {
        ANNOTATION_SESSION: note() if text is None else text,
        **meta.pop("annotations", {}),
    }
    return node(
        metadata={"annotations": annotations, **meta},
        spec={"unschedulable": True, "taints": [OURS]} if spec is None else spec,
    )


def patch_of(target: Any, **parts: Any) -> dict[str, Any]:
    arguments = {"session": "s1", "reason": "Xid79", "parts": "CordonAndTaint"}
    return quarantine_patch(target, **{**arguments, **parts}, now=NOW)


def test_a_quarantine_is_one_patch_with_the_version() -> None:
    patch = patch_of(node(spec={"taints": [FOREIGN]}))
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["labels"] == {"gpuward.io/quarantine": "true"}
    assert patch["spec"]["unschedulable"] is True
    assert patch["spec"]["taints"] == [FOREIGN, OURS]
    recorded = json.loads(patch["metadata"]["annotations"][ANNOTATION_SESSION])
    assert recorded == {
        "session": "s1",
        "bootID": "boot-1",
        "priorUnschedulable": False,
        "at": "2026-01-01T01:00:00Z",
        "mark": "CordonAndTaint",
        "priorAnnotations": {
            "cluster-autoscaler.kubernetes.io/scale-down-disabled": None,
            "karpenter.sh/do-not-disrupt": None,
        },
    }


def test_a_second_quarantine_patch_keeps_the_first_record() -> None:
    half_undone = quarantined(spec={"taints": [OURS]})
    patch = patch_of(half_undone, reason="Other")
    assert patch["spec"]["taints"] == [OURS], "the taint keeps the reason it opened with"
    recorded = json.loads(patch["metadata"]["annotations"][ANNOTATION_SESSION])
    assert recorded["at"] == "2026-01-01T00:00:00Z"
    assert recorded["priorUnschedulable"] is False


@pytest.mark.parametrize("reason", ["has spaces", "a:b", "x" * 64, ""])
def test_a_reason_that_is_no_taint_value_gives_an_empty_value(reason: str) -> None:
    taints = patch_of(node(), reason=reason)["spec"]["taints"]
    assert taints == [{"key": "gpuward.io/quarantine", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("target", "state"),
    [
        pytest.param(node(), QuarantineState.ABSENT, id="absent"),
        pytest.param(quarantined(), QuarantineState.INTACT, id="intact"),
        pytest.param(
            quarantined(spec={"taints": [OURS]}), QuarantineState.UNCORDONED, id="uncordoned"
        ),
        pytest.param(
            quarantined(spec={"unschedulable": True}), QuarantineState.UNTAINTED, id="untainted"
        ),
        pytest.param(quarantined(text=note(session="s2")), QuarantineState.FOREIGN, id="foreign"),
        pytest.param(quarantined(text="{"), QuarantineState.UNRECORDED, id="unreadable"),
        pytest.param(quarantined(text="x" * 9999), QuarantineState.UNRECORDED, id="too-long"),
        pytest.param(
            quarantined(text=note(mark="Taint"), spec={"taints": [OURS]}),
            QuarantineState.INTACT,
            id="taint-only",
        ),
        pytest.param(
            quarantined(text=note(mark="Cordon"), spec={"unschedulable": True}),
            QuarantineState.INTACT,
            id="cordon-only",
        ),
    ],
)
def test_what_is_on_the_node(target: Any, state: QuarantineState) -> None:
    assert quarantine_state(target, "s1") is state


def test_the_reverse_touches_nothing_foreign() -> None:
    target = quarantined(spec={"unschedulable": True, "taints": [FOREIGN, OURS]})
    patch = release_patch(target)
    assert patch == {
        "metadata": {
            "resourceVersion": "7",
            "labels": {"gpuward.io/quarantine": None},
            "annotations": {ANNOTATION_SESSION: None},
        },
        "spec": {"taints": [FOREIGN], "unschedulable": None},
    }


def test_annotations_come_back_unless_somebody_changed_them_since() -> None:
    prior = {
        "karpenter.sh/do-not-disrupt": "30m",
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": None,
        "evil": "x",
    }
    now_there = {
        "karpenter.sh/do-not-disrupt": "true",
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": "false",
    }
    target = quarantined(text=note(priorAnnotations=prior), annotations=now_there)
    assert release_patch(target)["metadata"]["annotations"] == {
        ANNOTATION_SESSION: None,
        "karpenter.sh/do-not-disrupt": "30m",
    }


@pytest.mark.parametrize(
    ("target", "why"),
    [
        pytest.param(quarantined(), "", id="ours"),
        pytest.param(
            quarantined(text=note(priorUnschedulable=True)),
            "it was cordoned before session s1",
            id="older",
        ),
        pytest.param(
            quarantined(text="{"), "its state before the quarantine is not recorded", id="lost"
        ),
        pytest.param(
            quarantined(spec={"taints": [OURS]}, text=note(priorUnschedulable=True)),
            "",
            id="uncordoned",
        ),
    ],
)
def test_when_the_cordon_stays(target: Any, why: str) -> None:
    assert cordon_stays(target) == why
    assert ("unschedulable" in release_patch(target).get("spec", {})) == (
        target.spec.unschedulable and not why
    )
