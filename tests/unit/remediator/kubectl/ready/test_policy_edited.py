"""Who wrote the policy last, by managedFields as kube-apiserver 1.36 keeps them.

What becomes of each edit is tried in tests/e2e/install/test_install_policy_edited.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from remediator.kubectl.preflight import report
from remediator.kubectl.ready.check import Check
from remediator.kubectl.ready.policy_edited import APPLIED, edited

HEAD = "apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\n"
AT = "2026-11-20T17:20:08Z"
POLICY: dict[str, Any] = {"f:data": {"f:policy.yaml": {}}}
LABEL: dict[str, Any] = {"f:metadata": {"f:labels": {"f:app.kubernetes.io/name": {}}}}
RELEASE: dict[str, Any] = {
    "f:metadata": {
        **LABEL["f:metadata"],
        "f:annotations": {".": {}, "f:meta.helm.sh/release-name": {}},
    }
}
NOTE: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:example.com/note": {}}}}


def entry(manager: str, operation: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields, "time": AT, **more}


def config_map(*entries: dict[str, Any], applied: str = "") -> dict[str, Any]:
    notes = {APPLIED: json.dumps({"data": {"policy.yaml": applied}})} if applied else {}
    meta = {"name": "gpuward-policy", "annotations": notes, "managedFields": list(entries)}
    return {"metadata": meta, "data": {"policy.yaml": f"{HEAD}mode: Enforce\n"}}


EDIT = entry("kubectl-edit", "Update", POLICY)
KUBECTL, ARGO = entry("kubectl", "Apply", LABEL), entry("argocd-controller", "Apply", LABEL)
HELM = entry("helm", "Update", RELEASE)


@pytest.mark.parametrize(
    ("entries", "who", "what"),
    [
        pytest.param(
            (KUBECTL, EDIT),
            "by kubectl-edit on 2026-11-20 17:20 UTC, not by kubectl, which",
            "the next apply ends in a conflict where your overlay differs, or takes it back with "
            "--force-conflicts; put it there",
            id="kubectl",
        ),
        pytest.param(
            (ARGO, entry("Mozilla", "Update", POLICY)),
            "by Mozilla on 2026-11-20 17:20 UTC, not by argocd-controller, which",
            "its next sync takes back what differs from your overlay; put it there",
            id="argo",
        ),
        pytest.param(
            (entry("kustomize-controller", "Apply", LABEL), EDIT),
            "not by kustomize-controller",
            "its next sync takes back",
            id="flux",
        ),
        pytest.param(
            (HELM, EDIT),
            "not by helm",
            "the next helm upgrade takes back what differs from your values; put it there",
            id="helm-3",
        ),
        pytest.param(
            (entry("helm", "Apply", RELEASE), EDIT),
            "not by helm",
            "the next helm upgrade ends in a conflict where your values differ",
            id="helm-4",
        ),
        pytest.param(
            (KUBECTL, entry("kubectl-client-side-apply", "Update", POLICY)),
            "by kubectl-client-side-apply",
            "the next apply takes back",
            id="applied-in-two-ways",
        ),
        pytest.param(
            (KUBECTL, entry("alice", "Apply", POLICY, time="")),
            "by alice, not by kubectl",
            "conflict",
            id="applied-in-part",
        ),
        pytest.param(
            (KUBECTL, entry("old", "Update", POLICY, time="2026-01-01T00:00:00Z"), EDIT),
            "by kubectl-edit",
            "conflict",
            id="the-last-of-several",
        ),
        pytest.param(
            (KUBECTL, entry("ancient-changes", "Update", POLICY)),
            "by somebody on",
            "conflict",
            id="one-of-many",
        ),
    ],
)
def test_who_edited_the_policy_and_what_becomes_of_it(
    entries: tuple[dict[str, Any], ...], who: str, what: str
) -> None:
    said = edited(config_map(*entries))
    assert said.startswith("last written ")
    assert who in said
    assert what in said


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param((entry("kubectl", "Apply", {**LABEL, **POLICY}),), id="applied"),
        pytest.param(
            (entry("argocd-controller", "Apply", {**LABEL, **POLICY}), EDIT), id="the-same-value"
        ),
        pytest.param(
            (entry("argocd-controller", "Apply", {**LABEL, **POLICY}), entry("x", "Apply", NOTE)),
            id="another-applies-a-note",
        ),
        pytest.param((entry("helm", "Update", {**RELEASE, **POLICY}),), id="helm"),
        pytest.param((HELM, entry("argocd-controller", "Apply", {**LABEL, **POLICY})), id="moved"),
        pytest.param((entry("kubectl-create", "Update", LABEL), EDIT), id="never-applied"),
        pytest.param((entry("x", "Apply", NOTE), EDIT), id="only-a-note-is-applied"),
        pytest.param((KUBECTL,), id="nobody-owns-the-policy"),
        pytest.param((), id="stripped"),
    ],
)
def test_nothing_is_said_of_a_policy_that_is_as_applied_or_of_which_nothing_is_known(
    entries: tuple[dict[str, Any], ...],
) -> None:
    assert edited(config_map(*entries)) == ""


def test_an_annotation_of_a_time_before_server_side_apply_says_nothing() -> None:
    before = f"{HEAD}mode: Shadow\n"
    applied = entry("argocd-controller", "Apply", {**LABEL, **POLICY})
    assert edited(config_map(applied, applied=before)) == ""
    assert "mode: Enforce -> Shadow" in edited(config_map(applied=before)), "managers stripped"
    assert "mode: Enforce -> Shadow" in edited(config_map(EDIT, applied=before)), "client-side"


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"managedFields": "no list"}, id="no-list"),
        pytest.param({"managedFields": [{"manager": 7, "fieldsV1": []}]}, id="no-entry"),
        pytest.param({"managedFields": [None]}, id="null"),
        pytest.param({"annotations": {APPLIED: "[" * 100_000}}, id="deep"),
        pytest.param({"annotations": {APPLIED: '{"data": {"policy.yaml": [1]}}'}}, id="no-text"),
        pytest.param({"annotations": {APPLIED: '{"data": 7}'}}, id="no-data"),
    ],
)
def test_what_cannot_be_read_says_nothing(meta: dict[str, Any]) -> None:
    assert edited({**config_map(), "metadata": meta}) == ""


def test_a_hostile_name_is_bounded_and_one_line_of_the_report() -> None:
    hostile = entry("x\x1b[31m\nok    permissions: " + "y" * 5000, "Update", POLICY, time="never")
    said = edited(config_map(KUBECTL, hostile))
    assert len(said) < 400
    line = report([Check(verdict="warn", name="policy", found=said)])
    assert line.isprintable()
