"""The limit of calls in flight: lowered by an overloaded API server, raised by its answers."""

import asyncio
import json

import pytest
from aiohttp import web

from remediator.kube.access import Access
from remediator.kube.answer import NO_ANSWER, Answer
from remediator.kube.api import IN_FLIGHT, Api
from remediator.kube.clock import CallQueue, InFlightLimit, RateLimiter, Slots
from tests.support.remediator.scripted_server import node, scripted_server, write_kubeconfig
from tests.support.remediator.virtual_clock import VirtualClock

BUSY = "Too many requests, please try again later."


def status(message: str, reason: str = "TooManyRequests", **details) -> dict:
    return {"kind": "Status", "code": 429, "reason": reason, "message": message, **details}


def test_an_overloaded_server_halves_the_limit_at_most_once_a_second():
    limit = InFlightLimit(48)
    for at in (0.0, 0.1, 0.9):
        limit.overloaded(at, at, 0.0)
    assert limit.number == 24
    limit.overloaded(1.0, 1.0, 0.0)
    assert limit.number == 12
    for at in range(2, 20):
        limit.overloaded(at, at, 0.0)
    assert limit.number == 2, "one slow call does not stop the queue"


def test_calls_that_were_sent_before_the_limit_was_halved_do_not_halve_it_again():
    limit = InFlightLimit(48)
    for answered_at in (30.0, 32.0, 34.0):
        limit.overloaded(answered_at - 30.0, answered_at, 0.0)
    assert limit.number == 24


def test_answers_raise_the_limit_by_one_a_second_up_to_the_most():
    limit = InFlightLimit(8)
    limit.overloaded(0.0, 0.0, 0.0)
    seen = []
    for tenth in range(1, 80):
        limit.answered(tenth / 10)
        seen.append(limit.number)
    assert seen[:9] == [4] * 9, "not in the second after it was halved"
    assert [seen.count(number) for number in (5, 6, 7)] == [10, 10, 10]
    assert seen[-1] == 8


def test_answers_between_refusals_do_not_keep_the_limit_up():
    limit = InFlightLimit(48)
    for tenth in range(50):
        limit.answered(tenth / 10)
        limit.overloaded(tenth / 10, tenth / 10, 0.0)
    assert limit.number == 2


@pytest.mark.parametrize(("asked_s", "pause_s"), [(0.0, 0.0), (3.0, 3.0), (3600.0, 10.0)])
def test_retry_after_is_honoured_up_to_ten_seconds(asked_s, pause_s):
    limit = InFlightLimit(8)
    limit.overloaded(100.0, 100.0, asked_s)
    limit.overloaded(100.0, 100.0, 0.0)
    assert limit.pause_s(100.0) == pause_s
    assert limit.pause_s(100.0 + pause_s) == 0.0


async def test_as_many_slots_are_free_as_the_limit_allows():
    slots, most, busy = Slots(8), [], 0

    async def call():
        nonlocal busy
        async with slots:
            busy += 1
            most.append(busy)
            await asyncio.sleep(0)
            busy -= 1

    async def calls(number):
        most.clear()
        await asyncio.gather(*(call() for _ in range(number)))
        return max(most)

    assert await calls(20) == 8
    slots.limit.overloaded(0.0, 0.0, 0.0)
    await slots.adapt()
    assert await calls(20) == 4, "free slots are removed"
    async with slots, slots, slots:
        slots.limit.overloaded(1.0, 1.0, 0.0)
        await slots.adapt()
    assert await calls(20) == 2, "slots in use are removed at their end"
    for second in range(2, 10):
        slots.limit.answered(float(second))
        await slots.adapt()
    assert await calls(20) == 8


async def test_a_cancelled_call_costs_no_slot():
    slots = Slots(2)
    async with slots, slots:
        waiting = asyncio.create_task(slots.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(1), slots, slots:
        pass


@pytest.mark.parametrize(
    ("answer", "overloaded"),
    [
        pytest.param((429, BUSY, "text/plain"), True, id="priority and fairness"),
        pytest.param((429, status(BUSY), "application/json"), True, id="Status of the server"),
        pytest.param(
            (429, status("Cannot evict pod as it would violate the budget."), "application/json"),
            False,
            id="PodDisruptionBudget",
        ),
        pytest.param((429, status("live migration"), "application/json"), False, id="webhook"),
        pytest.param((504, status("Timeout", "Timeout"), "application/json"), True, id="504"),
        pytest.param((500, status("x", "InternalError"), "application/json"), False, id="500"),
        pytest.param((200, {}, "application/json"), False, id="success"),
    ],
)
def test_only_an_overloaded_server_lowers_the_limit(answer, overloaded):
    code, body, kind = answer
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    assert Answer(code=code, body=data, content_type=kind).overloaded is overloaded


def test_a_timeout_is_overload_and_a_refused_connection_is_not():
    assert Answer(code=NO_ANSWER, late=True).overloaded
    assert not Answer(code=NO_ANSWER, failure="Cannot connect to host").overloaded


async def test_the_limit_and_the_pause_are_those_of_one_queue(tmp_path):
    refusals, calls = 1, []

    async def handler(request):
        nonlocal refusals
        calls.append((request.path, request.transport.get_extra_info("peername")))
        if request.path == "/busy" and refusals:
            refusals -= 1
            return web.Response(status=429, text=BUSY, headers={"Retry-After": "5"})
        return web.json_response(node("a", 1))

    clock = VirtualClock()
    async with scripted_server(handler) as address:
        access = Access(write_kubeconfig(tmp_path / "kubeconfig", address))
        await access.load()
        api = Api(access, clock, RateLimiter({}, clock))
        await api.open()
        try:
            for call_queue in (CallQueue.READ, CallQueue.LEASE):
                refusals = 1
                assert (await api.call(call_queue, "GET", "/busy")).code == 429
            began, limits = clock.at, api.limits()
            for call_queue in (CallQueue.TAINT, CallQueue.LEASE):
                assert (await api.call(call_queue, "GET", "/other")).ok
            assert clock.at == began, "other queues do not wait, nor does the lease"
            assert (await api.call(CallQueue.READ, "GET", "/other")).ok
            assert clock.at == began + 5.0
        finally:
            await api.close()
    changed = {CallQueue.READ: IN_FLIGHT[CallQueue.READ] // 2}
    assert limits == IN_FLIGHT | changed
    lease, others = ({calls[n][1] for n in numbers} for numbers in ((1, 3), (0, 2, 4)))
    assert len(lease) == 1, "the lease has a connection of its own"
    assert not lease & others
