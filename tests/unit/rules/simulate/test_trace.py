"""A recorded trace is read as it is, and measured by hand-made numbers."""

from __future__ import annotations

import json

import pytest

from rules.simulate.truth.measures import measure
from rules.simulate.truth.outage import Outage
from rules.simulate.truth.trace import TraceError, read_trace


def event(
    node: str, at: float, kind: str, klass: str = "GPU", desc: str = ""
) -> dict[str, object]:
    return {
        "node_id": node,
        "event_time": at,
        "event_type": kind,
        "fault_type": {"Level": "Hardware Failure", "Class": klass, "Desc": desc},
    }


def test_starts_and_ends_are_paired_by_node_class_and_description() -> None:
    events = [
        event("b", 4.0, "fault_end", desc="lost"),
        event("b", 2.0, "fault_start", desc="lost"),
        event("b", 3.0, "fault_start", desc="hot"),
        event("b", 3.0, "fault_end", desc="hot"),
        event("a", 5.0, "fault_start", "Fan"),
        event("a", 9.0, "fault_start"),
        event("a", 9.5, "fault_end"),
    ]

    assert [
        (o.node, o.klass, o.start, o.end) for o in read_trace(json.dumps(events).encode())
    ] == [
        ("b", "GPU", 2.0, 4.0),
        ("b", "GPU", 3.0, 3.0),
        ("a", "Fan", 5.0, 9.5),  # never ended: it ends with the trace
        ("a", "GPU", 9.0, 9.5),
    ]


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'[{"node_id": 3}]', b"\xff\xfe", b"[1]"])
def test_what_is_no_trace_is_said_in_a_sentence(text: bytes) -> None:
    with pytest.raises(TraceError, match="name another file"):
        read_trace(text)


def test_the_measures_of_a_small_fleet() -> None:
    """Two nodes are out together for a day; one of them fails again within the week."""
    stays = [("a", 0.0, 2.0), ("b", 1.0, 2.0), ("a", 5.0, 6.0)]
    found = measure([Outage(node=n, klass="GPU", start=s, end=e) for n, s, e in stays], 20, 20.0)

    assert found.rates["GPU"] == 3 / 0.4
    assert (found.hours_p10, found.hours_p50, found.hours_p90) == (24.0, 24.0, 48.0)
    assert (found.down_p50, found.down_max) == (0.0, 2.0)
    assert found.top_share == pytest.approx(2 / 3)
    assert found.recurrence == pytest.approx(1 / 3)
