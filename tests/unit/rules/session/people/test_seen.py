"""What of an incident a person who saw it then had not seen: a table."""

from __future__ import annotations

import msgspec
import pytest

from rules.api.health import IncidentStatus
from rules.session.people.seen import SeenFault, beyond

ONE = SeenFault(id="a", reason="Xid48", severity="Degraded", gpus=("G0",), pci=("p0",))
SAME = {"id": "a", "reason": "Xid48", "severity": "Degraded", "gpus": ("G0",), "pci": ("p0",)}


def now(**changes: object) -> IncidentStatus:
    return msgspec.convert({**SAME, "active": True, **changes}, IncidentStatus, strict=False)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, ""),
        ({"severity": "Info", "reason": "Other"}, ""),
        ({"severity": "Fatal"}, "Xid48 became Fatal"),
        ({"severity": "Fatal", "reason": "GPULost"}, "GPULost became Fatal"),
        ({"severity": "Unheard"}, ""),
        ({"reason": "GPULost"}, "Xid48 became GPULost"),
        ({"gpus": ("G0", "G1"), "pci": ("p0", "p1")}, "Xid48 came to G1"),
        ({"gpus": ("G1",), "pci": ("p1",)}, "Xid48 came to G1"),
        ({"gpus": ("G0", "G1")}, "Xid48 came to G1"),
        ({"gpus": ("G0",), "pci": ("p9",)}, ""),
        ({"gpus": ("G0",), "pci": ()}, ""),
        ({"gpus": (), "pci": ("p0",)}, ""),
        ({"gpus": (), "pci": ("p0", "p1")}, "Xid48 came to p1"),
        ({"gpus": (), "pci": ()}, ""),
        ({"id": "b"}, "Xid48 is a new fault"),
    ],
)
def test_beyond_what_was_seen(changes: dict[str, object], what: str) -> None:
    assert beyond([ONE], now(**changes)) == what


@pytest.mark.parametrize(
    ("seen", "changes", "what"),
    [
        pytest.param({"gpus": ()}, {}, "", id="its-uuid-was-learnt-later"),
        pytest.param({"pci": ()}, {}, "", id="its-address-was-learnt-later"),
        pytest.param({"pci": ()}, {"gpus": ()}, "", id="by-the-other-name-alone"),
        pytest.param(
            {"pci": ()}, {"gpus": (), "pci": ("p0", "p1")}, "Xid48 came to p0, p1", id="and-more"
        ),
        pytest.param({"gpus": (), "pci": ()}, {"gpus": ("G5",)}, "", id="it-named-none-then"),
        pytest.param({"reason": ""}, {"severity": "Fatal"}, "", id="known-by-its-id-alone"),
    ],
)
def test_a_part_has_two_names(
    seen: dict[str, object], changes: dict[str, object], what: str
) -> None:
    then = msgspec.structs.replace(ONE, **seen)
    assert beyond([then], now(**changes)) == what


def test_what_was_seen_of_two_counts_for_the_one_they_became() -> None:
    other = SeenFault(id="b", reason="Xid48", severity="Fatal", gpus=("G1",), pci=("p1",))
    merged = {"severity": "Fatal", "gpus": ("G0", "G1"), "pci": ("p0", "p1")}
    assert beyond([ONE, other], now(**merged)) == ""
    assert beyond([ONE, other], now(severity="Fatal")) == "Xid48 became Fatal", "not that GPU"
    whole = msgspec.structs.replace(other, gpus=(), pci=())
    assert beyond([ONE, whole], now(gpus=("G0", "G1"))) == "Xid48 came to G1"
    elsewhere = msgspec.structs.replace(other, reason="Xid95")
    assert beyond([ONE, elsewhere], now(**merged)) == "Xid48 became Fatal"
