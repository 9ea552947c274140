"""Moments as people read them, and how long to wait before another try."""

import pytest

from rules.api.timestamps import backoff_s, utc, utc_of, with_ages


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("since 2023-11-14 21:43 UTC: x", "for 30m: x", id="since"),
        pytest.param("closed at 2023-11-14 21:43:20 UTC", "closed 30m ago", id="at"),
        pytest.param("2023-11-14 22:13:00 UTC Draining", "20s ago Draining", id="alone"),
        pytest.param("paused until 2023-11-15 00:13 UTC", "paused for the next 119m", id="until"),
        pytest.param("until 2023-11-14 21:43 UTC", "until 2023-11-14 21:43 UTC", id="over"),
        pytest.param("2023-99-14 21:43 UTC", "2023-99-14 21:43 UTC", id="no date"),
    ],
)
def test_absolute_times_become_ages(text: str, expected: str) -> None:
    assert with_ages(text, 1_700_000_000.0) == expected
