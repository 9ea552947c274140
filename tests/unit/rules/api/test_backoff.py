"""Waiting before another try: doubled, bounded, and for as long as it takes."""

from __future__ import annotations

import pytest

from rules.api.timestamps import backoff_s


@pytest.mark.parametrize(
    ("failures", "waits"), [(0, 0.5), (1, 0.5), (2, 1.0), (4, 4.0), (8, 60.0), (5000, 60.0)]
)
def test_a_wait_doubles_and_never_overflows(failures: int, waits: float) -> None:
    """After 1024 failures in a row 2.0 ** failures is no number any more."""
    assert backoff_s(failures, 0.5, 60.0) == waits
