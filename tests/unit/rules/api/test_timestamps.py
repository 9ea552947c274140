"""Moments as people read them, and how long to wait before another try."""

import pytest

from rules.api.timestamps import TimeFormat, backoff_s, utc, utc_of


def test_one_spelling_with_the_day_because_a_case_outlives_it() -> None:
    assert utc(1_769_860_800.9) == "2026-01-31 12:00 UTC"
    assert utc(1_769_860_800.9, seconds=True) == "2026-01-31 12:00:00 UTC"
    assert utc_of("2026-01-31T13:00:59.5+01:00") == "2026-01-31 12:00 UTC"
    assert utc_of("soon") == "soon"
    assert utc_of("") == ""


@pytest.mark.parametrize(
    ("failures", "waits"), [(0, 0.5), (1, 0.5), (2, 1.0), (4, 4.0), (8, 60.0), (5000, 60.0)]
)
def test_a_wait_doubles_and_never_overflows(failures: int, waits: float) -> None:
    """After 1024 failures in a row 2.0 ** failures is no number any more."""
    assert backoff_s(failures, 0.5, 60.0) == waits


NOW = 1_700_000_000.0


def test_times_are_relative_or_absolute() -> None:
    relative, absolute = TimeFormat(NOW), TimeFormat(NOW, absolute=True)
    assert relative.ago(NOW - 1800) == "30m ago"
    assert relative.ago(NOW + 60) == "0s ago", "another clock may be ahead"
    assert relative.since("2023-11-14T21:43:20Z") == "for 30m"
    assert relative.until(NOW + 7140) == "for another 119m"
    assert absolute.ago(NOW) == "2023-11-14 22:13:20 UTC"
    assert absolute.since(NOW) == "since 2023-11-14 22:13:20 UTC"
    assert absolute.until(NOW) == "until 2023-11-14 22:13:20 UTC"
    assert relative.ago("soon") == absolute.ago("soon") == "soon"
    assert relative.since("") == "since <none>"
