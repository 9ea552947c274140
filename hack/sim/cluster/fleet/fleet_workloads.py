"""The Kubernetes manifests behind a fleet's description.

`fleet_load` creates them; tests that want one workload use them directly. Pure.
"""

from __future__ import annotations

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers.pods import GPU
from hack.sim.cluster.fleet.fleet import (
    GPU_TOLERATION,
    POOL_LABEL,
    Budget,
    Daemon,
    Gang,
    Serving,
    Workload,
)

IMAGE = "registry.example/workload:1"


def pod_template(
    app: str,
    *,
    gpus: int = 0,
    pool: str | None = None,
    tolerations: tuple[Object, ...] = (GPU_TOLERATION,),
    annotations: dict[str, str] | None = None,
) -> Object:
    """A pod template of one container, labelled `app`, kept to one pool where one is named."""
    resources: Object = {"requests": {"cpu": "100m", "memory": "256Mi"}}
    if gpus:
        resources["limits"] = {GPU: str(gpus)}
    spec: Object = {"containers": [{"name": "main", "image": IMAGE, "resources": resources}]}
    if tolerations:
        spec["tolerations"] = list(tolerations)
    if pool is not None:
        spec["nodeSelector"] = {POOL_LABEL: pool}
    meta: Object = {"labels": {"app": app}}
    if annotations:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": spec}


def manifest(workload: Workload) -> Object:
    """The object that owns the workload's pods."""
    match workload:
        case Gang():
            return _job(workload)
        case Serving():
            spec = {"replicas": workload.replicas, **_selection(workload.name)}
            spec["template"] = pod_template(
                workload.name,
                gpus=workload.gpus,
                pool=workload.pool,
            )
            return _object("apps/v1", "Deployment", workload, spec)
        case Daemon():
            return _daemon_set(workload)


def budget_manifest(workload: Workload) -> Object | None:
    """The workload's PodDisruptionBudget, named as the workload."""
    if isinstance(workload, Daemon) or workload.budget is None:
        return None
    return _object("policy/v1", "PodDisruptionBudget", workload, _budget_spec(workload))


def _budget_spec(workload: Gang | Serving) -> Object:
    budget = workload.budget or Budget()
    spec: Object = _selection(workload.name)
    if budget.min_available is not None:
        spec["minAvailable"] = budget.min_available
    if budget.max_unavailable is not None:
        spec["maxUnavailable"] = budget.max_unavailable
    return spec


def _job(gang: Gang) -> Object:
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    ignore = {"action": "Ignore", "onPodConditions": [disrupted]}
    template = pod_template(gang.name, gpus=gang.gpus, pool=gang.pool)
    template["spec"]["restartPolicy"] = "Never"
    spec = {
        "completions": gang.pods,
        "parallelism": gang.pods,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [ignore]},
        "template": template,
    }
    return _object("batch/v1", "Job", gang, spec)


def _daemon_set(daemon: Daemon) -> Object:
    template = pod_template(daemon.name, tolerations=daemon.tolerations)
    if daemon.pools:
        term = {
            "matchExpressions": [
                {"key": POOL_LABEL, "operator": "In", "values": list(daemon.pools)}
            ]
        }
        required = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
        template["spec"]["affinity"] = {"nodeAffinity": required}
    return _object(
        "apps/v1", "DaemonSet", daemon, {**_selection(daemon.name), "template": template}
    )


def _object(api_version: str, kind: str, workload: Workload, spec: Object) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "labels": {"app": workload.name},
        },
        "spec": spec,
    }


def _selection(app: str) -> Object:
    return {"selector": {"matchLabels": {"app": app}}}
