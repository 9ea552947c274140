"""What of an incident is beyond what a person saw when they ended its session: a table."""

from __future__ import annotations

import msgspec
import pytest

from rules.api.health import IncidentStatus
from rules.session.override import RecordedFault, what_is_new

ONE = RecordedFault(id="a", reason="Xid48", severity="Degraded", gpus=("G0",), pci=("p0",))
SAME = {"id": "a", "reason": "Xid48", "severity": "Degraded", "gpus": ("G0",), "pci": ("p0",)}


def now(**changes: object) -> IncidentStatus:
    return msgspec.convert({**SAME, "active": True, **changes}, IncidentStatus, strict=False)


@pytest.mark.parametrize(
    ("recorded", "changes", "what"),
    [
        ({}, {}, ""),
        ({}, {"severity": "Info", "reason": "Other"}, ""),
        ({}, {"severity": "Fatal", "reason": "GPULost"}, "GPULost became Fatal"),
        ({}, {"severity": "Unheard"}, ""),
        ({}, {"gpus": ("G0", "G1"), "pci": ("p0", "p1")}, "Xid48 came to G1"),
        ({}, {"gpus": ("G1",)}, "Xid48 came to G1"),
        ({}, {"gpus": ("G0",), "pci": ("p9",)}, ""),
        ({}, {"gpus": (), "pci": ("p0", "p1")}, "Xid48 came to p1"),
        ({}, {"gpus": (), "pci": ()}, ""),
        ({}, {"id": "b"}, "Xid48 is a new fault"),
        ({"gpus": ()}, {}, ""),
        ({"pci": ()}, {"gpus": ()}, ""),
        ({"gpus": (), "pci": ()}, {"gpus": ("G5",)}, ""),
        ({"severity": ""}, {"severity": "Fatal", "gpus": ("G5",)}, ""),
    ],
)
def test_what_is_beyond_the_record(
    recorded: dict[str, object], changes: dict[str, object], what: str
) -> None:
    then = msgspec.structs.replace(ONE, **recorded)
    assert what_is_new([then], now(**changes)) == what


def test_gpus_of_another_recorded_fault_of_that_reason_are_known() -> None:
    merged = now(gpus=("G0", "G1"), pci=("p0", "p1"))
    other = RecordedFault(id="b", reason="Xid48", severity="Degraded", gpus=("G1",), pci=("p1",))
    assert what_is_new([ONE, other], merged) == ""
    elsewhere = msgspec.structs.replace(other, reason="Xid95")
    assert what_is_new([ONE, elsewhere], merged) == "Xid48 came to G1"
