"""A node's past on one axis: everything once, in order, as values and as a table."""

import msgspec
import pytest

from remediator.view.node_view import SHOWN_ITEMS, node_timeline
from rules.api.health import HealthStatus, IncidentStatus
from rules.api.quarantine import Cause, TimelineEntry
from rules.api.timestamps import format_time
from tests.support.remediator.page_fleet import NOW, ago, health_of, node, node_of, session, state

NODE = "gpu-healthy"


def test_the_timeline_has_who_approved_each_step_and_why() -> None:
    there = session("n-1", NODE)
    first, second = ago(300), ago(60)
    entries = (
        TimelineEntry(
            at=first, step="LetGo", subject="ResetGPU", message="vendor: on site", by="ann"
        ),
        TimelineEntry(at=second, step="LetGo", subject="RestartNode", by="person"),
    )
    there = msgspec.structs.replace(
        there, status=msgspec.structs.replace(there.status, timeline=entries)
    )
    items = node_timeline([there], None, NOW)
    assert [(i.at, i.what, i.by, i.text) for i in items if i.timeline == "person"] == [
        (first, "ResetGPU approved", "ann", "vendor: on site"),
        (second, "RestartNode approved", "an operator", ""),
    ]


def test_later_requests_have_the_time_of_the_request() -> None:
    fault = Cause(source="Detector", reason="Xid79GPUFallenOffBus")
    there = session("n-1", NODE)
    opened, now = there.metadata.creation_timestamp, format_time(NOW)
    for at, when in (
        (ago(10), ago(10)),
        ("2099-12-31T23:59:59Z", now),
        ("1971-01-01T00:00:00Z", opened),
    ):
        ben = Cause(source="Human", by="ben", message="fan noise", at=at)
        spec = msgspec.structs.replace(there.spec, causes=(fault, ben))
        items = node_timeline([msgspec.structs.replace(there, spec=spec)], None, NOW)
        output = [(i.at, i.what, i.by) for i in items if i.timeline == "person"]
        assert output == [(when, "quarantine asked for", "ben")]


@pytest.mark.parametrize("at", ["", "yesterday", "2026-13-45T99:00:00Z", "9999999999999999"])
def test_a_time_that_is_none_breaks_nothing(at: str) -> None:
    incidents = (IncidentStatus(id="i", reason="X", first_seen=at, closed_at=at, active=True),)
    found = node_timeline([], HealthStatus(incidents=incidents), NOW)
    assert found == []


def test_the_latest_items_are_shown_with_a_note_on_the_rest() -> None:
    incidents = tuple(
        IncidentStatus(id=str(n), reason=f"R{n}", first_seen=ago(5000 - n), closed_at=ago(4000))
        for n in range(SHOWN_ITEMS + 7)
    )
    page = node_of(state([node("n")], (), [health_of("n", incidents=incidents)]), "n")
    assert (len(page.timeline), page.earlier) == (SHOWN_ITEMS, 7)
    assert page.timeline[-1].what == f"R{SHOWN_ITEMS + 6}"
