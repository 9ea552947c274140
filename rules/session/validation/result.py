"""The result of a test under load, and the meaning of the tests recorded in a session.

The first container of the Job writes the result to `/dev/termination-log`. A container that writes
nothing passes with exit status 0. The Job must be the one that gpuward created, with one pod, on
the node to test. Everything else is `unknown`, which is not a pass.
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
    ValidationCheck,
    ValidationState,
)
from rules.catalog.reason import Severity
from rules.session.status import NEW_BOOT
from rules.session.validation import jobs
from rules.session.validation.jobs import JobSeen, JobView

MAX_BYTES: Final = 4096
"""Maximum size of a container's termination log in the kubelet."""
MAX_CHECKS: Final = 4096
_MAX_READ: Final = 1 << 20


class Assessment(StrEnum):
    """The result of a test. Only `pass` allows a release."""

    PASS = "pass"  # noqa: S105 - no password
    UNKNOWN = "unknown"
    """It could not be tested completely."""
    DEGRADED = "degraded"
    """Results are correct, but slower than required or with corrected errors."""
    FAIL = "fail"
    """Wrong data, a hang, a GPU lost or missing."""


_BY_SEVERITY: Final = {assessment: rank for rank, assessment in enumerate(Assessment)}

_BY_STATUS: Final = {
    0: Assessment.PASS,
    1: Assessment.DEGRADED,
    2: Assessment.FAIL,
    3: Assessment.UNKNOWN,
}
"""Assessments by exit status, the same as those of `gpuward-agent check`."""


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement. Null for a missing value or bound."""

    id: str
    gpu: str = ""
    """UUID; empty for the node."""
    assessment: Assessment = msgspec.field(default=Assessment.PASS, name="verdict")
    value: float | None = None
    unit: str = ""
    floor: float | None = None
    """Minimum of the value."""
    ceiling: float | None = None
    """Maximum of the value."""
    note: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of all checks; unknown fields are ignored."""

    assessment: Assessment = msgspec.field(name="verdict")
    message: str = ""
    checks: list[Check] = []


def worst(assessments: Iterable[Assessment]) -> Assessment:
    """Return the most severe one; `unknown` if there is none."""
    return max(assessments, key=_BY_SEVERITY.__getitem__, default=Assessment.UNKNOWN)


def by_severity(checks: Iterable[Check]) -> list[Check]:
    """Return the checks, the most severe first."""
    return sorted(checks, key=lambda check: -_BY_SEVERITY[check.assessment])


def read(exit_status: int, text: str) -> Result:
    """Return the result from a provider's exit status and termination log.

    The more severe of the two counts: status 0 with an unreadable log is unknown. With an empty
    log only the exit status counts, for tools that write none.
    """
    by_status = _BY_STATUS.get(exit_status, Assessment.UNKNOWN)
    message = f"It ended with exit status {exit_status}."
    if not text.strip():
        return Result(assessment=by_status, message=message)
    parsed = _parsed(text)
    if parsed is None:
        assessment = worst((by_status, Assessment.UNKNOWN))
        return Result(
            assessment=assessment, message=f"{message} Its termination log is not valid."
        )
    checks = [check for check in parsed.checks if _finite(check)]
    # A pass needs the exit status, the result and every check to pass.
    assessments = [by_status, parsed.assessment, *(check.assessment for check in checks)]
    if len(checks) < len(parsed.checks):
        assessments.append(Assessment.UNKNOWN)
    return msgspec.structs.replace(
        parsed,
        assessment=worst(assessments),
        message=messages.bounded(parsed.message),
        checks=[_shown(check) for check in checks],
    )


def _parsed(text: str) -> Result | None:
    if len(text) > _MAX_READ:
        return None
    try:
        parsed = msgspec.json.decode(text, type=Result)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return parsed if len(parsed.checks) <= MAX_CHECKS else None


def _finite(check: Check) -> bool:
    """Return whether its numbers are finite and do not contradict a pass."""
    numbers = (check.value, check.floor, check.ceiling)
    if not all(number is None or math.isfinite(number) for number in numbers):
        return False
    if check.assessment is not Assessment.PASS or check.value is None:
        return True
    low = check.floor is not None and check.value < check.floor
    high = check.ceiling is not None and check.value > check.ceiling
    return not (low or high)


def kept_check(check: Check) -> ValidationCheck:
    """Return the check as it is recorded in the session."""
    return ValidationCheck(
        id=check.id[:64],
        gpu=check.gpu[:96],
        result=str(check.assessment),
        value=check.value,
        unit=check.unit[:32],
        floor=check.floor,
        note=messages.shortened(check.note, 256),
    )


