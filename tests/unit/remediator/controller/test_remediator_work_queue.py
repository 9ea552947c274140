"""The queue of nodes: nothing lost, nothing twice at once, time as a source of work."""

import asyncio

import pytest

from remediator.controller.loop import WorkQueue
from remediator.kube.clock import CallQueue, RateLimiter
from tests.support.remediator.virtual_clock import VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def queue(clock):
    return WorkQueue(clock)


async def test_a_name_added_often_is_taken_once(queue):
    for name in ("a", "b", "a", "a"):
        queue.add(name)
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    assert len(queue) == 0


async def test_urgent_names_overtake(queue):
    queue.add("a")
    queue.add("b")
    queue.add("b", urgent=True)
    assert [await queue.take(), await queue.take()] == ["b", "a"]


async def test_a_name_added_during_its_work_is_taken_again_only_afterwards(queue):
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.take() == "a"


async def test_what_is_added_urgently_during_its_work_stays_urgent(queue):
    queue.add("a")
    await queue.take()
    queue.add("a", urgent=True)
    queue.add("a")
    queue.add("b")
    queue.done("a")
    assert [await queue.take(), await queue.take()] == ["a", "b"]


async def test_while_it_is_crowded_the_others_let_urgent_names_pass_and_wait_for_nothing_else(
    queue,
):
    queue.add("a")
    taking = asyncio.create_task(queue.take(lambda: True))
    await asyncio.sleep(0)
    queue.add("b", urgent=True)
    assert await taking == "b"
    assert await queue.take(lambda: True) == "a"


async def test_a_later_time_does_not_postpone_an_earlier_one(queue, clock):
    queue.add_at("a", clock.at + 5)
    queue.add_at("a", clock.at + 50)
    clock.at += 6
    assert await queue.take() == "a"


async def test_an_earlier_time_counts_and_the_later_is_dropped(queue, clock):
    queue.add_at("a", clock.at + 50)
    queue.add_at("a", clock.at + 5)
    clock.at += 6
    assert await queue.take() == "a"
    queue.done("a")
    clock.at += 100
    queue.add("end")
    assert await queue.take() == "end"


async def test_a_waiting_taker_wakes_for_a_new_name(queue):
    taker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add("a")
    assert await taker == "a"


async def test_a_bucket_holds_its_rate_and_allows_a_short_burst(clock):
    rate_limiter = RateLimiter({CallQueue.TAINT: 100.0}, clock)
    began = clock.at
    for _ in range(210):
        await rate_limiter.acquire(CallQueue.TAINT)
    assert clock.at - began == pytest.approx(2.0, abs=0.02)
