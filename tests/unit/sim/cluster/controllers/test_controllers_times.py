"""Times and durations as they stand on objects and in annotations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hack.sim.cluster.controllers.timestamps import (
    parse_duration_s,
    parse_stamp,
    seconds_since,
    stamp,
    stamp_micro,
)

AT = datetime(2026, 3, 1, 12, 0, 5, 250_000, tzinfo=UTC)


def test_stamps_are_utc_with_a_z() -> None:
    elsewhere = AT.astimezone(timezone(timedelta(hours=9)))
    assert stamp(elsewhere) == stamp(AT) == "2026-03-01T12:00:05Z"
    assert stamp_micro(elsewhere) == "2026-03-01T12:00:05.250000Z"
    assert stamp_micro(AT.replace(microsecond=0)) == "2026-03-01T12:00:05.000000Z"


def test_stamps_are_read_back() -> None:
    assert parse_stamp(stamp_micro(AT)) == AT
    assert seconds_since("2026-03-01T12:00:00Z", AT) == 5.25
    assert seconds_since(None, AT) is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("10s", 10, id="seconds"),
        pytest.param("1m30s", 90, id="minutes and seconds"),
        pytest.param("250ms", 0.25, id="milliseconds"),
        pytest.param("1.5h", 5400, id="fraction"),
    ],
)
def test_durations(text: str, want: float) -> None:
    assert parse_duration_s(text) == want


@pytest.mark.parametrize("text", ["", "10", "s", "10 s", "1m 30s", "-5s"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_s(text)
