"""Rates and shares with their intervals, compared with published values."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rules.api.timestamps import format_time
from rules.ledger.rates import (
    by_successors,
    count_interval,
    held,
    hours_out,
    quantile,
    rates,
    share_of,
)
from rules.ledger.record import FaultOutcome, RecordEvent, RecordReplaced, RecordStatus
from rules.ledger.score import DAY_S

NOW = 1_750_000_000.0


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Exact Poisson limits, 95 % (Ulm 1990).
    [(0, 0.0, 3.69), (1, 0.025, 5.57), (5, 1.62, 11.67), (10, 4.80, 18.39), (100, 81.36, 121.63)],
)
def test_the_interval_of_a_count(count: int, low: float, high: float) -> None:
    found = count_interval(count)
    assert found[0] == pytest.approx(low, abs=0.03)
    assert found[1] == pytest.approx(high, rel=0.03)


def test_the_interval_of_a_share() -> None:
    found = share_of("x", 8, 10)
    assert (round(found.low, 2), found.share, round(found.high, 2)) == (0.49, 0.8, 0.94)
    nothing = share_of("x", 0, 0)
    assert (nothing.low, nothing.high) == (0.0, 1.0)


def test_rates_are_per_1000_gpu_days_and_the_worst_comes_first() -> None:
    found = rates({"a": 2, "b": 9}, {"a": 1000.0, "b": 1000.0, "none": 0.0})
    assert [(one.group, one.rate) for one in found] == [("b", 9.0), ("a", 2.0)]
    assert all(one.low < one.rate < one.high for one in found)


def event(*steps: str, days_ago: float, back_days: float | None = None) -> RecordEvent:
    began, ended = NOW - days_ago * DAY_S, NOW - days_ago * DAY_S + 7200
    return RecordEvent(
        at=format_time(began),
        session=f"s-{days_ago}",
        steps=steps,
        ended_at=format_time(ended),
        outcome=FaultOutcome.RELEASED,
        came_back_after=None if back_days is None else int(back_days * DAY_S),
    )


def test_a_step_held_when_a_week_went_by() -> None:
    events = [
        event("ResetGPU", "RestartNode", days_ago=30),
        event("RestartNode", days_ago=20, back_days=2),
        event("RestartNode", days_ago=3),
        event(days_ago=40, back_days=1),
    ]
    shares = {one.what: (one.hits, one.of) for one in held(events, NOW)}
    assert shares == {"ResetGPU": (0, 1), "RestartNode": (1, 2)}


def test_hours_out_count_each_session_once() -> None:
    same = event(days_ago=3)
    out = hours_out([same, same, event(days_ago=9)])
    assert out == (2.0, 2.0)
    assert (quantile(out, 0.5), quantile((), 0.5)) == (2.0, 0.0)


@pytest.mark.parametrize(
    ("new_fails_after_days", "hits"),
    [pytest.param(3.0, 0, id="the new one failed, too"), pytest.param(None, 1, id="it did not")],
)
def test_of_a_replaced_gpu_the_one_that_came_tells_whether_it_held(
    new_fails_after_days: float | None, hits: int
) -> None:
    fault = replace(event("ResetGPU", "GPUReplaced", days_ago=20), node="n")
    out = RecordReplaced(at=fault.ended_at, node="n", uuid="GPU-new", session=fault.session)
    old = RecordStatus(uuid="GPU-old", events=(fault,), replaced=out)
    failures: tuple[RecordEvent, ...] = ()
    if new_fails_after_days is not None:
        failures = (replace(event(days_ago=20 - new_fails_after_days), node="n"),)
    elsewhere = replace(event(days_ago=18), node="other")
    new = RecordStatus(uuid="GPU-new", events=(elsewhere, *failures))
    told = by_successors([(old, fault)], [old, new])
    reset, swap = held(told, NOW)
    assert (reset.what, reset.hits, reset.of) == ("ResetGPU", 0, 1)
    assert (swap.what, swap.hits, swap.of) == ("GPUReplaced", hits, 1)
