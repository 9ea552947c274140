"""A small JobSet controller: a gang of Jobs that restarts as a whole when one of them fails.

What a drain costs a training run shows here: `status.restarts`. Follows the JobSet project's API
(jobset.x-k8s.io/v1alpha2) in names, labels and the default failure policy; nothing else of it.
"""

from __future__ import annotations

from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.owners import controlled_by, reference
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.timestamps import stamp
from hack.sim.cluster.controllers.workloads.replicaset import own_key, owner_key
from hack.sim.cluster.controllers.writes import (
    NOTHING,
    Create,
    Delete,
    Outcome,
    UpdateStatus,
    Write,
    with_status,
)
from hack.sim.cluster.resource import JOBS, Resource

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", True, "JobSet")
PREFIX = "jobset.sigs.k8s.io/"
ATTEMPT_LABEL = f"{PREFIX}restart-attempt"


def definition() -> Object:
    """A CustomResourceDefinition that takes any JobSet."""
    free: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": free, "status": free}}
    version = {
        "name": JOB_SETS.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": JOB_SETS.group_resource},
        "spec": {
            "group": JOB_SETS.group,
            "scope": "Namespaced",
            "names": {
                "plural": JOB_SETS.plural,
                "singular": "jobset",
                "kind": JOB_SETS.kind,
                "listKind": "JobSetList",
            },
            "versions": [version],
        },
    }


def reconcile(job_set: Object, owned: list[Object], now: datetime) -> Outcome:
    """Restart the whole set after a failure; make the Jobs of the present attempt."""
    if pod_state.is_terminating(job_set) or _is_over(job_set):
        return NOTHING
    status: Object = {"restarts": 0, **(job_set.get("status") or {})}
    current = [job for job in owned if _attempt(job) == status["restarts"]]
    failed = [job for job in current if pod_state.is_true(job, "Failed")]
    writes: list[Write] = []
    if failed:
        most = int((job_set["spec"].get("failurePolicy") or {}).get("maxRestarts", 0))
        if status["restarts"] >= most:
            message = f"Job {failed[0]['metadata']['name']} failed and no restart is left"
            _end(status, "Failed", "ReachedMaxRestarts" if most else "FailedJobs", message, now)
        else:
            status["restarts"] += 1
            current = []
    elif current and all(pod_state.is_true(job, "Complete") for job in current):
        _end(status, "Completed", "AllJobsCompleted", "all jobs completed", now)
    if status != job_set.get("status"):
        writes.append(UpdateStatus(resource=JOB_SETS, body=with_status(job_set, status)))
    old = [job for job in owned if _attempt(job) < status["restarts"]]
    writes += [
        Delete(resource=JOBS, target=job) for job in old if not pod_state.is_terminating(job)
    ]
    if not old and "terminalState" not in status:
        there = {job["metadata"]["name"] for job in current}
        writes += [
            Create(resource=JOBS, body=body)
            for body in _jobs(job_set, int(status["restarts"]))
            if body["metadata"]["name"] not in there
        ]
    return Outcome(writes=tuple(writes))


def _is_over(job_set: Object) -> bool:
    return bool((job_set.get("status") or {}).get("terminalState"))


def _attempt(job: Object) -> int:
    return int((job["metadata"].get("labels") or {}).get(ATTEMPT_LABEL, 0))


def _end(status: Object, kind: str, reason: str, message: str, now: datetime) -> None:
    entry = {"type": kind, "status": "True", "reason": reason, "message": message}
    status["terminalState"] = kind
    status["conditions"] = pod_state.with_condition(status.get("conditions"), entry, stamp(now))


def _jobs(job_set: Object, attempt: int) -> list[Object]:
    meta = job_set["metadata"]
    bodies: list[Object] = []
    for part in job_set["spec"]["replicatedJobs"]:
        for index in range(int(part.get("replicas", 1))):
            labels = {
                f"{PREFIX}jobset-name": meta["name"],
                f"{PREFIX}replicatedjob-name": part["name"],
                f"{PREFIX}job-index": str(index),
                ATTEMPT_LABEL: str(attempt),
            }
            bodies.append(_job(job_set, part, index, labels))
    return bodies


def _job(job_set: Object, part: Object, index: int, labels: dict[str, str]) -> Object:
    spec = part["template"]["spec"]
    template = spec["template"]
    pod_meta = template.get("metadata") or {}
    pod_meta = {**pod_meta, "labels": {**(pod_meta.get("labels") or {}), **labels}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{job_set['metadata']['name']}-{part['name']}-{index}",
            "namespace": job_set["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [reference(job_set)],
        },
        "spec": {**spec, "template": {**template, "metadata": pod_meta}},
    }


def _reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    job_set = caches[JOB_SETS].get(key)
    if job_set is None:
        return NOTHING
    owned = controlled_by(caches[JOBS].owned_by(job_set["metadata"]["uid"]), job_set)
    return reconcile(job_set, owned, now)


CONTROLLER = Controller(
    name="jobset-controller",
    routes={JOB_SETS: own_key, JOBS: lambda old, new, _: owner_key("JobSet", old, new)},
    reconcile=_reconcile_key,
    workers=1,
)
