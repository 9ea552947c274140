"""The chance of a return follows the published shares, and quiet days take it away."""

from __future__ import annotations

import pytest

from rules.ledger.score import (
    AFTER_FAULTS,
    AFTER_REPAIR,
    AVERAGE,
    DAY_S,
    INDEPENDENT,
    Evidence,
    chance_of_return,
    is_memory,
)


def chance(faults: int, *, repair_days: float | None = None, quiet_days: float = 0.0,
           memory: bool = False) -> float:  # fmt: skip
    repair_s = None if repair_days is None else repair_days * DAY_S
    return chance_of_return(
        Evidence(faults=faults, repair_s=repair_s, quiet_s=quiet_days * DAY_S, memory=memory)
    )


@pytest.mark.parametrize(("faults", "share"), list(enumerate(AFTER_FAULTS, start=1)))
def test_after_so_many_faults_it_is_the_share_of_the_trace(faults: int, share: float) -> None:
    assert chance(faults) == pytest.approx(share)
    assert chance(60) == pytest.approx(AFTER_FAULTS[-1])


def test_without_a_fault_there_is_nothing() -> None:
    assert chance(0) == 0.0


def test_the_longer_the_repair_the_better_it_holds() -> None:
    shares = [chance(2, repair_days=days) for days in (0.01, 0.1, 0.5, 3, 30)]
    assert shares == sorted(shares, reverse=True)
    average = next(share for upper, share in AFTER_REPAIR if share < AVERAGE)
    assert average < AVERAGE
    assert chance(2, repair_days=0.01) > AFTER_FAULTS[1] > chance(2, repair_days=30)


def test_quiet_days_take_it_down_to_what_chance_brings() -> None:
    shares = [chance(5, quiet_days=days) for days in range(0, 60, 3)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(INDEPENDENT, abs=0.002)


def test_a_remap_holds_in_59_percent() -> None:
    assert chance(1, memory=True) > chance(1, memory=False)
    assert chance(1, repair_days=30, memory=True) > 0.33


@pytest.mark.parametrize(
    ("reason", "memory"),
    [
        ("RowRemapFailure", True),
        ("Xid48DoubleBitEcc", True),
        ("Xid63", True),
        ("Xid630Unknown", False),
        ("Xid79GPUFallenOffBus", False),
        ("", False),
    ],
)
def test_which_reasons_are_of_memory(reason: str, memory: bool) -> None:
    assert is_memory(reason) is memory
