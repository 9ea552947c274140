"""How a Job sees its pods: succeeded, failed, still counting, and which index each works on.

Pure part of the Job controller: classification and pod bodies, no decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from hack.sim.cluster.clients.client import Object
from hack.sim.cluster.controllers import pods as pod_state

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


class FailureAction(StrEnum):
    """What a pod failure policy says about one failed pod."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_JOB = "FailJob"
    FAIL_INDEX = "FailIndex"


def is_indexed(job: Object) -> bool:
    """completionMode Indexed."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def replaces_only_failed(job: Object) -> bool:
    """podReplacementPolicy Failed: a terminating pod holds its place until it has ended.

    It is the default for Jobs with a pod failure policy.
    """
    default = "Failed" if job["spec"].get("podFailurePolicy") else "TerminatingOrFailed"
    return bool(job["spec"].get("podReplacementPolicy", default) == "Failed")


def has_failed(job: Object, pod: Object) -> bool:
    """Phase Failed; or terminating, where the Job does not wait for the end of the pod."""
    if pod_state.phase(pod) == "Failed":
        return True
    if pod_state.phase(pod) == "Succeeded":
        return False
    return pod_state.is_terminating(pod) and not replaces_only_failed(job)


def is_tracked(pod: Object) -> bool:
    """The pod still carries the finalizer by which the Job counts it."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def index_of(pod: Object) -> int | None:
    """The completion index of a pod of an Indexed Job."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_ANNOTATION)
    return int(text) if text is not None and text.isdigit() else None


def failure_action(job: Object, pod: Object) -> FailureAction:
    """The action of the first rule of podFailurePolicy that fits the failed pod."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for rule in policy.get("rules") or ():
        if _rule_fits(rule, pod):
            return FailureAction(rule["action"])
    return FailureAction.COUNT


def _rule_fits(rule: Object, pod: Object) -> bool:
    codes = rule.get("onExitCodes")
    if codes:
        return any(_code_fits(codes, name, code) for name, code in _exit_codes(pod))
    return any(
        (pod_state.condition(pod, wanted["type"]) or {}).get("status")
        == wanted.get("status", "True")
        for wanted in rule.get("onPodConditions") or ()
    )


def _code_fits(codes: Object, container: str, code: int) -> bool:
    if codes.get("containerName") not in (None, container) or code == 0:
        return False
    listed = code in codes["values"]
    return listed if codes["operator"] == "In" else not listed


def _exit_codes(pod: Object) -> Iterable[tuple[str, int]]:
    for entry in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (entry.get("state") or {}).get("terminated")
        if ended:
            yield entry["name"], int(ended["exitCode"])


def new_pod(job: Object, index: int | None) -> Object:
    """A pod of the Job, with its index where the Job is Indexed."""
    meta = job["metadata"]
    labels = {
        "batch.kubernetes.io/job-name": meta["name"],
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "job-name": meta["name"],
        "controller-uid": meta["uid"],
    }
    annotations: dict[str, str] = {}
    if index is not None:
        annotations[INDEX_ANNOTATION] = str(index)
        labels[INDEX_ANNOTATION] = str(index)
    template = job["spec"]["template"]
    body = pod_state.from_template(
        template,
        job,
        labels=labels,
        annotations=annotations,
        finalizers=[TRACKING_FINALIZER],
    )
    body["spec"].setdefault("restartPolicy", "Never")
    if index is not None:
        body["metadata"]["generateName"] = f"{meta['name']}-{index}-"
        body["spec"]["hostname"] = f"{meta['name']}-{index}"
    return body


def parse_indexes(text: str) -> set[int]:
    """The indexes of `0-2,5` as a set."""
    out: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        out.update(range(int(first), int(last or first) + 1))
    return out


def format_indexes(indexes: Iterable[int]) -> str:
    """A set of indexes as Kubernetes writes it: `0-2,5`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
