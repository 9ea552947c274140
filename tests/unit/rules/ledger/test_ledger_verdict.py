"""A part is a lemon to a session only by what happened on the session's own node."""

from __future__ import annotations

import pytest

from rules.api.timestamps import format_time
from rules.ledger.record import FaultOutcome, RecordEvent, RecordStatus
from rules.ledger.score import DAY_S
from rules.ledger.verdict import judge_record, lessons_of

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


def test_issue14_what_another_node_says_makes_no_lemon_here() -> None:
    told = (*events("b", 9), *events("evil", 5, 4, 3, 2, 1))
    record = RecordStatus(uuid="GPU-victim", events=told, lemon=True)
    assert judge_record(record, T0).lemon
    found = lessons_of([record], "b", T0)
    assert (found.lemons, found.failed) == ((), frozenset())
    assert lessons_of([record], "evil", T0).lemons == ("GPU-victim",)


@pytest.mark.parametrize("later", [0, 30])
def test_issue14_a_lemon_of_the_node_stays_one_until_it_was_quiet(later: int) -> None:
    record = RecordStatus(uuid="GPU-1", events=events("b", 9, 7, 5, 3, 1), lemon=True)
    found = lessons_of([record], "b", T0 + later * DAY_S)
    assert found.lemons == ("GPU-1",)
    assert "ResetGPU" in found.failed
