"""History: weeks, reasons, time to drain, repeat offenders."""

from __future__ import annotations

import dataclasses
import re

import pytest

from remediator.page.answers import NotThereError, api_history, document_of, nodes_to_read
from remediator.page.markup import render
from remediator.view.history_view import drain_seconds, drain_times, weeks
from rules.api.metadata import ObjectMeta
from rules.api.nodes import QuarantineView
from rules.api.quarantine import Condition
from rules.ledger.record import RecordStatus, RecordView
from tests.support.remediator.page_fleet import NOW, node, session, state, verdict

DAY = 86_400.0


def past(name: str, on: str, *, days: float, **changes: object) -> QuarantineView:
    return session(name, on, "Released", opened_s=days * DAY, **changes)


def test_weeks_begin_on_monday_and_end_with_this_one() -> None:
    # NOW is a Thursday: two days ago is this week, four days ago the one before.
    found = weeks([past("a", "n", days=2), past("b", "n", days=4), past("c", "n", days=400)], NOW)

    assert [week.start for week in found][-2:] == ["2026-02-23", "2026-03-02"]
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
    assert sum(count for _, count in times.buckets) == len(took)


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        pytest.param(10.0, "10 s", id="end of a bucket"),
        pytest.param(11.0, "30 s", id="past it"),
        pytest.param(7 * 3600.0, "longer", id="past the last"),
    ],
)
def test_a_drain_counts_in_one_bucket(seconds: float, bucket: str) -> None:
    times = drain_times([past("s", "n", days=1, took_s=seconds)])

    assert [words for words, count in times.buckets if count] == [bucket]


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(session("s", "n"), id="still draining"),
        pytest.param(session("s", "n", took_s=5.0, drain=None), id="no drain"),
        pytest.param(session("s", "n", took_s=-5.0), id="ends before it began"),
    ],
)
def test_what_is_no_finished_drain(of: QuarantineView) -> None:
    assert drain_seconds(of) is None


def test_repeat_offenders_by_node_and_by_gpu_wherever_it_was_plugged() -> None:
    found = api_history(
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

    assert [(one.node, one.sessions, one.replace) for one in found.nodes] == [("b", 2, True)]
    (gpu,) = found.gpus
    assert (gpu.gpu.uuid, gpu.gpu.serial, gpu.nodes, gpu.sessions) == (
        "GPU-b-3", "S3", ("a", "b"), 2,
    )  # fmt: skip
    assert [(one.reason, one.sessions) for one in found.reasons] == [
        ("Xid79GPUFallenOffBus", 3),
        ("RowRemapFailure", 1),
    ]
    assert (found.sessions, found.ended) == (4, 3)


def test_plots_say_their_numbers_in_words() -> None:
    of = state((), [past(f"s{i}", f"n{i}", days=1, took_s=20) for i in range(3)])
    page = render(document_of(of, "/history", {}))

    assert "Quarantines opened per week (from Monday, UTC). 03-02: 3" in page
    assert "Time to drain (drains that took up to). 30 s: 3" in page
    assert "Top reasons. Xid79GPUFallenOffBus: 3" in page


def test_without_history_the_page_says_so() -> None:
    page = render(document_of(state(), "/history", {}))

    for sentence in (
        "No drain has finished yet.",
        "No node has been in quarantine twice.",
        "No GPU was named by two sessions.",
        "No session has ended yet.",
    ):
        assert sentence in page


def test_the_serial_of_a_gpu_that_no_verdict_shows_comes_from_its_record() -> None:
    past_ones = [past(f"b-{i}", "b", days=i, gpus=["GPU-B-3"]) for i in (3, 2)]
    of = state([node("b")], past_ones)
    record = RecordView(
        metadata=ObjectMeta(name="gpu-b-3"), status=RecordStatus(uuid="GPU-B-3", serial="S9")
    )
    snapshot = dataclasses.replace(of.snapshot, records={"gpu-b-3": record})
    known = dataclasses.replace(of, snapshot=snapshot)

    (gpu,) = api_history(known).gpus
    assert gpu.gpu.serial == "S9"
    assert "S9" in render(document_of(known, "/history", {}))
    assert "serial S9" in render(document_of(known, "/sessions/b-3", {}))
    assert nodes_to_read(known, "/history") == []


def test_the_serial_of_a_gpu_on_a_healthy_node_comes_from_a_read() -> None:
    of = state([node("b")], [past(f"b-{i}", "b", days=i, gpus=["GPU-b-3"]) for i in (3, 2)])

    assert nodes_to_read(of, "/history") == nodes_to_read(of, "/api/history") == ["b"]
    (gpu,) = api_history(dataclasses.replace(of, read={"b": verdict("b")})).gpus
    assert gpu.gpu.serial == "S3"


def test_words_under_bars_do_not_touch_on_a_phone() -> None:
    page = render(document_of(state((), [past("s", "n", days=1, took_s=20)]), "/history", {}))
    weeks = re.findall(r">(\d\d-\d\d)<", page)
    assert 3 <= len(weeks) <= 6
    assert "<h1>History</h1>" in page


def test_a_node_that_is_gone_leads_to_what_is_kept_of_it() -> None:
    of = state((), [past("s-1", "n", days=1, took_s=20)])
    page = render(document_of(of, "/nodes/n", {}))
    assert "no such GPU node any more" in page
    assert 'href="/sessions/s-1"' in page
    with pytest.raises(NotThereError):
        document_of(of, "/nodes/never", {})
