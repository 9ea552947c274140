"""N of M with hysteresis, and flags with one re-read."""

from __future__ import annotations

import msgspec
import pytest

from rules.catalog.thresholds import DEFAULT_RULES, Threshold
from rules.judge.memory import Gauge, Latch

HOT: Threshold = msgspec.structs.replace(
    DEFAULT_RULES["ThermalSlowdown"], value=90, clear=80, count=3, window=5
)


def raised_after(values: list[float], threshold: Threshold = HOT) -> list[bool]:
    gauge, seen = Gauge(), []
    for value in values:
        gauge = gauge.measure(value, threshold)
        seen.append(gauge.raised)
    return seen


@pytest.mark.parametrize(
    ("values", "raised"),
    [
        pytest.param([95, 95], [False, False], id="two are too few"),
        pytest.param([95, 95, 95], [False, False, True], id="three in a row"),
        pytest.param([95, 10, 95, 10, 95], [False] * 4 + [True], id="three of five"),
        pytest.param([95, 10, 10, 95, 10, 10, 95], [False] * 7, id="three of seven"),
        pytest.param([90, 90, 90], [False, False, True], id="the limit itself is bad"),
        pytest.param([95] * 3 + [85] * 9, [False] * 2 + [True] * 10, id="between the sides"),
        pytest.param(
            [95] * 3 + [80] * 3, [False, False, True, True, True, False], id="good again"
        ),
        pytest.param(
            [95] * 3 + [70, 95, 70, 95, 70],
            [False, False] + [True] * 5 + [False],
            id="3 good of 5",
        ),
        pytest.param(
            [95] * 3 + [70] * 3 + [95] * 2, [False] * 2 + [True] * 3 + [False] * 3, id="anew"
        ),
    ],
)
def test_a_gauge(values: list[float], raised: list[bool]) -> None:
    assert raised_after(values) == raised


def test_a_gauge_keeps_no_more_than_its_window() -> None:
    gauge = Gauge()
    for value in range(100):
        gauge = gauge.measure(value, HOT)
    assert max(len(gauge.bad), len(gauge.good)) <= HOT.window


@pytest.mark.parametrize(
    ("readings", "raised"),
    [
        pytest.param([True], [False], id="once is not confirmed"),
        pytest.param([True, True], [False, True], id="the re-read confirms"),
        pytest.param([True, False, True], [False] * 3, id="an odd reading is forgotten"),
        pytest.param([True, True, False, True], [False, True, False, False], id="falls back"),
    ],
)
def test_a_latch(readings: list[bool], raised: list[bool]) -> None:
    latch, seen = Latch(), []
    for bad in readings:
        latch = latch.step(bad=bad)
        seen.append(latch.raised)
    assert seen == raised
