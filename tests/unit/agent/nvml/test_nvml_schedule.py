"""When polls are due."""

from __future__ import annotations

import itertools

import pytest

from agent.nvml.life import FAST_PERIODS, Schedule
from agent.nvml.messages import POLL_S
from agent.nvml.poller import Tier


def taken(schedule, now):
    found = []
    while (poll := schedule.take(now)) is not None:
        found.append(poll)
    return found


def timeline(schedule, start, seconds):
    """(time, GPU, tier) of every poll taken exactly when due."""
    found = []
    while (due := schedule.next_due()) is not None and due <= start + seconds:
        index, tier = schedule.take(due)
        found.append((due - start, index, tier))
    return found


def test_everything_is_read_once_at_start():
    schedule = Schedule(8, 100.0, 0.5)
    assert sorted(taken(schedule, 100.0)) == sorted((i, tier) for i in range(8) for tier in Tier)
    assert (schedule.next_due() or 0.0) > 100.0


@pytest.mark.parametrize("jitter", [0.0, 0.3, 0.999])
def test_each_tier_keeps_its_period_and_the_load_is_flat(jitter):
    schedule = Schedule(8, 0.0, jitter)
    taken(schedule, 0.0)
    polls = timeline(schedule, 0.0, 7200)
    for tier, periods in FAST_PERIODS.items():
        period = periods * POLL_S
        for gpu in range(8):
            times = [at for at, index, t in polls if (index, t) == (gpu, tier)]
            assert all(
                later - earlier == pytest.approx(period)
                for earlier, later in itertools.pairwise(times)
            )
            assert len(times) in (int(7200 / period), int(7200 / period) + 1)
    fast = [at for at, _, tier in polls if tier is Tier.FAST and at < 600]
    assert min(b - a for a, b in itertools.pairwise(fast)) == pytest.approx(15 / 8)


def test_a_faster_fast_tier_quickens_the_others_alike():
    schedule = Schedule(1, 0.0, 0.5, fast_s=1.5)
    taken(schedule, 0.0)
    polls = timeline(schedule, 0.0, 60)
    fast = [at for at, _, tier in polls if tier is Tier.FAST]
    medium = [at for at, _, tier in polls if tier is Tier.MEDIUM]
    assert (len(fast), len(medium)) == (40, 10)


def test_nodes_with_different_jitter_poll_apart():
    first, second = Schedule(8, 0.0, 0.1), Schedule(8, 0.0, 0.9)
    taken(first, 0.0)
    taken(second, 0.0)
    assert first.next_due() != second.next_due()


def test_missed_periods_are_skipped_not_made_up_for():
    schedule = Schedule(1, 0.0, 0.0)
    taken(schedule, 0.0)
    assert sorted(taken(schedule, 1000.0)) == [(0, Tier.FAST), (0, Tier.MEDIUM)]
    assert 1000.0 < (schedule.next_due() or 0.0) <= 1015.0


def test_a_poll_can_be_hurried_but_not_into_a_storm():
    schedule = Schedule(2, 0.0, 0.0)
    taken(schedule, 0.0)
    schedule.hurry(1, Tier.MEDIUM, 0.2)
    assert schedule.take(0.2) is None
    assert schedule.next_due() == 1.0
    assert taken(schedule, 1.0) == [(1, Tier.MEDIUM)]
    before = schedule.next_due()
    assert before is not None
    schedule.hurry(0, Tier.FAST, before + 100)
    assert schedule.next_due() == before, "never later than it was due anyway"


def test_without_gpus_nothing_is_due():
    assert Schedule(0, 0.0, 0.5).next_due() is None
