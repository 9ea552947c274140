"""The agent reads its own object back: whoever wrote into it, the next publication is written."""

from __future__ import annotations

import msgspec
import pytest

from rules.api.health import IncidentStatus
from rules.judge import wire

NOW = 1_790_000_000.0


@pytest.mark.parametrize("field", ["firstSeen", "lastSeen", "closedAt"])
@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "10000-01-01T00:00:00Z"]
)
def test_a_time_nobody_can_compute_with_is_published_as_now(field: str, time: str) -> None:
    row = {"id": "i", "reason": "Xid79GPUFallenOffBus", field: time}
    incident = wire.from_wire(msgspec.convert(row, IncidentStatus), NOW)
    published = wire.to_wire(incident)
    assert all(at.startswith("20") for at in (published.first_seen, published.last_seen))
