"""The result of a test under load, and what the tests on record in a session mean.

Written to `/dev/termination-log` by the first container of the Job that tests a node. A container
that writes nothing passes with exit status 0. The Job must be ours, the one that was made, with
one pod, on the node that it is to test. Everything else is `unknown`, and unknown is not a pass.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from rules.api import messages, timestamps
from rules.api.nodes import QuarantineView
from rules.api.pods import PodView
from rules.api.quarantine import (
    Cause,
    QuarantineStatus,
    RepairState,
    ValidationAttempt,
    ValidationState,
)
from rules.catalog.reason import Severity
from rules.session.status import NEW_BOOT
from rules.session.validation import jobs
from rules.session.validation.jobs import JobSeen, JobView

MAX_BYTES: Final = 4096
"""What the kubelet keeps of a container's termination log."""
MAX_CHECKS: Final = 4096
_MAX_READ: Final = 1 << 20


class Assessment(StrEnum):
    """What is known after the test. Only `pass` may give a node back."""

    PASS = "pass"  # noqa: S105 - no password
    UNKNOWN = "unknown"
    """It could not be tested, in whole or in part."""
    DEGRADED = "degraded"
    """It computes rightly and is slower than it should be, or corrected errors to get there."""
    FAIL = "fail"
    """Wrong data, a hang, a GPU lost or missing."""


_BY_SEVERITY: Final = {verdict: gravity for gravity, verdict in enumerate(Assessment)}

_BY_STATUS: Final = {
    0: Assessment.PASS,
    1: Assessment.DEGRADED,
    2: Assessment.FAIL,
    3: Assessment.UNKNOWN,
}
"""By exit status, the same as those of `gpuward-agent check`."""


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was measured. Null for a value that could not be, or a bound there is not."""

    id: str
    gpu: str = ""
    """UUID; empty for the node."""
    verdict: Assessment = Assessment.PASS
    value: float | None = None
    unit: str = ""
    floor: float | None = None
    """At least this."""
    ceiling: float | None = None
    """At most this."""
    note: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The entire; whatever else a test writes is left out."""

    verdict: Assessment
    message: str = ""
    checks: list[Check] = []


def worst(assessments: Iterable[Assessment]) -> Assessment:
    """The most severe of them; `unknown` of none, since nothing was tested."""
    return max(assessments, key=_BY_SEVERITY.__getitem__, default=Assessment.UNKNOWN)


def by_severity(checks: Iterable[Check]) -> list[Check]:
    """The most severe first."""
    return sorted(checks, key=lambda check: -_BY_SEVERITY[check.verdict])


def read(exit_status: int, text: str) -> Result:
    """What a provider said, from its exit status and its termination log.

    Of two words the more severe counts, and neither may be missing from a pass: a status of 0
    beside a log that cannot be read is unknown. An empty log leaves the status alone to speak, for
    tools that know no other way.
    """
    by_status = _BY_STATUS.get(exit_status, Assessment.UNKNOWN)
    message = f"It ended with exit status {exit_status}."
    if not text.strip():
        return Result(verdict=by_status, message=message)
    said = _understood(text)
    if said is None:
        verdict = worst((by_status, Assessment.UNKNOWN))
        return Result(verdict=verdict, message=f"{message} Its log is no result.")
    checks = [check for check in said.checks if _finite(check)]
    # What the provider says of its checks and of the entire must agree before it passes.
    assessments = [by_status, said.verdict, *(check.verdict for check in checks)]
    if len(checks) < len(said.checks):
        assessments.append(Assessment.UNKNOWN)
    return msgspec.structs.replace(
        said,
        verdict=worst(assessments),
        message=messages.bounded(said.message),
        checks=[_shown(check) for check in checks],
    )


def _understood(text: str) -> Result | None:
    if len(text) > _MAX_READ:
        return None
    try:
        said = msgspec.json.decode(text, type=Result)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return said if len(said.checks) <= MAX_CHECKS else None


def _finite(check: Check) -> bool:
    """Whether its numbers are numbers, and do not contradict a result of pass."""
    numbers = (check.value, check.floor, check.ceiling)
    if not all(number is None or math.isfinite(number) for number in numbers):
        return False
    if check.verdict is not Assessment.PASS or check.value is None:
        return True
    low = check.floor is not None and check.value < check.floor
    high = check.ceiling is not None and check.value > check.ceiling
    return not (low or high)


