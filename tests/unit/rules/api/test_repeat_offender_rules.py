"""Repairs that an operator reported, and the faults that count afterwards."""

import msgspec
import pytest

from rules.api.gpu_record import (
    DAY_S,
    FaultOutcome,
    OperatorAction,
    RecordEvent,
    RecordStatus,
    counted,
    is_repeat_offender,
)
from rules.api.timestamps import format_time

T0 = 1_750_000_000.0


def events(node: str, *days_ago: float) -> tuple[RecordEvent, ...]:
    return tuple(
        RecordEvent(
            at=format_time(T0 - days * DAY_S),
            node=node,
            reason="GPULost",
            severity="Fatal",
            session=f"{node}-{days}",
            steps=("ResetGPU", "RestartNode"),
            ended_at=format_time(T0 - days * DAY_S + 3600),
            outcome=FaultOutcome.RELEASED,
        )
        for days in days_ago
    )


def with_action(kind: str, days_ago: float, *faults: RecordEvent) -> RecordStatus:
    action = OperatorAction(at=format_time(T0 - days_ago * DAY_S), action=kind, reason="reseated")
    return RecordStatus(uuid="GPU-1", events=faults, actions=(action,))


@pytest.mark.parametrize(
    ("kind", "back_after_days", "counts"),
    [
        pytest.param("repaired", None, 0, id="it held"),
        pytest.param("repaired", 2, 5, id="the same fault was back within a week"),
        pytest.param("repaired", 8, 1, id="it was back later, so it had held"),
        pytest.param("keep", 2, 1, id="no reported repair"),
    ],
)
def test_a_reported_repair_holds_until_the_same_fault_returns(
    kind: str, back_after_days: float | None, counts: int
) -> None:
    before = events("b", 24, 22, 21, 20)
    after = events("b", 18 - back_after_days) if back_after_days is not None else ()
    record = with_action(kind, 18, *before, *after)
    assert len(counted(record)) == counts
    assert is_repeat_offender(record, T0) == (counts >= 5)


def test_another_fault_after_a_repair_is_not_that_one() -> None:
    other = msgspec.structs.replace(events("b", 16)[0], reason="Xid95UncontainedMemoryError")
    undone = msgspec.structs.replace(events("b", 15)[0], outcome=FaultOutcome.UNDONE)
    record = with_action("repaired", 18, *events("b", 24, 22), other, undone)
    assert [event.reason for event in counted(record)] == ["Xid95UncontainedMemoryError"]


def test_a_fault_that_flaps_across_the_report_was_not_repaired() -> None:
    flaps = msgspec.structs.replace(
        events("b", 18)[0], times=2, last_at=format_time(T0 - 18 * DAY_S + 900)
    )
    record = with_action("repaired", 18 - 600 / DAY_S, *events("b", 24, 22), flaps)
    assert len(counted(record)) == 3
