"""Gauges (N of M with hysteresis) and latches (flags with a second read)."""

import pytest
from msgspec.structs import replace

from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.memory import Gauge, Latch

HOT = replace(DEFAULT_RULES["ThermalSlowdown"], count=3, window=5)


@pytest.mark.parametrize(
    ("readings", "raised"),
    [
        pytest.param("bbb-ggg", "..RRRR.", id="good again"),
        pytest.param("bbbgbgbg", "..RRRRR.", id="three good of five"),
        pytest.param("bbbgggbb", "..RRR...", id="counted again once it is good"),
        pytest.param("bbb------", "..RRRRRRR", id="between the sides"),
    ],
)
def test_a_gauge(readings: str, raised: str) -> None:
    gauge, seen = Gauge(), ""
    for reading in readings:
        gauge = gauge.step(bad=reading == "b", good=reading == "g", threshold=HOT)
        seen += "R" if gauge.raised else "."
        assert max(len(gauge.bad), len(gauge.good)) <= HOT.window
    assert seen == raised


@pytest.mark.parametrize(
    ("readings", "raised"), [("b", "."), ("bb", ".R"), ("bgb", "..."), ("bbgb", ".R..")]
)
def test_a_latch(readings: str, raised: str) -> None:
    latch, seen = Latch(), ""
    for reading in readings:
        latch = latch.step(bad=reading == "b")
        seen += "R" if latch.raised else "."
    assert seen == raised
