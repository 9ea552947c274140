"""What a node may say of GPUs, and their record: it comes to rest and stays small."""

import dataclasses
import random

import msgspec
import pytest
from msgspec.structs import replace

from rules.api.gpu_record import (
    DAY_S,
    MAX_EVENTS,
    FaultOutcome,
    OperatorAction,
    RecordEvent,
    RecordStatus,
    RecordView,
    gpu_record_name,
    is_repeat_offender,
    node_record_name,
    record_patch,
)
from rules.api.health import ExpectedGpus, GpuStatus, HealthStatus, IncidentStatus
from rules.api.metadata import ObjectMeta, TimedMeta
from rules.api.nodes import HealthView, QuarantineView
from rules.api.object_name import is_object_name
from rules.api.quarantine import Cause, QuarantineSpec, QuarantineStatus
from rules.api.timestamps import format_time
from rules.fleet.record_changes import (
    MOST_RECORDS_OF_NODE,
    RecordChange,
    record_changes,
    room_for_records,
)
from rules.fleet.record_update import RecordIdentity, outlived_record, updated

T0 = 1_750_000_000.0
WHO = RecordIdentity(uuid="GPU-1", serial="S", product="H100", node="n1", slot="0000:01:00.0",
               driver="580.82")  # fmt: skip


def fault(at: float, reason: str = "Xid79", **more: object) -> RecordEvent:
    base = RecordEvent(at=format_time(at), reason=reason, severity="Fatal", node="n1")
    return replace(base, **more)


def mended(
    at: float, hours: float, session: str, *steps: str, reason: str = "Xid79"
) -> RecordEvent:
    end = format_time(at + hours * 3600)
    return fault(
        at, reason, session=session, steps=steps, ended_at=end, outcome=FaultOutcome.RELEASED
    )


def record(*faults: RecordEvent, now: float, before: RecordStatus | None = None) -> RecordStatus:
    found = updated(before, WHO, faults, (), now)
    assert found is not None
    return found


def test_nothing_happened_nothing_is_recorded() -> None:
    assert updated(None, WHO, (), (), T0) is None


def test_the_same_again_in_any_order_changes_nothing() -> None:
    faults = [mended(T0 + n * DAY_S, 2, f"s{n}", "RestartNode") for n in range(6)]
    now = T0 + 7 * DAY_S
    once = record(*faults, now=now)
    shuffled = random.Random(1).sample(faults, len(faults))
    assert record(*shuffled, now=now) == once
    assert record(*shuffled, now=now, before=once) == once
    assert once.counters.faults == 6
    assert sum(event.came_back_after is not None for event in once.events) == 5


def test_a_flapping_fault_is_one_event() -> None:
    now, status = T0, None
    for n in range(30):
        at = T0 + n * 600
        closed = format_time(at + 60)
        one = fault(at, "ThermalSlowdown", severity="Degraded", outcome=FaultOutcome.CLOSED,
                    ended_at=closed)  # fmt: skip
        now = at + 90
        status = record(one, now=now, before=status)
    assert status is not None
    (event,) = status.events
    assert event.times == 30
    assert "no counted fault in 90 days" in status.message, "it was only reported"


def test_64_events_are_kept_and_the_dropped_ones_stay_dropped() -> None:
    faults = [mended(T0 + n * DAY_S / 2, 1, f"s{n}") for n in range(80)]
    now = T0 + 41 * DAY_S
    status = record(*faults, now=now)
    assert len(status.events) == MAX_EVENTS
    assert status.counters.faults == 80
    assert record(*faults, now=now, before=status) == status
    assert len(msgspec.json.encode(record_patch(status))) < 24_000


def test_the_outcome_of_a_session_outlives_the_session() -> None:
    found = mended(T0, 2, "s1", "ResetGPU")
    status = record(found, now=T0 + DAY_S)
    bare = fault(T0, outcome=FaultOutcome.CLOSED, ended_at=format_time(T0 + 5000))
    assert record(bare, now=T0 + 2 * DAY_S, before=status).events == status.events


def test_a_repair_before_the_first_fault_is_not_recorded() -> None:
    early = OperatorAction(at=format_time(T0 - 60), action="repaired")
    status = updated(None, WHO, [fault(T0)], [early], T0 + 60)
    assert status is not None
    assert status.actions == ()


@pytest.mark.parametrize(
    "at", ["", "yesterday", format_time(T0 + 9 * DAY_S), "2020-01-01T00:00:00Z"]
)
def test_a_time_that_is_none_or_not_near_is_left_out(at: str) -> None:
    closed = RecordEvent(at=at, reason="Xid79", severity="Fatal", outcome=FaultOutcome.CLOSED)
    assert updated(None, WHO, [closed], (), T0) is None


@pytest.mark.parametrize("uuid", ["GPU-9f", "gpu-9f", "GPU-é", "x" * 300, "a/b", "..", "-"])
def test_every_uuid_has_a_name_that_an_object_can_have(uuid: str) -> None:
    assert is_object_name(gpu_record_name(uuid))
    assert gpu_record_name("GPU-9f") == "gpu-9f"
    assert is_object_name(node_record_name("n" * 253))
    assert node_record_name("n" * 253) != node_record_name("n" * 252)


@pytest.mark.parametrize(
    ("days", "repeats"),
    [
        pytest.param((0, 1, 2, 3), False, id="four in a week are one bad repair"),
        pytest.param((0, 5, 10, 15, 20), True, id="five in three weeks"),
        pytest.param((0, 20, 40, 60, 80), True, id="five in 80 days"),
        pytest.param((0, 25, 50, 75, 100), False, id="five in more than 90 days"),
    ],
)
def test_five_faults_in_90_days_make_a_repeat_offender(
    days: tuple[int, ...], repeats: bool
) -> None:
    faults = [mended(T0 + day * DAY_S, 2, f"s{day}") for day in days]
    now = T0 + days[-1] * DAY_S + 7200
    found = record(*faults, now=now)
    assert is_repeat_offender(found, now) is repeats
    assert ("repeat offender: 5 faults in 90 days (Xid79)" in found.message) is repeats
    assert not is_repeat_offender(found, T0 + 91 * DAY_S), "the first has left the window"


