"""A Job and the PodTemplate it is made from, as the rules of validation read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rules.api.metadata import DOUBT_FIELD, ObjectMeta, View
from rules.api.names import API_VERSION, COMPONENT_VALIDATE, PREFIX, TAINT_QUARANTINE
from rules.api.pods import PodView

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_JOB: Final = "batch.kubernetes.io/job-name"
"""Set by the Job controller on the pods of a Job."""
ANNOTATION_SESSION_UID: Final = f"{PREFIX}/session-uid"
KEPT_S: Final = 86_400
"""How long a Job that ended is kept for people to look at; what it said is in the session."""
MAX_JOB_NAME: Final = 63
"""Kubernetes makes a label of it."""


class JobCondition(View, frozen=True, kw_only=True):
    """Complete or Failed, with the Job controller's reason."""

    type: str
    status: str = ""
    reason: str = ""


class JobStatus(View, frozen=True, kw_only=True):
    """Whether the Job is over."""

    conditions: tuple[JobCondition, ...] = ()


class JobView(View, frozen=True, kw_only=True):
    """A Job."""

    metadata: ObjectMeta
    status: JobStatus = JobStatus()
    doubt: str = DOUBT_FIELD

    @property
    def over(self) -> str:
        """How it ended, in the Job controller's words; "" while it goes on."""
        for condition in self.status.conditions:
            if condition.type in {"Complete", "Failed"} and condition.status == "True":
                return condition.reason[:64] or condition.type
        return ""


class PodTemplateView(View, frozen=True, kw_only=True):
    """A PodTemplate: its template as it stands."""

    metadata: ObjectMeta
    template: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """What was read of one Job of ours a moment ago."""

    name: str
    job: JobView | None = None
    """None: there is none by that name, certainly."""
    pods: tuple[PodView, ...] = ()
    """Those that the Job controls."""
    template: PodTemplateView | None = None
    """Read while there is no Job yet; None where it does not exist."""
    unread: str = ""
    """Why it could not be read, a clause; then nothing else here counts."""


def is_own_test(pod: PodView, own_namespace: str) -> bool:
    """Whether the pod is one of our tests under load: in our namespace, and so labelled."""
    meta = pod.metadata
    named = meta.labels.get(LABEL_NAME) == "gpuward"
    ours = named and meta.labels.get(LABEL_COMPONENT) == COMPONENT_VALIDATE
    return bool(own_namespace) and meta.namespace == own_namespace and ours


def job_of(
    template: Mapping[str, Any],
    *,
    name: str,
    node: str,
    session: str,
    session_uid: str,
    timeout_s: float,
) -> dict[str, Any]:
    """The Job that runs `template` once on `node`, whatever stands on the node.

    It belongs to the session and not to the node: it goes with the session's history.
    """
    labels = {LABEL_NAME: "gpuward", LABEL_COMPONENT: COMPONENT_VALIDATE}
    meta, spec = _mapping(template.get("metadata")), _mapping(template.get("spec"))
    tolerations = spec.get("tolerations")
    ours = {"key": TAINT_QUARANTINE, "operator": "Exists"}
    pod_spec = {
        **spec,
        "nodeName": node,
        "restartPolicy": "Never",
        "tolerations": [*(tolerations if isinstance(tolerations, list) else ()), ours],
    }
    annotations = _mapping(meta.get("annotations"))
    pod_meta: dict[str, Any] = {"labels": {**_mapping(meta.get("labels")), **labels}}
    if annotations:
        pod_meta["annotations"] = annotations
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {ANNOTATION_SESSION_UID: session_uid},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "GPUQuarantine",
                    "name": session,
                    "uid": session_uid,
                }
            ],
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": max(1, int(timeout_s)),
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": pod_meta, "spec": pod_spec},
        },
    }


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
