"""History: weeks, reasons, repeat offenders."""

import dataclasses

from remediator.view.fleet_view import history_page, weeks
from rules.api.gpu_record import RecordEvent, RecordPlace, RecordStatus, RecordView
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from tests.support.remediator.page_fleet import (
    NOW,
    ago,
    history_html,
    node,
    node_html,
    session,
    state,
)

DAY = 86_400.0


def past(name: str, on: str, *, days: float, **changes: object) -> QuarantineView:
    return session(name, on, "Released", opened_s=days * DAY, **changes)


def test_weeks_begin_on_monday_and_end_with_this_one() -> None:
    # NOW is a Thursday: two days ago is this week, four days ago the one before.
    found = weeks([past("a", "n", days=2), past("b", "n", days=4), past("c", "n", days=400)], NOW)

    assert [week.name for week in found][-2:] == ["2026-02-23", "2026-03-02"]
    assert [week.sessions for week in found] == [0] * 10 + [1, 1]


def test_reasons_and_the_offenders_on_record_with_their_serial() -> None:
    faults = tuple(
        RecordEvent(at=ago(days * DAY), severity="Fatal", reason="<b>Xid79")
        for days in range(1, 6)
    )
    status = RecordStatus(
        uuid="GPU-B-3", serial="S9", events=faults, places=(RecordPlace(node="b"),)
    )
    quiet = RecordStatus(uuid="GPU-quiet", events=faults[:1])
    past_ones = [past(f"b-{i}", "b", days=i, gpus=["GPU-B-3"]) for i in (3, 2)]
    of = state([node("b")], [*past_ones, past("a-1", "a", days=1, reason="RowRemapFailure")])
    records = {
        name: RecordView(metadata=ObjectMeta(name=name), status=each)
        for name, each in (("gpu-b-3", status), ("gpu-quiet", quiet))
    }
    snapshot = dataclasses.replace(of.snapshot, records=records)
    known = dataclasses.replace(of, snapshot=snapshot)

    page = history_page(known)
    (gpu,) = page.offenders
    assert (gpu.name, gpu.serial, gpu.node) == ("GPU-B-3", "S9", "b")
    assert [(one.name, one.sessions) for one in page.reasons] == [
        ("Xid79GPUFallenOffBus", 2),
        ("RowRemapFailure", 1),
    ]
    assert "5 faults in 90 days (&lt;b&gt;Xid79)" in history_html(known)
    # A GPU that no health status shows has its serial number from its record.
    assert "serial S9" in node_html(known, "b")
