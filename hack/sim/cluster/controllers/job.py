"""Job controller: runs pods to completion and counts each ended pod exactly once.

Counting goes as in Kubernetes: an ended pod's UID is first written to uncountedTerminatedPods,
then its finalizer is taken off, then the counter moves. Retries follow at once. Indexed and
suspended Jobs are left out.
"""

from collections.abc import Iterable
from datetime import datetime

from hack.sim.cluster.client import Object
from hack.sim.cluster.controllers import pods as pod_state
from hack.sim.cluster.controllers.caches import Caches, Key
from hack.sim.cluster.controllers.pods import controlled_by, controller_of, parse_stamp, stamp
from hack.sim.cluster.controllers.running import (
    Controller,
    Create,
    Delete,
    Outcome,
    Patch,
    UpdateStatus,
    Write,
    own_key,
    owner_key,
    with_status,
)
from hack.sim.cluster.resource import JOBS, PODS

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
Ended = tuple[set[str], set[str]]


def reconcile(job: Object, owned: list[Object], now: datetime) -> Outcome:
    """Count what ended, decide whether the Job is over, keep the wanted number of pods."""
    if is_over(job) or pod_state.is_terminating(job):
        return Outcome(writes=tuple(_release(pod) for pod in owned if _is_tracked(pod)))
    old = job.get("status") or {}
    status: Object = {**old, "startTime": old.get("startTime") or stamp(now)}
    uncounted = _uncounted(old)
    _move_to_counters(status, owned, uncounted)
    failing, ignored = _note_ended(job, status, owned, uncounted)
    writes: list[Write] = [
        _release(pod)
        for pod in owned
        if _is_tracked(pod) and pod["metadata"]["uid"] in uncounted[0] | uncounted[1] | ignored
    ]
    ended = _assessment(job, status, failing, now)
    active = [pod for pod in owned if pod_state.is_active(pod)]
    again_in_s = None
    if ended is not None:
        writes += [Delete(resource=PODS, target=pod) for pod in active]
        if all(pod_state.is_finished(pod) and not _is_tracked(pod) for pod in owned):
            _end(status, ended, now)
    else:
        writes += _missing_pods(job, status, owned, active)
        again_in_s = _deadline_in_s(job, status, now)
    _count(status, owned, active)
    if status != old:
        # The counters go first: finalizers come off only after the API knows the UIDs.
        writes = [UpdateStatus(resource=JOBS, body=with_status(job, status)), *writes]
    return Outcome(writes=tuple(writes), again_in_s=again_in_s)


def is_over(job: Object) -> bool:
    """Complete or Failed is True."""
    return pod_state.is_true(job, "Complete") or pod_state.is_true(job, "Failed")


def _is_tracked(pod: Object) -> bool:
    """The pod still carries the finalizer by which the Job counts it."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def _waits_for_the_end(job: Object) -> bool:
    """podReplacementPolicy Failed: a terminating pod holds its place until it has ended.

    It is the default for Jobs with a pod failure policy.
    """
    default = "Failed" if job["spec"].get("podFailurePolicy") else "TerminatingOrFailed"
    return bool(job["spec"].get("podReplacementPolicy", default) == "Failed")


def _has_failed(job: Object, pod: Object) -> bool:
    """Phase Failed; or terminating, where the Job does not wait for the end of the pod."""
    if pod_state.is_finished(pod):
        return pod_state.phase(pod) == "Failed"
    return pod_state.is_terminating(pod) and not _waits_for_the_end(job)


def _failure_action(job: Object, pod: Object) -> str:
    """The action of the first rule of podFailurePolicy that fits the failed pod."""
    policy = job["spec"].get("podFailurePolicy") or {}
    fitting = (rule["action"] for rule in policy.get("rules") or () if _rule_fits(rule, pod))
    return next(fitting, "Count")


def _rule_fits(rule: Object, pod: Object) -> bool:
    codes = rule.get("onExitCodes")
    if codes:
        ended = [code for code in _exit_codes(pod) if code]
        return any((code in codes["values"]) is (codes["operator"] == "In") for code in ended)
    return any(
        (pod_state.condition(pod, wanted["type"]) or {}).get("status")
        == wanted.get("status", "True")
        for wanted in rule.get("onPodConditions") or ()
    )


def _exit_codes(pod: Object) -> Iterable[int]:
    for entry in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (entry.get("state") or {}).get("terminated")
        if ended:
            yield int(ended["exitCode"])


def new_pod(job: Object) -> Object:
    """A pod of the Job."""
    meta = job["metadata"]
    labels = {
        "batch.kubernetes.io/job-name": meta["name"],
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "job-name": meta["name"],
        "controller-uid": meta["uid"],
    }
    template = job["spec"]["template"]
    body = pod_state.from_template(template, job, labels=labels, finalizers=[TRACKING_FINALIZER])
    body["spec"].setdefault("restartPolicy", "Never")
    return body


def _uncounted(status: Object) -> Ended:
    """(succeeded, failed) UIDs that the API already holds as ended but not yet counted."""
    held = status.get("uncountedTerminatedPods") or {}
    return set(held.get("succeeded") or ()), set(held.get("failed") or ())


def _move_to_counters(status: Object, owned: list[Object], uncounted: Ended) -> None:
    """UIDs whose finalizer is off (or whose pod is gone) move into the counters."""
    tracked = {pod["metadata"]["uid"] for pod in owned if _is_tracked(pod)}
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
    ignores (they are released without counting).
    """
    held = (set(uncounted[0]), set(uncounted[1]))
    failing: list[Object] = []
    ignored: set[str] = set()
    for pod in owned:
        uid = pod["metadata"]["uid"]
        if not _is_tracked(pod) or uid in held[0] | held[1]:
            continue
        if pod_state.phase(pod) == "Succeeded":
            held[0].add(uid)
        elif _has_failed(job, pod):
            if _failure_action(job, pod) == "Ignore":
                ignored.add(uid)
            else:
                failing.append(pod)
                held[1].add(uid)
    status["uncountedTerminatedPods"] = {
        name: sorted(uids)
        for name, uids in zip(("succeeded", "failed"), held, strict=True)
        if uids
    }
    return failing, ignored


