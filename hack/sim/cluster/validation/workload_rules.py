"""Defaults and validation of the kinds that hold a pod template.

Called by the strategies for Deployments, ReplicaSets, DaemonSets, StatefulSets and Jobs.
"""

from __future__ import annotations

from hack.sim.cluster.statuses import FieldProblem, invalid, required
from hack.sim.cluster.store.kinds import Object
from hack.sim.cluster.store.selectors import selector_of_object
from hack.sim.cluster.validation.cluster import Cluster
from hack.sim.cluster.validation.pod_rules import complete_pod_template, spec_problems

_DEFAULTS: dict[str, Object] = {
    "Deployment": {
        "replicas": 1,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "ReplicaSet": {"replicas": 1},
    "DaemonSet": {
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        },
        "revisionHistoryLimit": 10,
    },
    "StatefulSet": {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
    },
    "Job": {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    },
}


def complete_workload(_: Cluster, workload: Object) -> None:
    """Fill in the defaults of the spec and its template, in place."""
    spec = dict(workload.get("spec") or {})
    for field, value in _DEFAULTS[workload["kind"]].items():
        spec.setdefault(field, value)
    if workload["kind"] == "Job":
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        _complete_job(workload, spec)
    template = dict(spec.get("template") or {})
    pod = dict(template.get("spec") or {})
    complete_pod_template(pod)
    template["spec"] = pod
    spec["template"] = template
    workload["spec"] = spec


def keep_labels(api: Cluster, old: Object, new: Object, subresource: str) -> None:
    """A write of a Deployment's status never changes its labels."""
    complete_workload(api, new)
    if subresource == "status":
        new["metadata"].pop("labels", None)
        if labels := old["metadata"].get("labels"):
            new["metadata"]["labels"] = labels


def _complete_job(job: Object, spec: Object) -> None:
    """A Job selects its pods by its own uid, unless told otherwise."""
    if spec.get("manualSelector") or spec.get("selector"):
        return
    uid = job["metadata"].get("uid")
    if not uid:
        return
    name = job["metadata"].get("name", "")
    template = dict(spec.get("template") or {})
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    template["metadata"] = metadata
    spec["template"] = template
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def workload_problems(_: Cluster, workload: Object, old: Object | None) -> list[FieldProblem]:
    """Every rule that the workload breaks."""
    spec = workload["spec"]
    if old is not None and spec == old.get("spec"):
        return []
    problems = []
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    try:
        read = selector_of_object(selector)
    except ValueError as error:
        problems.append(invalid("spec.selector", selector, str(error)))
        read = None
    if not selector:
        problems.append(required("spec.selector"))
    elif read is not None and not read.matches(labels):
        problems.append(
            invalid(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            )
        )
    if old is not None and selector != old["spec"].get("selector"):
        problems.append(invalid("spec.selector", selector, "field is immutable"))
    replicas = spec.get("replicas")
    if replicas is not None and replicas < 0:
        problems.append(invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
    pod = spec["template"]["spec"]
    problems += spec_problems(pod, "spec.template.spec")
    wanted = ("OnFailure", "Never") if workload["kind"] == "Job" else ("Always",)
    if pod.get("restartPolicy") not in wanted:
        problems.append(
            invalid(
                "spec.template.spec.restartPolicy", pod.get("restartPolicy"), "not supported here"
            )
        )
    return problems
