"""What one node's verdict may say of GPUs, and how many records it may open."""

from __future__ import annotations

from msgspec.structs import replace

from rules.api.gpu_record import RecordView, gpu_record_name
from rules.api.health import ExpectedGpus, GpuStatus, HealthStatus, IncidentStatus
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import HealthView, QuarantineView
from rules.api.quarantine import Cause, QuarantineSpec, QuarantineStatus
from rules.api.timestamps import format_time
from rules.fleet.record_changes import (
    MOST_RECORDS_OF_NODE,
    RecordChange,
    record_changes,
    room_for_records,
)

T0 = 1_750_000_000.0
VICTIM = "GPU-victim"
EIGHT = ExpectedGpus(count=8, source="Annotation")


def verdict(node: str, uuid: str = VICTIM, at: float = T0, *, lists: bool) -> HealthView:
    incident = IncidentStatus(
        id=f"{node}-{at}", reason="GPULost", severity="Fatal", gpus=(uuid,), active=True,
        first_seen=format_time(at),
    )  # fmt: skip
    gpus = (GpuStatus(uuid=uuid),) if lists else ()
    status = HealthStatus(gpus=gpus, incidents=(incident,))
    return HealthView(metadata=TimedMeta(name=node), status=status)


def changes(
    node: str, health: HealthView, records: dict[str, RecordView], at: float
) -> tuple[RecordChange, ...]:
    return record_changes(node, None, health, [], records, at)


def stored(change: RecordChange) -> dict[str, RecordView]:
    meta = ObjectMeta(name=change.name, resource_version="1")
    return {change.name: RecordView(metadata=meta, status=change.status)}


def test_a_node_accuses_no_gpu_that_is_elsewhere() -> None:
    (opened,) = changes("b", verdict("b", lists=True), {}, T0)
    records = stored(opened)
    later = T0 + 7200
    assert not changes("evil", verdict("evil", at=later, lists=False), records, later)
    (again,) = changes("b", verdict("b", at=later, lists=False), records, later)
    assert [e.node for e in again.status.events] == ["b", "b"], "a lost GPU may be listed no more"


def test_walk3_a_node_opens_no_record_of_a_gpu_that_its_verdict_does_not_list() -> None:
    assert not changes("evil", verdict("evil", lists=False), {}, T0)
    (opened,) = changes("evil", verdict("evil", lists=True), {}, T0)
    assert opened.status.node == "evil", "the fault stands under the name of whoever claims it"


def test_a_gpu_that_no_boot_brought_back_gets_its_record_from_a_node_that_lacks_one() -> None:
    said = verdict("b", lists=False)
    short = replace(said.status, gpus=(GpuStatus(uuid="GPU-other"),), expected_gpus=EIGHT)
    (opened,) = changes("b", replace(said, status=short), {}, T0)
    assert opened.name == gpu_record_name(VICTIM)
    full = tuple(GpuStatus(uuid=f"GPU-{index}") for index in range(EIGHT.count))
    whole = replace(said.status, gpus=full, expected_gpus=EIGHT)
    assert not changes("b", replace(said, status=whole), {}, T0)


def test_a_fault_is_told_to_its_end_when_the_gpu_has_moved() -> None:
    (opened,) = changes("b", verdict("b", lists=True), {}, T0)
    (moved,) = changes("c", verdict("c", at=T0 + 7200, lists=True), stored(opened), T0 + 7200)
    assert moved.status.node == "c"
    (told,) = changes("b", verdict("b", at=T0 + 9000, lists=False), stored(moved), T0 + 9000)
    assert told.name == gpu_record_name(VICTIM)


def test_a_node_opens_so_many_records_and_no_more() -> None:
    records: dict[str, RecordView] = {}
    for index in range(MOST_RECORDS_OF_NODE):
        health = verdict("evil", f"GPU-{index}", lists=True)
        records |= stored(changes("evil", health, records, T0)[0])
    assert room_for_records("evil", records.values()) == 0
    assert room_for_records("b", records.values()) == MOST_RECORDS_OF_NODE
    # Another node that names one of them gives the first no room: two could else take turns.
    health = verdict("b", "GPU-0", T0 + 7200, lists=True)
    records |= stored(changes("b", health, records, T0 + 7200)[0])
    assert room_for_records("evil", records.values()) == 0


def swapped(node: str) -> QuarantineView:
    """A session of that node for a fault of the victim."""
    kept = {"id": "i", "reason": "GPULost", "severity": "Fatal", "firstSeen": format_time(T0 + 60)}
    evidence = {"gpus": [VICTIM], "incidents": [{**kept, "gpus": [VICTIM]}]}
    return QuarantineView(
        metadata=ObjectMeta(name=f"{node}-s", uid=f"{node}-s"),
        spec=QuarantineSpec(node_name=node, causes=(Cause(source="Detector", incident="i"),)),
        status=QuarantineStatus(phase="Quarantined", evidence=evidence),
    )


def test_a_gpu_that_was_replaced_before_anybody_wrote_its_record_has_one_all_the_same() -> None:
    full = HealthStatus(gpus=(GpuStatus(uuid="GPU-new"),), expected_gpus=ExpectedGpus(count=1))
    gone = HealthView(metadata=TimedMeta(name="b"), status=full)
    session = swapped("b")
    assert not record_changes("b", None, gone, [session], {}, T0 + 7200), "it may be anybody's"
    evidence = {**session.status.evidence, "inventory": [{"uuid": VICTIM}]}
    known = replace(session, status=replace(session.status, evidence=evidence))
    (opened,) = record_changes("b", None, gone, [known], {}, T0 + 7200)
    assert opened.name == gpu_record_name(VICTIM)
