"""Judge a Job that tests a node.

Called by `rules.session.validation`. The Job must be ours, the one that was made, with one pod, on
the node that it is to test. Everything else is `unknown`, and unknown is not a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rules.api.pods import PodView
from rules.api.sentences import bounded
from rules.validate.contract import MAX_BYTES, Result, Verdict, read
from rules.validate.jobs import ANNOTATION_OF, JobSeen, JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Where a test stands. `result` None: it goes on, and `clause` says how far it is."""

    result: Result | None = None
    clause: str = ""
    job_uid: str = ""


def is_ours(job: JobView, made_for: str) -> bool:
    """Whether the Job was made for this session, or this new Node (its UID)."""
    return bool(made_for) and job.metadata.annotations.get(ANNOTATION_OF) == made_for


def outcome_of(seen: JobSeen, *, node: str, made_for: str, job_uid: str) -> Outcome:
    """What became of the Job; `job_uid` is the UID that is on record, "" before it is."""
    job = seen.job
    if job is None:
        return _unknown("its Job vanished")
    if not is_ours(job, made_for):
        return _unknown("a Job of that name is not gpuward's")
    if job_uid and job.metadata.uid != job_uid:
        return _unknown("its Job vanished and another one has its name")
    pods = [pod for pod in seen.pods if _controlled(pod, job)]
    if not pods:
        if job.over:
            return _unknown(f"its Job ended ({job.over}) and left no pod to read")
        return Outcome(clause="its pod is not there yet", job_uid=job.metadata.uid)
    if len(pods) > 1:
        return _unknown("it ran more than once")
    (pod,) = pods
    if pod.spec.node_name and pod.spec.node_name != node:
        return _unknown(f"its pod is on node {pod.spec.node_name[:100]}")
    ended = _ended(pod)
    if ended is not None and pod.spec.node_name == node:
        return Outcome(result=_judged(ended), job_uid=job.metadata.uid)
    if pod.finished or job.over:
        how = f" ({job.over})" if job.over else ""
        return _unknown(f"its pod ended{how} without a word of its container")
    going = "runs" if pod.status.phase == "Running" else "waits to start"
    return Outcome(clause=f"its pod {going}", job_uid=job.metadata.uid)


def _unknown(why: str) -> Outcome:
    return Outcome(result=Result(verdict=Verdict.UNKNOWN, message=why))


def _controlled(pod: PodView, job: JobView) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "Job" and owner.uid == job.metadata.uid


def _ended(pod: PodView) -> Mapping[str, Any] | None:
    """How its first container ended: the others are its helpers."""
    wanted = pod.spec.containers[0].name if pod.spec.containers else ""
    for status in pod.status.container_statuses:
        ended = status.state.terminated
        if status.name == wanted and isinstance(ended, dict):
            return ended
    return None


def _judged(ended: Mapping[str, Any]) -> Result:
    """Return the result of a container that ended. A failure needs a check: by exit status alone
    it cannot be told from a test that could not start.
    """
    status, said = ended.get("exitCode"), ended.get("message")
    text = said if isinstance(said, str) else ""
    if not isinstance(status, int) or isinstance(status, bool):
        return Result(verdict=Verdict.UNKNOWN, message="it ended without an exit status")
    if len(text.encode(errors="replace")) > MAX_BYTES:
        why = f"its result is longer than {MAX_BYTES} bytes, which no kubelet keeps"
        return Result(verdict=Verdict.UNKNOWN, message=why)
    result = read(status, text)
    if result.checks or result.verdict is Verdict.PASS:
        return result
    reason = ended.get("reason")
    shown = f" ({reason[:64]})" if isinstance(reason, str) and reason else ""
    why = bounded(f"it ended with exit status {status}{shown} and names no check")
    return Result(verdict=Verdict.UNKNOWN, message=why)