def _shown(check: Check) -> Check:
    """Its words as lines of a bounded length."""
    words = {
        name: messages.bounded(getattr(check, name)) for name in ("id", "gpu", "unit", "note")
    }
    return msgspec.structs.replace(check, **words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Where a test stands. `result` None: it goes on, and `clause` says how far it is."""

    result: Result | None = None
    clause: str = ""
    job_uid: str = ""


def is_ours(job: JobView, made_for: str) -> bool:
    """Whether the Job was made for this session, or this new Node (its UID)."""
    return bool(made_for) and job.metadata.annotations.get(jobs.ANNOTATION_OF) == made_for


def outcome_of(seen: JobSeen, *, node: str, made_for: str, job_uid: str) -> Outcome:
    """What became of the Job; `job_uid` is the UID that is on record, "" before it is."""
    job = seen.job
    if job is None:
        return _unknown("its Job vanished")
    if not is_ours(job, made_for):
        return _unknown("a Job of that name is not gpuward's")
    if job_uid and job.metadata.uid != job_uid:
        return _unknown("its Job vanished and another one has its name")
    owners = ((pod, pod.metadata.controller) for pod in seen.pods)
    pods = [
        pod
        for pod, owner in owners
        if owner is not None and owner.kind == "Job" and owner.uid == job.metadata.uid
    ]
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
    return Outcome(result=Result(verdict=Assessment.UNKNOWN, message=why))


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
    it cannot be reported from a test that could not start.
    """
    status, said = ended.get("exitCode"), ended.get("message")
    text = said if isinstance(said, str) else ""
    if not isinstance(status, int) or isinstance(status, bool):
        return Result(verdict=Assessment.UNKNOWN, message="it ended without an exit status")
    if len(text.encode(errors="replace")) > MAX_BYTES:
        why = f"its result is longer than {MAX_BYTES} bytes, which no kubelet keeps"
        return Result(verdict=Assessment.UNKNOWN, message=why)
    result = read(status, text)
    if result.checks or result.verdict is Assessment.PASS:
        return result
    reason = ended.get("reason")
    shown = f" ({reason[:64]})" if isinstance(reason, str) and reason else ""
    why = messages.bounded(f"it ended with exit status {status}{shown} and names no check")
    return Result(verdict=Assessment.UNKNOWN, message=why)


SOURCE: Final = "Validation"
"""`source` of a cause that rests on a failed test."""
REASON: Final = "ValidationFailed"
_OPEN: Final = frozenset({"", ValidationState.PLANNED, ValidationState.ASKED})


def under_way(status: QuarantineStatus) -> ValidationAttempt | None:
    """The test that was planned or asked for and has not ended."""
    return next((test for test in reversed(status.validation) if test.state in _OPEN), None)


def latest(status: QuarantineStatus) -> ValidationAttempt | None:
    """The last test, whatever became of it."""
    return status.validation[-1] if status.validation else None


def passed_at(status: QuarantineStatus, boot_id: str) -> float | None:
    """When the last test passed in this boot; None where it did not."""
    last = latest(status)
    if last is None or last.state != ValidationState.PASSED or last.boot_id != boot_id:
        return None
    return timestamps.parse_time(last.ended_at)


def unknown_in_a_row(status: QuarantineStatus) -> int:
    """How many of the last tests could not be run, since something was known or repaired, or the
    node was booted again; a boot in the middle of a test may be its doing and counts for nothing.
    """
    repaired = max(_repaired_at(status), _booted_at(status))
    count = 0
    for test in reversed(status.validation):
        if test.state == ValidationState.WITHDRAWN:
            continue
        if (
            test.state != ValidationState.UNKNOWN
            or (timestamps.parse_time(test.started_at) or 0) < repaired
        ):
            break
        count += 1
    return count


def changed(status: QuarantineStatus, test: ValidationAttempt) -> QuarantineStatus:
    """`status` with the entry of the same Job replaced."""
    tests = tuple(test if one.object == test.object else one for one in status.validation)
    return msgspec.structs.replace(status, validation=tests)


def outdated(status: QuarantineStatus) -> QuarantineStatus:
    """`status` whose passed test counts no more: a cause came back after it."""
    last = latest(status)
    if last is None or last.state != ValidationState.PASSED:
        return status
    return changed(status, msgspec.structs.replace(last, state=ValidationState.OUTDATED))


def failed_cause(session: QuarantineView) -> Cause | None:
    """The cause that the session's last test is, while it holds."""
    last = latest(session.status)
    if last is None or last.state != ValidationState.FAILED:
        return None
    cause = cause_of_test(last.object, last.result, last.message)
    return cause if holds(cause, session) else None


def cause_of_test(job: str, verdict: str, message: str) -> Cause:
    """The cause that the test of this Job is."""
    severity = Severity.DEGRADED if verdict == Assessment.DEGRADED else Severity.FATAL
    return Cause(
        source=SOURCE, incident=job, reason=REASON, severity=str(severity), message=message
    )


def holds(cause: Cause, session: QuarantineView) -> bool:
    """Whether a failed test still stands against the node: until it was repaired or booted again,
    both of which another test follows, or passed one.
    """
    status = session.status
    test = next((one for one in status.validation if one.object == cause.incident), None)
    boot = test.boot_id if test is not None else session.spec.boot_id
    at = (
        timestamps.parse_time(test.ended_at) if test is not None else None
    ) or session.metadata.created_at
    if boot and status.boot_id and boot != status.boot_id:
        return False
    later = (
        timestamps.parse_time(one.ended_at) or 0.0
        for one in status.validation
        if one.state == ValidationState.PASSED
    )
    return _repaired_at(status) <= at and not any(passed > at for passed in later)


def _booted_at(status: QuarantineStatus) -> float:
    """When the last new boot was seen while no test ran; 0.0 where there was none."""
    spans = [
        (timestamps.parse_time(t.started_at) or 0.0, timestamps.parse_time(t.ended_at))
        for t in status.validation
    ]
    boots = (
        timestamps.parse_time(e.at) or 0.0 for e in reversed(status.timeline) if e.step == NEW_BOOT
    )
    return next(
        (at for at in boots if not any(a <= at and (b is None or at <= b) for a, b in spans)),
        0.0,
    )


def _repaired_at(status: QuarantineStatus) -> float:
    """When a repair step was proven last; 0.0 where none was."""
    proven = (a for a in status.repair if a.state == RepairState.PROVEN)
    return max((timestamps.parse_time(attempt.ended_at) or 0.0 for attempt in proven), default=0.0)