def _shown(check: Check) -> Check:
    """Return the check with texts of a bounded length."""
    texts = {
        name: messages.bounded(getattr(check, name)) for name in ("id", "gpu", "unit", "note")
    }
    return msgspec.structs.replace(check, **texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The state of a test. `result` None: it runs, and `clause` describes its progress."""

    result: Result | None = None
    clause: str = ""
    job_uid: str = ""


def is_ours(job: JobView, made_for: str) -> bool:
    """Return whether the Job was created for this session, or this new Node (by UID)."""
    return bool(made_for) and job.metadata.annotations.get(jobs.ANNOTATION_OF) == made_for


def outcome_of(seen: JobSeen, *, node: str, made_for: str, job_uid: str) -> Outcome:
    """Return the state of the Job; `job_uid` is its recorded UID, "" before it is recorded."""
    job = seen.job
    if job is None:
        return _unknown("its Job was deleted")
    if not is_ours(job, made_for):
        return _unknown("a Job of that name does not belong to gpuward")
    if job_uid and job.metadata.uid != job_uid:
        return _unknown("its Job was deleted and another one has its name")
    owners = ((pod, pod.metadata.controller) for pod in seen.pods)
    pods = [
        pod
        for pod, owner in owners
        if owner is not None and owner.kind == "Job" and owner.uid == job.metadata.uid
    ]
    if not pods:
        if job.over:
            return _unknown(f"its Job ended ({job.over}) and its pod is gone")
        return Outcome(clause="its pod does not exist yet", job_uid=job.metadata.uid)
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
        return _unknown(f"its pod ended{how} without a status of its container")
    going = "runs" if pod.status.phase == "Running" else "waits to start"
    return Outcome(clause=f"its pod {going}", job_uid=job.metadata.uid)


def _unknown(why: str) -> Outcome:
    return Outcome(result=Result(assessment=Assessment.UNKNOWN, message=why))


def _ended(pod: PodView) -> Mapping[str, Any] | None:
    """Return the termination state of the first container; others are sidecars."""
    wanted = pod.spec.containers[0].name if pod.spec.containers else ""
    for status in pod.status.container_statuses:
        ended = status.state.terminated
        if status.name == wanted and isinstance(ended, dict):
            return ended
    return None


def _judged(ended: Mapping[str, Any]) -> Result:
    """Return the result of an ended container. A failure needs a failed check: the exit status
    alone does not tell it from a test that could not start.
    """
    status, log = ended.get("exitCode"), ended.get("message")
    text = log if isinstance(log, str) else ""
    if not isinstance(status, int) or isinstance(status, bool):
        return Result(assessment=Assessment.UNKNOWN, message="it ended without an exit status")
    if len(text.encode(errors="replace")) > MAX_BYTES:
        why = f"its result is longer than {MAX_BYTES} bytes, more than a kubelet keeps"
        return Result(assessment=Assessment.UNKNOWN, message=why)
    result = read(status, text)
    if result.checks or result.assessment is Assessment.PASS:
        return result
    reason = ended.get("reason")
    shown = f" ({reason[:64]})" if isinstance(reason, str) and reason else ""
    why = messages.bounded(f"it ended with exit status {status}{shown} and reports no check")
    return Result(assessment=Assessment.UNKNOWN, message=why)


SOURCE: Final = "Validation"
"""`source` of a cause that a failed test opened."""
REASON: Final = "ValidationFailed"
_OPEN: Final = frozenset({"", ValidationState.PLANNED, ValidationState.ASKED})


def under_way(status: QuarantineStatus) -> ValidationAttempt | None:
    """Return the test that was planned or started and has not ended; None without one."""
    return next((test for test in reversed(status.validation) if test.state in _OPEN), None)


def latest(status: QuarantineStatus) -> ValidationAttempt | None:
    """Return the last test in any state; None without one."""
    return status.validation[-1] if status.validation else None


def passed_at(status: QuarantineStatus, boot_id: str) -> float | None:
    """Return when the last test passed in this boot; None if it did not."""
    last = latest(status)
    if last is None or last.state != ValidationState.PASSED or last.boot_id != boot_id:
        return None
    return timestamps.parse_time(last.ended_at)


def is_done(status: QuarantineStatus, boot_id: str, *, in_part: bool) -> bool:
    """Return whether the last test passed in this boot, or was skipped and the drain was still
    `in_part` of the GPUs.
    """
    if passed_at(status, boot_id) is not None:
        return True
    last = latest(status)
    skipped = (ValidationState.SKIPPED, boot_id)
    return in_part and last is not None and (last.state, last.boot_id) == skipped


def unknown_in_a_row(status: QuarantineStatus) -> int:
    """Return how many of the last tests were unknown in a row, since the last repair or reboot.

    A reboot during a test does not count: the test may have caused it.
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
    """Return `status` with the entry of the same Job replaced."""
    tests = tuple(test if one.object == test.object else one for one in status.validation)
    return msgspec.structs.replace(status, validation=tests)


def outdated(status: QuarantineStatus) -> QuarantineStatus:
    """Return `status` with a passed test outdated, because a cause returned after it."""
    last = latest(status)
    if last is None or last.state != ValidationState.PASSED:
        return status
    return changed(status, msgspec.structs.replace(last, state=ValidationState.OUTDATED))


def failed_cause(session: QuarantineView) -> Cause | None:
    """Return the cause of the session's last test if it failed and still counts; else None."""
    last = latest(session.status)
    if last is None or last.state != ValidationState.FAILED:
        return None
    cause = cause_of_test(last.object, last.result, last.message)
    return cause if holds(cause, session) else None


def cause_of_test(job: str, assessment: str, message: str) -> Cause:
    """Return the cause for the failed test of this Job."""
    severity = Severity.DEGRADED if assessment == Assessment.DEGRADED else Severity.FATAL
    return Cause(
        source=SOURCE, incident=job, reason=REASON, severity=str(severity), message=message
    )


def holds(cause: Cause, session: QuarantineView) -> bool:
    """Return whether a failed test still counts: until a repair or a reboot, after which the node
    is tested again, or until a test passed.
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
    """Return when the last reboot was observed while no test ran; 0.0 if there was none."""
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
    """Return when a repair step was last proven; 0.0 if none was."""
    proven = (a for a in status.repair if a.state == RepairState.PROVEN)
    return max((timestamps.parse_time(attempt.ended_at) or 0.0 for attempt in proven), default=0.0)
