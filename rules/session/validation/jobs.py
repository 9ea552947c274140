"""A Job and the PodTemplate it is made from, as the rules of validation read them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rules.api import names, object_name
from rules.api.metadata import DOUBT_FIELD, ObjectMeta, View
from rules.api.nodes import NodeView
from rules.api.pods import LABEL_COMPONENT, LABEL_NAME, PodView
from rules.api.repair_writes import SetValidated

LABEL_JOB: Final = "batch.kubernetes.io/job-name"
"""Set by the Job controller on the pods of a Job."""
ANNOTATION_OF: Final = f"{names.PREFIX}/test-of"
"""UID of the session, or of a new Node, that the Job was made for."""
ANNOTATION_NODE: Final = f"{names.PREFIX}/node"
ANNOTATION_BOOT: Final = f"{names.PREFIX}/boot-id"
LABEL_NEW_NODE: Final = f"{names.PREFIX}/new-node-test"
NEW_NODE_PRIORITY: Final = "gpuward-new-node-test"
"""A PriorityClass of -100000, which component `validate` installs."""
GPU_RESOURCE: Final = "nvidia.com/gpu"
_TROUBLE: Final = ("node.kubernetes.io/", names.TAINT_QUARANTINE)
KEPT_S: Final = 86_400
"""How long a Job that ended is kept for people to look at; what it said is in the session."""
MAX_JOB_NAME: Final = 63
"""Kubernetes makes a label of it."""
_HASH: Final = 8


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
    def passed(self) -> bool:
        """Whether it is over and its pod ended with status 0."""
        return any(c.type == "Complete" and c.status == "True" for c in self.status.conditions)

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
    """What was read of one Job of gpuward a moment ago."""

    name: str
    job: JobView | None = None
    """None: there is none by that name, certainly."""
    pods: tuple[PodView, ...] = ()
    """Those that the Job controls."""
    template: PodTemplateView | None = None
    """Read while there is no Job yet; None where it does not exist."""
    unread: str = ""
    """Why it could not be read, a clause; then nothing else here counts."""


def name_of_test(base: str, number: int) -> str:
    """What a test's Job is called everywhere: a second leader finds the first one's.

    A name that is too long for a Job is cut, and what was cut off is in a hash.
    """
    suffix, plain = f"-validate-{number}", base.replace(".", "-")
    room = MAX_JOB_NAME - len(suffix)
    if len(plain) > room:
        digest = hashlib.sha256(base.encode()).hexdigest()[:_HASH]
        plain = object_name.name_from(plain, f"-{digest}", room - _HASH - 1)
    return f"{plain}{suffix}"


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
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUQuarantine",
        "name": session,
        "uid": session_uid,
    }
    # By name: the scheduler has no say and a cordon is not in the way. A kubelet refuses what does
    # not tolerate its NoExecute taints, whoever set them.
    spec = {"nodeName": node}
    tolerations = [{"operator": "Exists"}]
    meta = {"annotations": {ANNOTATION_OF: session_uid}, "ownerReferences": [owner]}
    return _job(template, name, meta, spec, tolerations, timeout_s)


def new_node_job_of(
    template: Mapping[str, Any],
    *,
    name: str,
    node: NodeView,
    gpus: int,
    timeout_s: float,
) -> dict[str, Any]:
    """The Job that runs `template` on `node` when nobody else uses a GPU there: it asks the
    scheduler for all of them at the lowest priority, so that any other pod comes before it.
    """
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    containers = [dict(c) for c in _mappings(_mapping(template.get("spec")).get("containers"))]
    if containers:
        resources = _mapping(containers[0].get("resources"))
        limits = {**_mapping(resources.get("limits")), GPU_RESOURCE: str(gpus)}
        requests = {**_mapping(resources.get("requests")), GPU_RESOURCE: str(gpus)}
        containers[0]["resources"] = {**resources, "limits": limits, "requests": requests}
    spec = {"affinity": affinity, "containers": containers, "priorityClassName": NEW_NODE_PRIORITY}
    # What keeps others off is no reason here: nodes are reserved by taints, and a new one waits
    # for this very test behind the taint of its readiness. Kubernetes' own mean that it should not
    # run.
    keys = sorted({t.key for t in node.spec.taints if not t.key.startswith(_TROUBLE)})
    tolerations = [{"key": key, "operator": "Exists"} for key in keys]
    notes = {
        ANNOTATION_OF: node.uid,
        ANNOTATION_NODE: node.name,
        ANNOTATION_BOOT: node.boot_id,
    }
    meta = {"annotations": notes, "labels": {LABEL_NEW_NODE: "true"}}
    return _job(template, name, meta, spec, tolerations, timeout_s)


def reported_on(
    node: NodeView, job: str, *, passed: bool, message: str, now: float
) -> SetValidated:
    """The condition that says what the last test of the node came to, by the Job's name."""
    return SetValidated(
        node=node.name,
        node_uid=node.uid,
        passed=passed,
        message=f"{job}: {message}"[:1024],
        at=now,
    )


def _job(
    template: Mapping[str, Any],
    name: str,
    meta: Mapping[str, Any],
    spec: Mapping[str, Any],
    tolerations: list[dict[str, str]],
    timeout_s: float,
) -> dict[str, Any]:
    labels = {LABEL_NAME: "gpuward", LABEL_COMPONENT: names.COMPONENT_VALIDATE}
    own_meta, own = _mapping(template.get("metadata")), _mapping(template.get("spec"))
    pod_meta: dict[str, Any] = {"labels": {**_mapping(own_meta.get("labels")), **labels}}
    if annotations := _mapping(own_meta.get("annotations")):
        pod_meta["annotations"] = annotations
    pod_spec = {
        **own,
        **spec,
        "restartPolicy": "Never",
        "tolerations": [*_mappings(own.get("tolerations")), *tolerations],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "name": name, "labels": {**meta.get("labels", {}), **labels}},
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": max(1, int(timeout_s)),
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": pod_meta, "spec": pod_spec},
        },
    }


def _mappings(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
