"""What the server adds to objects, kind by kind: the defaults that scheduling, eviction and
deletion depend on, and what a write of status leaves as it was.

Built-in objects are not validated: a real API server (KUBEBUILDER_ASSETS) judges them.
"""

from __future__ import annotations

from hack.sim.cluster import resource as r
from hack.sim.cluster.resource import Resource
from hack.sim.cluster.store.kinds import Object

_POD: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_NEW_POD: Object = {
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CONTAINER: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
_NOT_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_WORKLOADS: dict[str, Object] = {
    "Deployment": {"replicas": 1, "revisionHistoryLimit": 10},
    "ReplicaSet": {"replicas": 1},
    "DaemonSet": {"revisionHistoryLimit": 10},
    "Job": {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    },
}


def complete_new(obj: Object, priorities: dict[str, int]) -> None:
    """Fill in the defaults of a new object, in place; `priorities` by name of their class."""
    kind = obj["kind"]
    if kind == "Pod":
        _complete_pod(obj, priorities)
    elif kind == "PodDisruptionBudget":
        # A new budget allows nothing until the disruption controller has seen it.
        obj["status"] = dict.fromkeys(
            ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0
        )
    elif kind == "Namespace":
        meta = obj["metadata"]
        meta["labels"] = {
            **(meta.get("labels") or {}),
            "kubernetes.io/metadata.name": meta["name"],
        }
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
    else:
        complete_workload(obj)


def complete_workload(obj: Object) -> None:
    """Fill in the defaults of a workload's spec and its template, in place."""
    defaults = _WORKLOADS.get(obj["kind"])
    if defaults is None or obj["apiVersion"] not in {"apps/v1", "batch/v1"}:
        return
    spec = {**defaults, **(obj.get("spec") or {})}
    template = dict(spec.get("template") or {})
    if obj["kind"] == "Job":
        if "completions" not in spec and "parallelism" not in (obj.get("spec") or {}):
            spec["completions"] = 1
        _select_by_uid(obj["metadata"], spec, template)
    template["spec"] = dict(template.get("spec") or {})
    _complete_pod_spec(template["spec"])
    spec["template"] = template
    obj["spec"] = spec


def _select_by_uid(meta: Object, spec: Object, template: Object) -> None:
    """A Job selects its pods by its own UID, unless told otherwise."""
    if spec.get("manualSelector") or spec.get("selector"):
        return
    labels = {
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta["name"],
        "controller-uid": meta["uid"],
        "job-name": meta["name"],
    }
    inner = dict(template.get("metadata") or {})
    template["metadata"] = {**inner, "labels": {**(inner.get("labels") or {}), **labels}}
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}


def _complete_pod(pod: Object, priorities: dict[str, int]) -> None:
    """A new pod as admission leaves it: defaults, priority, tolerations, a fresh status."""
    spec = {**_NEW_POD, **(pod.get("spec") or {})}
    _complete_pod_spec(spec)
    spec["priority"] = priorities.get(spec.get("priorityClassName") or "", 0)
    tolerations = list(spec.get("tolerations") or [])
    for key in _NOT_READY_TAINTS:
        if not any(_tolerates_no_execute(one, key) for one in tolerations):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**toleration, "tolerationSeconds": 300})
    pod["spec"] = {**spec, "tolerations": tolerations}
    pod["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


def _complete_pod_spec(spec: Object) -> None:
    for field, value in _POD.items():
        spec.setdefault(field, value)
    for name in ("containers", "initContainers"):
        if name in spec:
            spec[name] = [_container(one) for one in spec[name]]


def _container(container: Object) -> Object:
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        resources = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}
    return {**_CONTAINER, **container, "resources": resources}


def _tolerates_no_execute(toleration: Object, key: str) -> bool:
    if (toleration.get("effect") or "NoExecute") != "NoExecute":
        return False
    stated = toleration.get("key")
    return stated == key or (not stated and toleration.get("operator") == "Exists")


def keep(resource: Resource, old: Object, new: Object, subresource: str) -> None:
    """Undo in `new` what a write of this subresource never changes, in place."""
    meta = new["metadata"]
    if resource == r.NAMESPACES and subresource == "finalize":
        new["metadata"] = {**old["metadata"], "resourceVersion": meta["resourceVersion"]}
        new["status"] = old.get("status") or {}
    elif resource == r.NAMESPACES:
        new["spec"] = old.get("spec") or {}
    elif resource == r.PODS and subresource == "status":
        _keep_field("ownerReferences", old["metadata"], meta)
    elif resource == r.DEPLOYMENTS and subresource == "status":
        _keep_field("labels", old["metadata"], meta)
    complete_workload(new)


def _keep_field(name: str, old: Object, new: Object) -> None:
    new.pop(name, None)
    if name in old:
        new[name] = old[name]
