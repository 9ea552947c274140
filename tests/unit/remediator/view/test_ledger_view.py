"""What people see of records: lemons first, rates per group, and nothing broken by odd objects."""

from __future__ import annotations

import msgspec

from remediator.kubectl.past.ledger_look import told
from remediator.view.ledger_view import record_rows, stats
from rules.ledger.record import RecordView
from tests.support.remediator.page_fleet import NOW, node, session
from tests.support.remediator.record_objects import LEMON, records

KNOWN = [msgspec.convert(one, RecordView) for one in records()]
NODES = [
    node("gpu-healthy", rack="r1", labels={"gpuward.io/product": "H100",
                                           "gpuward.io/driver": "580.95.05"}),
    node("gpu-blocked", rack="r2", labels={"gpuward.io/product": "A100",
                                           "gpuward.io/driver": "550.1"}),
]  # fmt: skip


def test_lemons_come_first_with_the_score_of_now() -> None:
    first, *others = record_rows(KNOWN, NOW)
    assert (first.uuid, first.lemon, first.faults) == (LEMON, True, 5)
    assert 20 < first.score < 42, "two quiet days count"
    assert "5 faults in 90 days" in first.message
    assert not any(row.lemon for row in others)
    doubtful = [msgspec.structs.replace(one, doubt="odd") for one in KNOWN]
    assert record_rows(doubtful, NOW) == []


def test_rates_by_product_driver_rack_and_reason() -> None:
    undone = session("s1", "gpu-healthy", "Released", mode="Enforce")
    found = stats(KNOWN, NODES, [undone], NOW)
    assert (found.total.faults, found.total.gpu_days, found.days) == (6, 2 * 8 * 90, 90)
    assert found.elsewhere == 1
    assert found.total.low < found.total.rate < found.total.high
    assert [(r.group, r.faults) for r in found.by_product] == [("H100", 5), ("A100", 1)]
    assert [(r.group, r.faults) for r in found.by_rack] == [("r1", 5), ("r2", 1)]
    assert {r.group: r.faults for r in found.by_reason}["Xid79GPUFallenOffBus"] == 5
    assert [(s.what, s.hits, s.of) for s in found.steps] == [("RestartNode", 3, 5)]
    assert (found.undone.hits, found.undone.of) == (0, 1)
    assert found.out.absences == 6


def test_walk_a_young_fleet_has_counts_and_no_rates() -> None:
    """115,317 faults per 1,000 GPU-days is what six minutes give; what is left out is said."""
    found = stats(KNOWN, NODES, [], NOW)
    old = "\n".join(told(found))
    assert " per 1,000 GPU-days" in old
    assert "PER 1,000 GPU-DAYS" in old
    assert "1 fault on nodes that are gone: in no rate" in old
    young = "\n".join(told(msgspec.structs.replace(found, days=0)))
    assert young.startswith("6 faults in less than a day, too short for rates")
    after_a_day = "\n".join(told(msgspec.structs.replace(found, days=1)))
    assert after_a_day.startswith("6 faults in 1,440 GPU-days (at most 1 day), too short")
    assert "1,000" not in young
    assert "no absence has ended yet" in "\n".join(told(stats([], NODES, [], NOW)))


def test_nothing_on_record_is_no_error() -> None:
    found = stats([], [], [], NOW)
    assert (found.total.faults, found.lemons, found.records) == (0, 0, ())


def test_walk_the_faults_of_a_driver_that_was_rolled_back_are_told_of() -> None:
    """No node runs it, so that it has no GPU-days: its faults would be missing without a word."""
    bad = msgspec.json.decode(
        msgspec.json.encode(KNOWN[0].status).replace(b"580.95.05", b"590.44.01"),
        type=type(KNOWN[0].status),
    )
    rolled_back = [msgspec.structs.replace(KNOWN[0], status=bad), *KNOWN[1:]]
    found = stats(rolled_back, NODES, [], NOW)
    (old,) = found.old_groups
    assert old.group == "590.44.01"
    assert old.faults + sum(row.faults for row in found.by_driver) == found.total.faults
    said = f"{old.faults} faults with driver 590.44.01, which no node has now: in no row below"
    assert said in "\n".join(told(found))
    assert stats(KNOWN, NODES, [], NOW).old_groups == ()
