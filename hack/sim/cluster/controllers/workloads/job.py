"""Job controller: runs pods to completion and counts each ended pod exactly once.

Counting goes as in Kubernetes: an ended pod's UID is first written to uncountedTerminatedPods,
then its finalizer is taken off, then the counter moves. Retries follow at once; the back-off
between them is left out.
"""

from __future__ import annotations

from datetime import datetime

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.owners import controlled_by, controller_of
from hack.sim.cluster.controllers.running import Controller
from hack.sim.cluster.controllers.timestamps import parse_stamp, stamp
from hack.sim.cluster.controllers.workloads import job_pods as jobs
from hack.sim.cluster.controllers.workloads.job_pods import FailureAction
from hack.sim.cluster.controllers.workloads.replicaset import own_key, owner_key
from hack.sim.cluster.controllers.writes import (
    Create,
    Delete,
    Outcome,
    Patch,
    UpdateStatus,
    Write,
    with_status,
)
from hack.sim.cluster.resource import JOBS, PODS

Ended = tuple[set[str], set[str]]


def reconcile(job: Object, owned: list[Object], now: datetime) -> Outcome:
    """Count what ended, decide whether the Job is over, keep the wanted number of pods."""
    if is_over(job) or pod_state.is_terminating(job):
        return Outcome(writes=tuple(_release(pod) for pod in owned if jobs.is_tracked(pod)))
    old = job.get("status") or {}
    status: Object = {**old, "startTime": old.get("startTime") or stamp(now)}
    if job["spec"].get("suspend"):
        status.pop("startTime")
    uncounted = _uncounted(old)
    _move_to_counters(status, owned, uncounted)
    failing, ignored = _note_ended(job, status, owned, uncounted)
    writes: list[Write] = [
        _release(pod)
        for pod in owned
        if jobs.is_tracked(pod) and pod["metadata"]["uid"] in uncounted[0] | uncounted[1] | ignored
    ]
    verdict = _verdict(job, status, owned, failing, now)
    active = [pod for pod in owned if pod_state.is_active(pod)]
    again_in_s = None
    if verdict is not None:
        writes += [Delete(resource=PODS, target=pod) for pod in active]
        if not _still_there(owned):
            _end(status, verdict, now)
    else:
        writes += _right_number(job, status, owned)
        again_in_s = _deadline_in_s(job, status, now)
    _count(status, owned, active)
    if status != old:
        # The counters go first: finalizers come off only after the API knows the UIDs.
        writes = [UpdateStatus(resource=JOBS, body=with_status(job, status)), *writes]
    return Outcome(writes=tuple(writes), again_in_s=again_in_s)


def is_over(job: Object) -> bool:
    """Complete or Failed is True."""
    return pod_state.is_true(job, "Complete") or pod_state.is_true(job, "Failed")


def _uncounted(status: Object) -> Ended:
    """(succeeded, failed) UIDs that the API already holds as ended but not yet counted."""
    held = status.get("uncountedTerminatedPods") or {}
    return set(held.get("succeeded") or ()), set(held.get("failed") or ())


def _move_to_counters(status: Object, owned: list[Object], uncounted: Ended) -> None:
    """UIDs whose finalizer is off (or whose pod is gone) move into the counters."""
    tracked = {pod["metadata"]["uid"] for pod in owned if jobs.is_tracked(pod)}
    for counter, uids in zip(("succeeded", "failed"), uncounted, strict=True):
        released = uids - tracked
        if released:
            status[counter] = int(status.get(counter) or 0) + len(released)
            uids.difference_update(released)


def _note_ended(
    job: Object, status: Object, owned: list[Object], uncounted: Ended
) -> tuple[list[Object], set[str]]:
    """Newly ended pods enter uncountedTerminatedPods.

    Returns the newly failed pods that count, and the UIDs of those that a pod failure policy
    ignores (they are let go without counting).
    """
    held = (set(uncounted[0]), set(uncounted[1]))
    done = jobs.parse_indexes(status.get("completedIndexes") or "")
    failing: list[Object] = []
    ignored: set[str] = set()
    for pod in owned:
        uid = pod["metadata"]["uid"]
        if not jobs.is_tracked(pod) or uid in held[0] | held[1]:
            continue
        if pod_state.phase(pod) == "Succeeded":
            held[0].add(uid)
            index = jobs.index_of(pod)
            if jobs.is_indexed(job) and index is not None:
                done.add(index)
        elif jobs.has_failed(job, pod):
            if jobs.failure_action(job, pod) is FailureAction.IGNORE:
                ignored.add(uid)
            else:
                failing.append(pod)
                held[1].add(uid)
    if jobs.is_indexed(job) and done:
        status["completedIndexes"] = jobs.format_indexes(done)
    status["uncountedTerminatedPods"] = {
        name: sorted(uids)
        for name, uids in zip(("succeeded", "failed"), held, strict=True)
        if uids
    }
    return failing, ignored


