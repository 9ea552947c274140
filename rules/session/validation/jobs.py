"""The Job of a test under load and the PodTemplate that it is made from."""

import hashlib
import re
from collections.abc import Collection, Mapping
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
ANNOTATION_SINGLE: Final = f"{names.PREFIX}/tests-single-gpus"
"""`true` on a PodTemplate whose test is also valid on a part of the node's GPUs."""
VISIBLE_GPUS: Final = "NVIDIA_VISIBLE_DEVICES"
"""Variable from which NVIDIA's container runtime gives a container its GPUs."""
_UUID: Final = re.compile(r"GPU-[A-Za-z0-9-]{1,92}")
_TROUBLE: Final = ("node.kubernetes.io/", names.TAINT_QUARANTINE)
KEPT_S: Final = 86_400
"""How long an ended Job is kept for inspection; its result is in the session."""
MAX_JOB_NAME: Final = 63
"""Maximum length of a label value, which Kubernetes uses the name for."""
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
        """Whether it ended and its pod had exit status 0."""
        return any(c.type == "Complete" and c.status == "True" for c in self.status.conditions)

    @property
    def over(self) -> str:
        """The Job controller's reason for the end; "" while it runs."""
        for condition in self.status.conditions:
            if condition.type in {"Complete", "Failed"} and condition.status == "True":
                return condition.reason[:64] or condition.type
        return ""


class PodTemplateView(View, frozen=True, kw_only=True):
    """A PodTemplate with its uninterpreted template."""

    metadata: ObjectMeta
    template: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """A Job of gpuward as it was just read."""

    name: str
    job: JobView | None = None
    """None if it certainly does not exist."""
    pods: tuple[PodView, ...] = ()
    """The pods that the Job controls."""
    template: PodTemplateView | None = None
    """Read while there is no Job yet; None if it does not exist."""
    unread: str = ""
    """Why it could not be read, as a clause; the other fields are then not valid."""


def name_of_test(base: str, number: int) -> str:
    """Return the name of a test's Job, the same for every leader.

    A name that is too long for a Job is cut and gets a hash.
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
    """Return the Job that runs `template` once on `node`, regardless of taints and cordon.

    Its owner is the session, not the node: it is deleted with the session.
    """
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUQuarantine",
        "name": session,
        "uid": session_uid,
    }
    # nodeName bypasses the scheduler and the cordon. The kubelet still rejects pods that do not
    # tolerate NoExecute taints, hence the toleration. With it the scheduler ignores the cordon,
    # too: ResourceClaims are allocated only by the scheduler.
    spec: dict[str, Any] = {"nodeName": node}
    if claims_gpus(template):
        spec = _only_on(node)
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
    """Return the Job that runs `template` on `node` while no other pod uses a GPU there.

    It requests all GPUs from the scheduler at the lowest priority, so that other pods preempt it:
    `gpus` of the device plugin, or those that the template claims if that is 0.
    """
    containers = [dict(c) for c in _mappings(_mapping(template.get("spec")).get("containers"))]
    if containers and gpus:
        resources = _mapping(containers[0].get("resources"))
        limits = {**_mapping(resources.get("limits")), GPU_RESOURCE: str(gpus)}
        requests = {**_mapping(resources.get("requests")), GPU_RESOURCE: str(gpus)}
        containers[0]["resources"] = {**resources, "limits": limits, "requests": requests}
    spec = {
        **_only_on(node.name),
        "containers": containers,
        "priorityClassName": NEW_NODE_PRIORITY,
    }
    # Tolerate taints that reserve nodes or keep them from use until this test passed.
    # Kubernetes' own taints and the quarantine taint mean that the test must not run.
    keys = sorted({t.key for t in node.spec.taints if not t.key.startswith(_TROUBLE)})
    tolerations = [{"key": key, "operator": "Exists"} for key in keys]
    notes = {
        ANNOTATION_OF: node.uid,
        ANNOTATION_NODE: node.name,
        ANNOTATION_BOOT: node.boot_id,
    }
    meta = {"annotations": notes, "labels": {LABEL_NEW_NODE: "true"}}
    return _job(template, name, meta, spec, tolerations, timeout_s)


def limited_to(
    template: PodTemplateView, gpus: Collection[str] | None
) -> Mapping[str, Any] | None:
    """Return the template with only these GPUs visible in its containers, all of them for None.

    None if its test is not valid on a part of the GPUs, or cannot be limited to them.
    """
    if gpus is None:
        return template.template
    allowed = template.metadata.annotations.get(ANNOTATION_SINGLE) == "true"
    if not allowed or claims_gpus(template.template) or not gpus:
        return None
    if not all(_UUID.fullmatch(uuid) for uuid in gpus):
        return None
    spec = dict(_mapping(template.template.get("spec")))
    only = {"name": VISIBLE_GPUS, "value": ",".join(sorted(gpus))}
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [
                {
                    **one,
                    "env": [*(e for e in _mappings(one.get("env")) if not _sets_gpus(e)), only],
                }
                for one in _mappings(spec[kind])
            ]
    return {**template.template, "spec": spec}


def _sets_gpus(variable: Mapping[str, Any]) -> bool:
    return variable.get("name") == VISIBLE_GPUS


def claims_gpus(template: Mapping[str, Any]) -> bool:
    """Return whether pods of the template get their GPUs through ResourceClaims."""
    return bool(_mappings(_mapping(template.get("spec")).get("resourceClaims")))


def _only_on(node: str) -> dict[str, Any]:
    """Return the part of a pod's spec that lets the scheduler choose this node only."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    }


def reported_on(
    node: NodeView, job: str, *, passed: bool, message: str, now: float
) -> SetValidated:
    """Return the write of the node condition with the result of the last test."""
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
