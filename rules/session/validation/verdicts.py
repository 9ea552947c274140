"""What the tests of a session say together: which one runs, which one holds, what failed.

Read from the session alone; `rules.session.causes` asks here whether a failed test is still a
reason to keep the node, `rules.session.validation.phase` what is left to do.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.api.nodes import QuarantineView
from rules.api.quarantine import (
    Cause,
    QuarantineStatus,
    RepairState,
    ValidationAttempt,
    ValidationState,
)
from rules.api.timestamps import parse_time
from rules.catalog.reason import Severity
from rules.session.status import NEW_BOOT
from rules.session.validation.result import Verdict

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
    return parse_time(last.ended_at)


def unknown_in_a_row(status: QuarantineStatus) -> int:
    """How many of the last tests could not be run, since something was known or repaired, or the
    node was booted anew; a boot in the middle of a test may be its doing and counts for nothing.
    """
    repaired = max(_repaired_at(status), _booted_at(status))
    count = 0
    for test in reversed(status.validation):
        if test.state == ValidationState.WITHDRAWN:
            continue
        if test.state != ValidationState.UNKNOWN or (parse_time(test.started_at) or 0) < repaired:
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
    mild = last.verdict == Verdict.DEGRADED
    cause = Cause(
        source=SOURCE,
        incident=last.object,
        reason=REASON,
        severity=str(Severity.DEGRADED if mild else Severity.FATAL),
        message=last.message,
    )
    return cause if holds(cause, session) else None


def holds(cause: Cause, session: QuarantineView) -> bool:
    """Whether a failed test still stands against the node: until it was repaired or booted anew,
    both of which another test follows, or passed one.
    """
    status = session.status
    test = next((one for one in status.validation if one.object == cause.incident), None)
    boot = test.boot_id if test is not None else session.spec.boot_id
    at = (parse_time(test.ended_at) if test is not None else None) or session.metadata.created_at
    if boot and status.boot_id and boot != status.boot_id:
        return False
    later = (
        parse_time(one.ended_at) or 0.0
        for one in status.validation
        if one.state == ValidationState.PASSED
    )
    return _repaired_at(status) <= at and not any(passed > at for passed in later)


def _booted_at(status: QuarantineStatus) -> float:
    """When the last new boot was seen while no test ran; 0.0 where there was none."""
    spans = [(parse_time(t.started_at) or 0.0, parse_time(t.ended_at)) for t in status.validation]
    boots = (parse_time(e.at) or 0.0 for e in reversed(status.timeline) if e.step == NEW_BOOT)
    return next(
        (at for at in boots if not any(a <= at and (b is None or at <= b) for a, b in spans)),
        0.0,
    )


def _repaired_at(status: QuarantineStatus) -> float:
    """When a repair step was proven last; 0.0 where none was."""
    proven = (a for a in status.repair if a.state == RepairState.PROVEN)
    return max((parse_time(attempt.ended_at) or 0.0 for attempt in proven), default=0.0)
