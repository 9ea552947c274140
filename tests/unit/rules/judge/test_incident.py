"""Identity, evidence and the published form of an incident."""

import msgspec
import pytest
from msgspec.structs import replace

from rules.api.health import IncidentStatus
from rules.catalog.reasons import REASONS
from rules.catalog.xid import reason_for_xid
from rules.judge.incident import (
    Finding,
    GpuId,
    capped,
    clipped,
    closed,
    incident_id,
    opened,
)
from rules.judge.wire import from_wire, to_wire

NOW = 1_700_000_000.123456
FINDING = Finding(
    at=NOW,
    row=reason_for_xid(79),
    gpu_id=GpuId("GPU-1", "0000:10:00"),
    xid=79,
    source="kernel-log",
    evidence="a line",
    sequence=42,
)


def test_the_id_is_stable_and_differs_between_faults() -> None:
    one = incident_id(FINDING, "boot-1")
    assert one == incident_id(FINDING, "boot-1")
    others = {
        incident_id(replace(FINDING, gpu_id=GpuId("GPU-2", "0000:10:00")), "boot-1"),
        incident_id(replace(FINDING, row=REASONS["GPULost"]), "boot-1"),
        incident_id(FINDING, "boot-2"),
        incident_id(replace(FINDING, sequence=43), "boot-1"),
        incident_id(replace(FINDING, sequence=None), "boot-1"),
        incident_id(replace(FINDING, sequence=None, at=NOW + 1e-5), "boot-1"),
    }
    assert len(others | {one}) == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\nb\x1b[1m\0", "a\\x0ab\\x1b[1m\\x00"),
        ("\u202eright to left", "\\u202eright to left"),
        ("é", "é"),
        ("x" * 600, "x" * 512),
        ("é" * 400, "é" * 256),
    ],
)
def test_evidence_is_escaped_and_cut(text: str, expected: str) -> None:
    assert clipped(text) == expected


def test_unknown_values_of_another_agent_version_are_read_as_the_mildest() -> None:
    status = IncidentStatus(
        id="x", reason="Not a code", klass="Magic", severity="Apocalyptic", active=True
    )
    incident = from_wire(status, NOW)
    assert (incident.row.severity, incident.row.level) == ("Info", "Report")
    assert incident.row.reason == "Unreadable"


def test_a_time_in_the_future_is_not_believed() -> None:
    wire = replace(to_wire(opened(FINDING, "b", NOW)), first_seen="2999-01-01T00:00:00Z")
    assert from_wire(wire, NOW).first_seen == NOW


def test_when_there_are_too_many_the_oldest_closed_go() -> None:
    many = [
        closed(replace(opened(FINDING, "b", NOW), id=f"closed-{n:03}"), NOW + n, "x")
        for n in range(80)
    ]
    severe = replace(opened(FINDING, "b", NOW), id="severe")
    kept, gone = capped((*many, severe))
    assert (len(kept), gone) == (64, 17)
    assert kept[0].id == "severe"
    assert kept[-1].id == "closed-017"


@pytest.mark.parametrize("field", ["firstSeen", "lastSeen", "closedAt"])
@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "10000-01-01T00:00:00Z"]
)
def test_an_invalid_time_is_published_as_now(field: str, time: str) -> None:
    row = {"id": "i", "reason": "Xid79GPUFallenOffBus", field: time}
    incident = from_wire(msgspec.convert(row, IncidentStatus), NOW)
    published = to_wire(incident)
    assert all(at.startswith("20") for at in (published.first_seen, published.last_seen))
