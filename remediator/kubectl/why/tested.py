"""The tests under load that a session had, for `why`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rules.api.nodes import QuarantineView
from rules.api.quarantine import ValidationCheck
from rules.api.timestamps import utc_of


def tested_lines(session: QuarantineView | None, *, wide: bool) -> Iterator[str]:
    """The tests under load before the release: the last one, and what it found wrong."""
    tests = session.status.validation if session is not None else ()
    for test in tests if wide else tests[-1:]:
        said = f": {test.message}" if test.message else ""
        yield (
            f"{utc_of(test.ended_at or test.started_at)} {test.state} by {test.provider}, Job "
            f"{test.object}{said}"
        )
        for check in test.checks:
            if wide or check.verdict != "pass":
                yield f"  {_check(check)}"


def _check(check: ValidationCheck) -> str:
    index = "GPU " if check.gpu.isdecimal() else ""
    gpu = f" on {index}{check.gpu}" if check.gpu else ""
    value = f", {check.value:g} {check.unit}".rstrip() if check.value is not None else ""
    floor = f", at least {check.floor:g}" if check.floor is not None else ""
    note = f"; {check.note}" if check.note else ""
    return f"{check.verdict}: {check.id}{gpu}{value}{floor}{note}"
