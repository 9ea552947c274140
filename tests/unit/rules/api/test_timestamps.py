"""Moments as people read them, and how long to wait before another try."""

import pytest

from rules.api.timestamps import backoff_s, utc, utc_of


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
