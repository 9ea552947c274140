"""The digest of what the agent kept is on record once, whatever the server keeps of a status."""

from __future__ import annotations

import pytest

from rules.api.quarantine import QuarantineStatus, TimelineEntry
from rules.session.repair.evidence import recorded

NOTED = ("Evidence", "kept as GPUEvidence, SHA-256 abc")
MARKED = ("Marked", "taint and cordon put on")


@pytest.mark.parametrize(
    ("timeline", "expected"),
    [
        pytest.param((), "", id="nothing-yet"),
        pytest.param((MARKED, NOTED), "abc", id="only-the-timeline-was-kept"),
        pytest.param((NOTED, MARKED), "", id="of-the-time-before-it-was-taken-up-again"),
        pytest.param((MARKED, ("Evidence", "gone")), "", id="another-word"),
    ],
)
def test_where_a_definition_dropped_the_record_the_timeline_says_it(
    timeline: tuple[tuple[str, str], ...], expected: str
) -> None:
    entries = tuple(
        TimelineEntry(at="2026-03-05T12:00:00Z", step=step, message=message)
        for step, message in timeline
    )
    assert recorded(QuarantineStatus(timeline=entries)) == expected