def _assessment(
    job: Object, status: Object, failing: list[Object], now: datetime
) -> tuple[str, str, str] | None:
    """(condition, reason, message) when the Job is over, or about to be."""
    target = pod_state.condition({"status": status}, "FailureTarget")
    if target is not None:
        return "Failed", target["reason"], target.get("message", "")
    failures = int(status.get("failed") or 0) + len(_uncounted(status)[1])
    failed: tuple[str, str] | None = None
    if any(_failure_action(job, pod) == "FailJob" for pod in failing):
        failed = "PodFailurePolicy", "A pod failed and matched a FailJob rule"
    elif failures > int(job["spec"].get("backoffLimit", 6)):
        failed = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    elif _deadline_in_s(job, status, now) == 0:
        failed = "DeadlineExceeded", "Job was active longer than specified deadline"
    if failed is not None:
        entry = {"type": "FailureTarget", "status": "True"}
        entry |= {"reason": failed[0], "message": failed[1]}
        status["conditions"] = pod_state.with_condition(
            status.get("conditions"), entry, stamp(now)
        )
        return ("Failed", *failed)
    if _success_count(status) >= int(job["spec"].get("completions") or 1):
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def _success_count(status: Object) -> int:
    return int(status.get("succeeded") or 0) + len(_uncounted(status)[0])


def _end(status: Object, ended: tuple[str, str, str], now: datetime) -> None:
    kind, reason, message = ended
    entries = [kind] if kind == "Failed" else ["SuccessCriteriaMet", kind]
    for name in entries:
        entry = {"type": name, "status": "True", "reason": reason, "message": message}
        status["conditions"] = pod_state.with_condition(
            status.get("conditions"), entry, stamp(now)
        )
    if kind == "Complete":
        status["completionTime"] = stamp(now)


def _missing_pods(
    job: Object, status: Object, owned: list[Object], active: list[Object]
) -> list[Write]:
    spec = job["spec"]
    holding = sum(
        pod_state.is_terminating(pod) and not pod_state.is_finished(pod)
        for pod in owned
        if _waits_for_the_end(job)
    )
    left = int(spec.get("completions") or 1) - _success_count(status)
    room = min(int(spec.get("parallelism", 1)), left) - len(active) - holding
    return [Create(resource=PODS, body=new_pod(job)) for _ in range(room)]


def _count(status: Object, owned: list[Object], active: list[Object]) -> None:
    status["ready"] = sum(1 for pod in active if pod_state.is_ready(pod))
    status["terminating"] = sum(
        1 for pod in owned if pod_state.is_terminating(pod) and not pod_state.is_finished(pod)
    )
    status["active"] = len(active)
    if not active:
        status.pop("active")


def _deadline_in_s(job: Object, status: Object, now: datetime) -> float | None:
    limit = job["spec"].get("activeDeadlineSeconds")
    if limit is None:
        return None
    running_s = (now - parse_stamp(status["startTime"])).total_seconds()
    return max(float(limit) - running_s, 0.0)


def _release(pod: Object) -> Patch:
    known = pod["metadata"].get("finalizers") or ()
    finalizers = [name for name in known if name != TRACKING_FINALIZER]
    return Patch(resource=PODS, target=pod, patch={"metadata": {"finalizers": finalizers or None}})


def release_orphans(key: Key, pods: list[Object]) -> Outcome:
    """Pods of a Job that no longer exists lose the finalizer that only it would remove."""
    writes: list[Write] = []
    for pod in pods:
        owner = controller_of(pod)
        if owner and (owner["kind"], owner["name"]) == ("Job", key[1]) and _is_tracked(pod):
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
