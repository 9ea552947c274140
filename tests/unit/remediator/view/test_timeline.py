"""A node's past on one axis: everything once, in order, as values and as a table."""

from __future__ import annotations

import msgspec
import pytest

from remediator.view.node_view import SHOWN_ITEMS, lasted, node_timeline
from remediator.view.shapes import TimelineItem
from remediator.view.state import PageState
from rules.api.health import HealthStatus, IncidentStatus
from rules.api.nodes import QuarantineView
from rules.api.quarantine import (
    Cause,
    ReleaseRequest,
    RepairAttempt,
    TimelineEntry,
    ValidationAttempt,
)
from rules.api.timestamps import format_time, parse_time
from tests.support.remediator.page_fleet import (
    NOW,
    ago,
    node,
    node_of,
    session,
    sick,
    state,
    verdict,
)

NODE = "gpu-healthy"
DAY = 86_400.0


def steps(*told: tuple[float, str, str]) -> tuple[TimelineEntry, ...]:
    return tuple(
        TimelineEntry(at=ago(at), step=step, message=f"{step} then", by=by)
        for at, step, by in told
    )


def repaired() -> QuarantineView:
    """A reset that failed, a restart, a test, released."""
    began = 3 * DAY
    return session(
        "gpu-healthy-1", NODE, "Released", opened_s=began,
        phase_since=ago(began - 4000),
        timeline=steps(
            (began, "Pending", "gpuward"), (began, "Marked", "gpuward"),
            (began, "Draining", "gpuward"), (began - 300, "Quarantined", "gpuward"),
            (began - 310, "Repairing", "gpuward"), (began - 310, "RepairAsked", "gpuward"),
            (began - 2400, "NewBoot", "gpuward"), (began - 2500, "Validating", "gpuward"),
            (began - 4000, "Released", "gpuward"),
        ),
        repair=(
            RepairAttempt(step="ResetGPU", adapter="Job", asked_at=ago(began - 310),
                          ended_at=ago(began - 1210), state="Failed", proof="no reset was seen"),
            RepairAttempt(step="RestartNode", adapter="Job", asked_at=ago(began - 1215),
                          ended_at=ago(began - 2480), state="Proven", proof="new boot, Ready"),
        ),
        validation=(
            ValidationAttempt(object="t-1", provider="Builtin", started_at=ago(began - 2500),
                              ended_at=ago(began - 3300), state="Passed", verdict="pass",
                              message="12 checks"),
        ),
    )  # fmt: skip


def by_hand() -> QuarantineView:
    """A person took it out and gave it back."""
    asked = session(
        "gpu-healthy-by-hand", NODE, "Released", opened_s=9 * DAY, phase_since=ago(8.8 * DAY),
        evidence={},
        timeline=steps((9 * DAY, "Marked", "gpuward"), (8.8 * DAY, "Released", "person")),
    )  # fmt: skip
    spec = msgspec.structs.replace(
        asked.spec,
        causes=(Cause(source="Human", reason="Requested", by="ann", message="fire drill"),),
        release=ReleaseRequest(by="ben", reason="drill is over"),
    )
    return msgspec.structs.replace(asked, spec=spec)


def goes_on() -> QuarantineView:
    return session(
        "gpu-healthy-2", NODE, "Draining", opened_s=900,
        timeline=steps((900, "Pending", "gpuward"), (890, "Draining", "gpuward")),
    )  # fmt: skip


def eventful() -> PageState:
    """The fleet around it."""
    incidents = (
        IncidentStatus(
            id="i-1", reason="Xid79GPUFallenOffBus", severity="Fatal", level="Drain", active=True,
            first_seen=ago(905), gpus=(f"GPU-{NODE}-3",), pci=("0000:61:00",),
        ),
        IncidentStatus(
            id="i-0", reason="Xid95UncontainedMemoryError", severity="Fatal", level="Drain",
            first_seen=ago(3 * DAY), closed_at=ago(3 * DAY - 2450), closed_by="Reboot(GPU reset)",
        ),
    )  # fmt: skip
    return state(
        [sick(NODE, rack="r1"), node("gpu-blocked", rack="r2")],
        [repaired(), by_hand(), goes_on()],
        [verdict(NODE, incidents=incidents)],
    )


def timeline() -> tuple[TimelineItem, ...]:
    return node_of(eventful(), NODE).timeline


def of(lane: str) -> list[TimelineItem]:
    return [item for item in timeline() if item.lane == lane]


def test_everything_is_told_once_and_in_order() -> None:
    times = [int(parse_time(item.at) or 0) for item in timeline()]
    assert times == sorted(times)
    faults = [(item.what, item.at) for item in of("fault")]
    assert len(set(faults)) == len(faults)
    assert ("Xid95UncontainedMemoryError", ago(3 * DAY)) in faults
    assert not [item for item in timeline() if item.what.startswith("RepairAsked")]


def test_repairs_tests_and_people_stand_in_their_lanes() -> None:
    assert [(i.what, i.state, lasted(i)) for i in of("repair")] == [
        ("ResetGPU", "Failed", "15m"), ("RestartNode", "Proven", "21m"),
    ]  # fmt: skip
    assert [(i.what, i.state) for i in of("test")] == [("test under load by Builtin", "pass")]
    assert [(i.what, i.by, i.said) for i in of("person")] == [
        ("quarantine asked for", "ann", "fire drill"), ("given back", "ben", "drill is over"),
    ]  # fmt: skip
    assert [i.what for i in of("node")] == ["NewBoot"]


def test_who_let_each_step_go_and_why_stands_in_the_lane_of_people() -> None:
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
    assert [(i.at, i.what, i.by, i.said) for i in items if i.lane == "person"] == [
        (first, "ResetGPU let go", "ann", "vendor: on site"),
        (second, "RestartNode let go", "a person", ""),
    ]


def test_who_asked_later_is_dated_by_when_they_said_it_within_the_session() -> None:
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
        said = [(i.at, i.what, i.by) for i in items if i.lane == "person"]
        assert said == [(when, "quarantine asked for", "ben")]


def test_phases_follow_each_other_and_the_last_one_goes_on() -> None:
    phases = [i for i in of("session") if i.session == "gpu-healthy-2"]
    assert [(i.what, lasted(i)) for i in phases] == [("Pending", "10s"), ("Draining", "goes on")]
    ended = [i for i in of("session") if i.session == "gpu-healthy-1"][-1]
    assert (ended.what, lasted(ended)) == ("Released", "")


@pytest.mark.parametrize("at", ["", "yesterday", "2026-13-45T99:00:00Z", "9999999999999999"])
def test_a_time_that_is_none_breaks_nothing(at: str) -> None:
    incidents = (IncidentStatus(id="i", reason="X", first_seen=at, closed_at=at, active=True),)
    found = node_timeline([], HealthStatus(incidents=incidents), NOW)
    assert found == []


def test_of_too_many_the_latest_are_kept_and_that_is_said() -> None:
    incidents = tuple(
        IncidentStatus(id=str(n), reason=f"R{n}", first_seen=ago(5000 - n), closed_at=ago(4000))
        for n in range(SHOWN_ITEMS + 7)
    )
    page = node_of(state([node("n")], (), [verdict("n", incidents=incidents)]), "n")
    assert (len(page.timeline), page.earlier) == (SHOWN_ITEMS, 7)
    assert page.timeline[-1].what == f"R{SHOWN_ITEMS + 6}"
