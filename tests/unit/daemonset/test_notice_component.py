"""Component notice: admission allows notices of the remediator and no other change of a pod."""

import copy
from typing import Any

import pytest

pytest.importorskip("celpy", reason="cel-python is not installed")

from hack.sim.cluster.store.patching import strategic_merge
from hack.sim.manifests import read_manifests
from rules.api import names
from rules.api.requests import request
from rules.api.writes import NotifyPod, SetDisruptionTarget
from tests.support.cluster.admission_cel import Write, refusals
from tests.support.cluster.admission_nodes import AGENT, READY, REMEDIATOR, edited
from tests.support.cluster.manifest_builds import DAEMONSET

FOLDER = DAEMONSET / "components" / "notice"
SHIPPED = [o for o in read_manifests(FOLDER) if o["kind"] == "ValidatingAdmissionPolicy"]
POD = {"node": "gpu-1", "namespace": "team-a", "name": "train", "uid": "u"}
BEFORE: dict[str, Any] = {
    "metadata": {
        "name": "train",
        "uid": "u",
        "labels": {"app": "train"},
        "annotations": {"team": "a"},
        "ownerReferences": [{"kind": "Job", "name": "train", "uid": "j"}],
    },
    "spec": {"nodeName": "gpu-1", "containers": [{"name": "c", "image": "train"}]},
    "status": {"phase": "Running", "conditions": [READY]},
}
BARE: dict[str, Any] = {"metadata": {"name": "train", "uid": "u"}, "spec": {}}


def notified(
    drain_at: float | None = 60.0, on: dict[str, Any] = BEFORE, **changes: Any
) -> dict[str, Any]:
    """The pod after a notice, with further changes (`admission_nodes.edited`)."""
    write = NotifyPod(**POD, at=0.0, drain_at=drain_at, message="m")
    return edited(strategic_merge(copy.deepcopy(on), request(write).body or {}), changes)


def refused(
    new: dict[str, Any], old: dict[str, Any] = BEFORE, user: str = REMEDIATOR
) -> list[str]:
    return refusals(Write(user=user, resource="pods/status", new=new, old=old), SHIPPED)


@pytest.mark.parametrize("pod", [BEFORE, BARE], ids=["full", "bare"])
def test_a_notice_and_its_withdrawal_are_admitted(pod: dict[str, Any]) -> None:
    given = notified(on=pod)
    assert given["metadata"]["annotations"][names.ANNOTATION_DRAIN_AT]
    assert refused(given, pod) == []
    assert refused(notified(90.0, on=given), given) == []
    assert refused(notified(None, on=given), given) == []


def test_the_condition_of_a_forced_deletion_is_admitted() -> None:
    write = SetDisruptionTarget(**POD, at=0.0, message="m")
    assert refused(strategic_merge(copy.deepcopy(BEFORE), request(write).body or {})) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"metadata__annotations": {"team": "b"}}, "annotation", id="an annotation"),
        pytest.param({"metadata__annotations": None}, "annotation", id="a lost annotation"),
        pytest.param({"metadata__labels__app": "x"}, "labels", id="a label"),
        pytest.param({"metadata__labels": None}, "labels", id="a lost label"),
        pytest.param({"metadata__finalizers": ["example.com/x"]}, "labels", id="a finalizer"),
        pytest.param({"metadata__ownerReferences": None}, "labels", id="an owner"),
        pytest.param({"spec__nodeName": "gpu-2"}, "spec", id="the spec"),
        pytest.param({"status__phase": "Failed"}, "conditions", id="the phase"),
        pytest.param({"status__podIP": "10.0.0.1"}, "conditions", id="an address"),
        pytest.param({"status__phase": None}, "conditions", id="a lost phase"),
        pytest.param({"status__conditions": []}, "conditions", id="a lost condition"),
        pytest.param(
            {"status__conditions": [{**READY, "status": "False"}]}, "conditions", id="readiness"
        ),
        pytest.param(
            {"status__conditions": [READY, {"type": "x/Gate", "status": "True"}]},
            "conditions",
            id="a readiness gate",
        ),
    ],
)
def test_other_changes_are_refused(changes: dict[str, Any], why: str) -> None:
    (message,) = refused(notified(**changes))
    assert message.startswith("gpuward-remediator may")
    assert why in message
    assert refused(notified(**changes), user=AGENT) == [], "it limits the remediator only"