def test_what_one_session_finds_at_once_is_one_fault() -> None:
    reasons = ("Xid79", "GPULost", "RecoveryActionRestartNode", "NVLinkDown", "Xid154")
    faults = [mended(T0 + n, 2, "s", reason=reason) for n, reason in enumerate(reasons)]
    status = record(*faults, now=T0 + DAY_S)
    assert len(status.events) == 5
    assert "1 fault in 90 days" in status.message


def test_two_nodes_that_claim_one_gpu_do_not_take_turns() -> None:
    status = record(fault(T0), now=T0)
    writes = 0
    for minute in range(1, 50):
        other = dataclasses.replace(WHO, node="n2" if minute % 2 else "n1")
        after = updated(status, other, [fault(T0)], (), T0 + 60 * minute)
        assert after is not None
        writes += after != status
        status = after
    assert writes == 0
    assert status.node == "n1"


def test_no_fault_ends_later_than_now() -> None:
    """An end in 2150 would keep the record for ever; the same value again changes nothing."""
    found = fault(T0, ended_at="2150-01-01T00:00:00Z", outcome=FaultOutcome.CLOSED)
    first = record(found, now=T0 + 60)
    assert first.events[0].ended_at == format_time(T0 + 60)
    again = record(found, now=T0 + 600, before=first)
    assert again.events == first.events
    view = RecordView(metadata=ObjectMeta(name="r"), status=again)
    assert outlived_record(view, T0 + 91 * DAY_S)
    true = replace(found, ended_at=format_time(T0 + 90))
    assert record(true, now=T0 + 600, before=again).events[0].ended_at == format_time(T0 + 90)


def test_a_record_of_an_earlier_release_is_read_and_goes_on() -> None:
    """It has fields that this release does not know, and an action that is not used any more."""
    at = format_time(T0)
    body = {
        "metadata": {"name": "gpu-1", "resourceVersion": "1"},
        "status": {
            "uuid": "GPU-1", "score": 42, "lemon": True, "lemonSince": at, "rulesVersion": "1",
            "baselineAt": at, "counters": {"faults": 5, "fatal": 5, "cameBack": 4},
            "events": [{"at": at, "reason": "Xid79", "severity": "Fatal", "outcome": "Closed"}],
            "said": [{"at": format_time(T0 + 60), "word": "keep", "reason": "passed 48 h"}],
        },
    }  # fmt: skip
    view = msgspec.json.decode(msgspec.json.encode(body), type=RecordView)
    assert not view.doubt
    assert view.status.counters.faults == 5
    status = record(fault(T0 + DAY_S), now=T0 + DAY_S, before=view.status)
    assert "1 fault in 90 days" in status.message, "faults before the repair do not count"


VICTIM = "GPU-victim"
EIGHT = ExpectedGpus(count=8, source="Annotation")


def health_of(node: str, uuid: str = VICTIM, at: float = T0, *, lists: bool) -> HealthView:
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
    (opened,) = changes("b", health_of("b", lists=True), {}, T0)
    records = stored(opened)
    later = T0 + 7200
    assert not changes("evil", health_of("evil", at=later, lists=False), records, later)
    (again,) = changes("b", health_of("b", at=later, lists=False), records, later)
    assert [e.node for e in again.status.events] == ["b", "b"], "a lost GPU may be listed no more"


def test_a_node_opens_no_record_of_a_gpu_that_its_status_does_not_list() -> None:
    assert not changes("evil", health_of("evil", lists=False), {}, T0)
    (opened,) = changes("evil", health_of("evil", lists=True), {}, T0)
    assert opened.status.node == "evil", "the record has the node that reports it"


def test_a_gpu_that_no_boot_brought_back_gets_its_record_from_a_node_that_lacks_one() -> None:
    view = health_of("b", lists=False)
    short = replace(view.status, gpus=(GpuStatus(uuid="GPU-other"),), expected_gpus=EIGHT)
    (opened,) = changes("b", replace(view, status=short), {}, T0)
    assert opened.name == gpu_record_name(VICTIM)
    full = tuple(GpuStatus(uuid=f"GPU-{index}") for index in range(EIGHT.count))
    complete = replace(view.status, gpus=full, expected_gpus=EIGHT)
    assert not changes("b", replace(view, status=complete), {}, T0)


def test_the_end_of_a_fault_is_recorded_after_the_gpu_moved() -> None:
    (opened,) = changes("b", health_of("b", lists=True), {}, T0)
    (moved,) = changes("c", health_of("c", at=T0 + 7200, lists=True), stored(opened), T0 + 7200)
    assert moved.status.node == "c"
    (found,) = changes("b", health_of("b", at=T0 + 9000, lists=False), stored(moved), T0 + 9000)
    assert found.name == gpu_record_name(VICTIM)


def test_a_node_opens_so_many_records_and_no_more() -> None:
    records: dict[str, RecordView] = {}
    for index in range(MOST_RECORDS_OF_NODE):
        health = health_of("evil", f"GPU-{index}", lists=True)
        records |= stored(changes("evil", health, records, T0)[0])
    assert room_for_records("evil", records.values()) == 0
    assert room_for_records("b", records.values()) == MOST_RECORDS_OF_NODE
    # Another node that names one of them gives the first no room: two could else take turns.
    health = health_of("b", "GPU-0", T0 + 7200, lists=True)
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
