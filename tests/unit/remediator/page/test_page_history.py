"""History: weeks, reasons, time to drain, repeat offenders."""

from __future__ import annotations

import dataclasses

import pytest

from remediator.view.fleet_view import drain_times, history_page, weeks
from rules.api.gpu_record import RecordStatus, RecordView
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Condition
from tests.support.remediator.page_fleet import (
    NOW,
    history_html,
    node,
    node_html,
    session,
    state,
    verdict,
)

DAY = 86_400.0


def past(name: str, on: str, *, days: float, **changes: object) -> QuarantineView:
    return session(name, on, "Released", opened_s=days * DAY, **changes)


def test_weeks_begin_on_monday_and_end_with_this_one() -> None:
    # NOW is a Thursday: two days ago is this week, four days ago the one before.
    found = weeks([past("a", "n", days=2), past("b", "n", days=4), past("c", "n", days=400)], NOW)

    assert [week.name for week in found][-2:] == ["2026-02-23", "2026-03-02"]
    assert [week.sessions for week in found] == [0] * 10 + [1, 1]


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        pytest.param([], (0, 0, 0, 0), id="none"),
        pytest.param([7.0], (1, 7, 7, 7), id="one"),
        pytest.param([1.0, 2.0, 3.0, 4.0], (4, 2, 4, 4), id="even"),
        pytest.param([float(i) for i in range(1, 101)], (100, 50, 90, 100), id="hundred"),
    ],
)
def test_how_long_drains_took(took: list[float], expected: tuple[int, ...]) -> None:
    times = drain_times([past(f"s{i}", "n", days=1, took_s=s) for i, s in enumerate(took)])

    assert (
        times.drains, times.median_seconds, times.p90_seconds, times.longest_seconds
    ) == expected  # fmt: skip


def test_repeat_offenders_by_node_and_by_gpu_wherever_it_was_plugged() -> None:
    found = history_page(
        state(
            [node("a"), node("b")],
            [
                past("a-1", "a", days=9, gpus=["GPU-b-3"]),
                past("b-1", "b", days=5, gpus=["GPU-b-3"], reason="RowRemapFailure"),
                session("b-2", "b", gpus=["GPU-x"], conditions=(Condition(type="Replace"),)),
                past("c-1", "c", days=2, gpus=["GPU-y"]),
            ],
            [verdict("b")],
        )
    )

    assert [(one.name, one.sessions, one.replace) for one in found.nodes] == [("b", 2, True)]
    (gpu,) = found.gpus
    assert (gpu.name, gpu.serial, gpu.nodes, gpu.sessions) == (
        "GPU-b-3", "S3", ("a", "b"), 2,
    )  # fmt: skip
    assert [(one.name, one.sessions) for one in found.reasons] == [
        ("Xid79GPUFallenOffBus", 3),
        ("RowRemapFailure", 1),
    ]
    assert (found.sessions, found.ended) == (4, 3)


def test_the_serial_of_a_gpu_that_no_verdict_shows_comes_from_its_record() -> None:
    past_ones = [past(f"b-{i}", "b", days=i, gpus=["GPU-B-3"]) for i in (3, 2)]
    of = state([node("b")], past_ones)
    record = RecordView(
        metadata=ObjectMeta(name="gpu-b-3"), status=RecordStatus(uuid="GPU-B-3", serial="S9")
    )
    snapshot = dataclasses.replace(of.snapshot, records={"gpu-b-3": record})
    known = dataclasses.replace(of, snapshot=snapshot)

    (gpu,) = history_page(known).gpus
    assert gpu.serial == "S9"
    assert "S9" in history_html(known)
    assert "serial S9" in node_html(known, "b")
