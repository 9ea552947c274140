"""The record comes to rest, stays small, and forgets nothing that it may keep."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from rules.api.metadata import ObjectMeta
from rules.api.object_name import is_object_name
from rules.api.timestamps import format_time
from rules.ledger.record import (
    MAX_EVENTS,
    FaultOutcome,
    RecordStatus,
    RecordView,
    RecordWord,
    gpu_record_name,
    node_record_name,
    record_patch,
)
from rules.ledger.score import DAY_S
from rules.ledger.update import (
    RecordedFault,
    RecordIdentity,
    outlived_record,
    updated,
    worth_writing,
)

T0 = 1_750_000_000.0
WHO = RecordIdentity(uuid="GPU-1", serial="S", product="H100", node="n1", slot="0000:01:00.0",
               driver="580.82", rules="1")  # fmt: skip


def fault(at: float, reason: str = "Xid79", **more: object) -> RecordedFault:
    base = RecordedFault(at=format_time(at), reason=reason, severity="Fatal", node="n1")
    return replace(base, **more)  # type: ignore[arg-type]


def mended(
    at: float, hours: float, session: str, *steps: str, reason: str = "Xid79"
) -> RecordedFault:
    end = format_time(at + hours * 3600)
    return fault(
        at, reason, session=session, steps=steps, ended_at=end, outcome=FaultOutcome.RELEASED
    )


def record(*faults: RecordedFault, now: float, before: RecordStatus | None = None) -> RecordStatus:
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
    assert once.counters.came_back == 5


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
    assert (status.lemon, status.score) == (False, 0), "what is only reported makes no lemon"


def test_64_events_are_kept_and_the_dropped_ones_stay_dropped() -> None:
    faults = [mended(T0 + n * DAY_S / 2, 1, f"s{n}") for n in range(80)]
    now = T0 + 41 * DAY_S
    status = record(*faults, now=now)
    assert len(status.events) == MAX_EVENTS
    assert status.counters.faults == 80
    assert record(*faults, now=now, before=status) == status
    assert len(msgspec.json.encode(record_patch(status))) < 24_000


def test_new_rules_count_only_fatal_faults_of_before() -> None:
    soft = [
        replace(mended(T0 + n * DAY_S, 2, f"s{n}", reason="NVLinkDown"), severity="Degraded")
        for n in range(6)
    ]
    now = T0 + 7 * DAY_S
    status = record(*soft, now=now)
    assert status.lemon
    again = updated(status, replace(WHO, rules="2"), soft, (), now + 60)
    assert again is not None
    assert (again.lemon, again.baseline_at) == (False, format_time(now + 60))
    hard = record(*(mended(T0 + n * DAY_S, 2, f"s{n}") for n in range(6)), now=now)
    after = updated(hard, replace(WHO, driver="590.1"), (), (), now + 60)
    assert after is not None
    assert after.lemon


def test_what_a_session_told_outlives_the_session() -> None:
    told = mended(T0, 2, "s1", "ResetGPU")
    status = record(told, now=T0 + DAY_S)
    bare = fault(T0, outcome=FaultOutcome.CLOSED, ended_at=format_time(T0 + 5000))
    assert record(bare, now=T0 + 2 * DAY_S, before=status).events == status.events


def test_a_word_about_the_time_before_the_first_fault_says_nothing() -> None:
    early = RecordWord(at=format_time(T0 - 60), word="repaired")
    status = updated(None, WHO, [fault(T0)], [early], T0 + 60)
    assert status is not None
    assert status.said == ()


@pytest.mark.parametrize(
    "at", ["", "yesterday", format_time(T0 + 9 * DAY_S), "2020-01-01T00:00:00Z"]
)
def test_a_time_that_is_none_or_not_near_is_left_out(at: str) -> None:
    closed = RecordedFault(at=at, reason="Xid79", severity="Fatal", outcome=FaultOutcome.CLOSED)
    assert updated(None, WHO, [closed], (), T0) is None


@pytest.mark.parametrize("uuid", ["GPU-9f", "gpu-9f", "GPU-é", "x" * 300, "a/b", "..", "-"])
def test_every_uuid_has_a_name_that_an_object_can_have(uuid: str) -> None:
    assert is_object_name(gpu_record_name(uuid))
    assert gpu_record_name("GPU-9f") == "gpu-9f"
    assert is_object_name(node_record_name("n" * 253))
    assert node_record_name("n" * 253) != node_record_name("n" * 252)


@pytest.mark.parametrize(
    ("days", "lemon"),
    [
        pytest.param((0, 1, 2, 3), False, id="four in a week are one bad repair"),
        pytest.param((0, 5, 10, 15, 20), True, id="five in four weeks"),
        pytest.param((0, 12, 25, 60), True, id="four over two months"),
        pytest.param((0, 12, 25, 40), False, id="four in six weeks"),
        pytest.param((0, 45, 90), False, id="three over three months"),
        pytest.param((0, 30, 31, 32, 33), False, id="five in five weeks"),
        pytest.param((0, 35, 70, 105), False, id="four in more than 90 days"),
    ],
)
def test_what_makes_a_lemon(days: tuple[int, ...], lemon: bool) -> None:
    faults = [mended(T0 + day * DAY_S, 2, f"s{day}") for day in days]
    assert record(*faults, now=T0 + days[-1] * DAY_S + 7200).lemon is lemon


def test_what_one_session_finds_at_once_is_one_fault() -> None:
    reasons = ("Xid79", "GPULost", "RecoveryActionRestartNode", "NVLinkDown", "Xid154")
    faults = [mended(T0 + n, 2, "s", reason=reason) for n, reason in enumerate(reasons)]
    status = record(*faults, now=T0 + DAY_S)
    assert (len(status.events), status.lemon) == (5, False)


def test_two_nodes_that_claim_one_gpu_do_not_take_turns() -> None:
    status = record(fault(T0), now=T0)
    writes = 0
    for minute in range(1, 50):
        other = replace(WHO, node="n2" if minute % 2 else "n1")
        after = updated(status, other, [fault(T0)], (), T0 + 60 * minute)
        assert after is not None
        writes += worth_writing(status, after)
        status = after
    assert writes == 0
    assert status.node == "n1"


def test_no_fault_ends_later_than_now() -> None:
    """An end in 2150 would keep the record for ever; the same word again changes nothing."""
    told = fault(T0, ended_at="2150-01-01T00:00:00Z", outcome=FaultOutcome.CLOSED)
    first = record(told, now=T0 + 60)
    assert first.events[0].ended_at == format_time(T0 + 60)
    again = record(told, now=T0 + 600, before=first)
    assert again.events == first.events
    view = RecordView(metadata=ObjectMeta(name="r"), status=again)
    assert outlived_record(view, T0 + 91 * DAY_S)
    true = replace(told, ended_at=format_time(T0 + 90))
    assert record(true, now=T0 + 600, before=again).events[0].ended_at == format_time(T0 + 90)
