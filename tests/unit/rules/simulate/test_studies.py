"""Lemons, foresight and the ledger on simulated fleets and nodes (issue 14)."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from rules.api.quarantine import Mode
from rules.policy.policy import Policy
from rules.simulate.studies import foresight
from rules.simulate.studies.foresight import foresee, stay_sound
from rules.simulate.studies.ledger import ledger_size
from rules.simulate.studies.lemons import (
    called_by_plain_rule,
    lemon_score,
    play_lemons,
)
from rules.simulate.truth.precursors import PRECURSORS, Precursor

ENFORCE = msgspec.structs.replace(Policy(), mode=Mode.ENFORCE)


# ---------------------------------------------------------------------- lemons


@pytest.mark.parametrize(
    ("nodes", "days", "share", "seeds"),
    [
        pytest.param(16, 120.0, 0.125, (3,), id="small"),
        pytest.param(1000, 365.0, 0.01, (1, 2), marks=pytest.mark.slow, id="as published"),
    ],
)
def test_issue14_records_find_lemons_better_than_three_sessions_in_a_week(
    nodes: int, days: float, share: float, seeds: tuple[int, ...]
) -> None:
    """A fleet played whole: lines, verdicts, sessions, records."""
    years = [play_lemons(nodes, days, seed, ENFORCE, random.Random, share) for seed in seeds]

    ours = lemon_score((year.bad, year.by_record) for year in years)
    plain = lemon_score((year.bad, year.by_plain_rule) for year in years)

    assert ours.right >= 1
    assert ours.precision >= max(0.85, plain.precision), "Meta published 85 % for its own"
    assert ours.recall >= plain.recall


def test_the_plain_rule_counts_sessions_of_one_node_within_a_week() -> None:
    sessions = [("a", 0.0), ("b", 1.0), ("a", 3.0), ("b", 4.0), ("a", 6.9), ("b", 8.5)]

    assert called_by_plain_rule(sessions) == {"a": 6.9}


def test_of_nobody_bad_and_nobody_called_nothing_is_wrong() -> None:
    nothing = lemon_score([(frozenset(), {})])

    assert (nothing.precision, nothing.recall, nothing.middle) == (1.0, 1.0, None)


# ---------------------------------------------------------------------- foresight


@pytest.mark.parametrize(
    "precursor",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] * bool(number))
        for number, one in enumerate([replace(PRECURSORS[0], days=4.0), *PRECURSORS[1:]])
    ],
)
def test_issue14_what_creeps_is_named_a_day_before_it_fails_and_nothing_else_is(
    precursor: Precursor,
) -> None:
    found = foresee(precursor, random.Random(3))

    assert found.lead_h is not None
    assert found.lead_h >= 24.0
    assert found.false == 0


@pytest.mark.parametrize(
    "gpu_days", [48, pytest.param(10_000, marks=pytest.mark.slow, id="10000 GPU-days")]
)
def test_issue14_healthy_noise_and_new_drivers_are_never_a_finding(
    gpu_days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gpu_days < 100:
        monkeypatch.setattr(foresight, "DRIVER_DAYS", 3.0)

    found = stay_sound(gpu_days / 8, random.Random(gpu_days))

    assert (found.gpu_days, found.false) == (gpu_days, 0)


def test_one_gpu_that_counts_170_times_as_often_is_found() -> None:
    """What all GPUs show after a new driver is none; the same on one alone is."""
    replays = next(one for one in PRECURSORS if one.name == "PCIe replays")

    found = foresee(replace(replays, days=2.0, first=510.0, last=511.0), random.Random(1))

    assert found.lead_h is not None


# ---------------------------------------------------------------------- the ledger


@pytest.mark.parametrize(
    ("nodes", "look_days"),
    [(300, 7.0), pytest.param(10_000, 1.0, marks=pytest.mark.slow, id="10000 nodes")],
)
def test_issue14_the_ledger_of_a_fleet_stays_bounded(nodes: int, look_days: float) -> None:
    size = ledger_size(nodes, 365, random.Random(7), look_days=look_days)

    assert nodes < size.faults < 2.5 * nodes
    assert size.most < 0.6 * nodes, "records at once"
    assert size.largest < 24_000, "bytes of the largest"
    assert size.bytes_in_all < 1000 * nodes
    assert size.writes_a_day < 0.03 * nodes