def _verdict(
    job: Object, status: Object, owned: list[Object], failing: list[Object], now: datetime
) -> tuple[str, str, str] | None:
    """(condition, reason, message) when the Job is over, or about to be."""
    target = pod_state.condition({"status": status}, "FailureTarget")
    if target is not None:
        return "Failed", target["reason"], target.get("message", "")
    failed: tuple[str, str, str] | None = None
    for pod in failing:
        if jobs.failure_action(job, pod) is FailureAction.FAIL_JOB:
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            message = f"Pod {name} failed and matched a FailJob rule of the pod failure policy"
            failed = ("Failed", "PodFailurePolicy", message)
    failures = int(status.get("failed") or 0) + len(_uncounted(status)[1])
    if failures > int(job["spec"].get("backoffLimit", 6)):
        message = "Job has reached the specified backoff limit"
        failed = failed or ("Failed", "BackoffLimitExceeded", message)
    if _deadline_in_s(job, status, now) == 0:
        message = "Job was active longer than specified deadline"
        failed = failed or ("Failed", "DeadlineExceeded", message)
    if failed is not None:
        entry = {"type": "FailureTarget", "status": "True"}
        entry |= {"reason": failed[1], "message": failed[2]}
        status["conditions"] = pod_state.with_condition(
            status.get("conditions"), entry, stamp(now)
        )
        return failed
    if _succeeded(job, status, owned):
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def _succeeded(job: Object, status: Object, owned: list[Object]) -> bool:
    completions = job["spec"].get("completions")
    if jobs.is_indexed(job):
        done = jobs.parse_indexes(status.get("completedIndexes") or "")
        return len(done) >= int(completions or 0)
    count = _success_count(status)
    if completions is None:
        return count > 0 and not any(pod_state.is_active(pod) for pod in owned)
    return count >= int(completions)


def _success_count(status: Object) -> int:
    return int(status.get("succeeded") or 0) + len(_uncounted(status)[0])


def _still_there(owned: list[Object]) -> bool:
    return any(not pod_state.is_finished(pod) or jobs.is_tracked(pod) for pod in owned)


def _end(status: Object, verdict: tuple[str, str, str], now: datetime) -> None:
    kind, reason, message = verdict
    entries = [kind] if kind == "Failed" else ["SuccessCriteriaMet", kind]
    for name in entries:
        entry = {"type": name, "status": "True", "reason": reason, "message": message}
        status["conditions"] = pod_state.with_condition(
            status.get("conditions"), entry, stamp(now)
        )
    if kind == "Complete":
        status["completionTime"] = stamp(now)


def _right_number(job: Object, status: Object, owned: list[Object]) -> list[Write]:
    """Pods to create or, on suspend or a smaller parallelism, to delete."""
    spec = job["spec"]
    active = [pod for pod in owned if pod_state.is_active(pod)]
    parallelism = 0 if spec.get("suspend") else int(spec.get("parallelism", 1))
    holding = [
        pod
        for pod in owned
        if pod_state.is_terminating(pod)
        and not pod_state.is_finished(pod)
        and jobs.replaces_only_failed(job)
    ]
    surplus = sorted(active, key=lambda pod: (pod_state.is_ready(pod), pod["metadata"]["name"]))
    if len(active) > parallelism:
        doomed = surplus[: len(active) - parallelism]
        return [Delete(resource=PODS, target=pod) for pod in doomed]
    room = parallelism - len(active) - len(holding)
    if jobs.is_indexed(job):
        taken = {jobs.index_of(pod) for pod in [*active, *holding]}
        done = jobs.parse_indexes(status.get("completedIndexes") or "")
        free = [
            index
            for index in range(int(spec.get("completions") or 0))
            if index not in taken and index not in done
        ]
        return [Create(resource=PODS, body=jobs.new_pod(job, index)) for index in free[:room]]
    if spec.get("completions") is not None:
        left = int(spec["completions"]) - _success_count(status)
        room = min(room, left - len(active) - len(holding))
    elif _success_count(status):
        room = 0
    return [Create(resource=PODS, body=jobs.new_pod(job, None)) for _ in range(room)]


def _count(status: Object, owned: list[Object], active: list[Object]) -> None:
    ready = sum(1 for pod in active if pod_state.is_ready(pod))
    terminating = sum(
        1 for pod in owned if pod_state.is_terminating(pod) and not pod_state.is_finished(pod)
    )
    status["ready"], status["terminating"] = ready, terminating
    status["active"] = len(active)
    if not active:
        status.pop("active")


def _deadline_in_s(job: Object, status: Object, now: datetime) -> float | None:
    limit = job["spec"].get("activeDeadlineSeconds")
    if limit is None or "startTime" not in status:
        return None
    running_s = (now - parse_stamp(status["startTime"])).total_seconds()
    return max(float(limit) - running_s, 0.0)


def _release(pod: Object) -> Patch:
    finalizers = [
        name for name in pod["metadata"].get("finalizers") or () if name != jobs.TRACKING_FINALIZER
    ]
    return Patch(resource=PODS, target=pod, patch={"metadata": {"finalizers": finalizers or None}})


def release_orphans(key: Key, pods: list[Object]) -> Outcome:
    """Pods of a Job that no longer exists lose the finalizer that only it would remove."""
    writes: list[Write] = []
    for pod in pods:
        owner = controller_of(pod)
        if owner and (owner["kind"], owner["name"]) == ("Job", key[1]) and jobs.is_tracked(pod):
            writes.append(_release(pod))
    return Outcome(writes=tuple(writes))


def _reconcile_key(key: Key, caches: Caches, now: datetime) -> Outcome:
    job = caches[JOBS].get(key)
    if job is None:
        return release_orphans(key, caches[PODS].in_namespace(key[0]))
    owned = controlled_by(caches[PODS].owned_by(job["metadata"]["uid"]), job)
    return reconcile(job, owned, now)


CONTROLLER = Controller(
    name="job-controller",
    routes={
        JOBS: own_key,
        PODS: lambda old, new, _: owner_key("Job", old, new),
    },
    reconcile=_reconcile_key,
)
